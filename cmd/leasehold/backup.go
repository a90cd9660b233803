package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/backup"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/spf13/cobra"
)

func newBackupCommand(e env) *cobra.Command {
	return group("backup", "Save the cluster's state, check a backup, make a new cluster of one",
		`  leasehold backup save /backups/leasehold-monday
  leasehold backup verify /backups/leasehold-monday
  leasehold backup restore /backups/leasehold-monday --data-dir /var/lib/leasehold --id s1 --raft-addr 10.0.0.1:7401`,
		newBackupSaveCommand(e), newBackupVerifyCommand(e), newBackupInspectCommand(e), newBackupRestoreCommand(e))
}

// backupResult is what -o json says of a backup.
type backupResult struct {
	File     string          `json:"file,omitempty"`
	DataDir  string          `json:"data_dir,omitempty"`
	Bytes    int64           `json:"bytes,string"`
	Seconds  float64         `json:"seconds"`
	Manifest backup.Manifest `json:"manifest"`
}

func describeBackup(m *backup.Manifest) string {
	return fmt.Sprintf("cluster %s at log index %d, term %d, with %s and %s",
		m.ClusterID, m.Index, m.Term, counted(m.Counts.Keyspaces, "keyspace"), counted(m.Counts.Partitions, "partition"))
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sizeText writes a number of bytes for a person.
func sizeText(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d bytes", n)
	case n < 10_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// openBackup opens a file, or standard input for "-".
func openBackup(e env, name string) (io.Reader, func(), error) {
	if name == "-" {
		return e.stdin, func() {}, nil
	}
	if name == "" {
		return nil, nil, usage("FILE is empty: name a backup, or - for standard input")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err // names the file
	}
	return f, func() { f.Close() }, nil
}

// metered counts what is read, and shows it on a terminal.
type metered struct {
	r     io.Reader
	p     *progress
	verb  string
	bytes int64
	total int64 // 0: not known
	shown time.Time
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.bytes += int64(n)
	if now := time.Now(); now.Sub(m.shown) > 200*time.Millisecond {
		m.shown = now
		if m.total > 0 {
			m.p.show("%s %s of %s (%d %%)", m.verb, sizeText(m.bytes), sizeText(m.total), 100*m.bytes/m.total)
		} else {
			m.p.show("%s %s", m.verb, sizeText(m.bytes))
		}
	}
	return n, err
}

// loadBackup reads a file to its end, checks all there is to check, and returns
// the state.
func loadBackup(e env, name, verb string) (*state.State, *backupResult, error) {
	r, done, err := openBackup(e, name)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	p, begun := newProgress(e), time.Now()
	defer p.done()
	in := &metered{r: r, p: p, verb: verb}
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.total = info.Size()
		}
	}
	s, m, err := backup.Load(in)
	res := &backupResult{File: name, Bytes: in.bytes, Seconds: time.Since(begun).Seconds(), Manifest: m}
	if err != nil {
		return nil, res, fmt.Errorf("%s: %w", name, backupError(err))
	}
	if s.Feature() > state.MaxFeature {
		return nil, res, fmt.Errorf("%s: it has feature level %d, this release knows up to %d: use a newer release", name, s.Feature(), state.MaxFeature)
	}
	return s, res, nil
}

// backupError leaves the damage itself, without the steps on the way to it.
func backupError(err error) error {
	var damaged *backup.DamagedError
	if errors.As(err, &damaged) {
		return damaged
	}
	var version *backup.VersionError
	if errors.As(err, &version) {
		return version
	}
	return err
}

func newBackupVerifyCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE|-",
		Short: "Check every sum of a backup, and the state in it",
		Long: `Read a backup to its end: every checksum, then the state in memory with all its
invariants, and whether it is what the manifest says. Exit code 1 and where it
is wrong if it is. It needs no server.`,
		Example: "  leasehold backup verify /backups/leasehold-monday\n  ssh backuphost cat leasehold-monday | leasehold backup verify -",
		Args:    exactArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			_, res, err := loadBackup(e, args[0], "verifying")
			if err != nil {
				return err
			}
			if e.json() {
				return printJSON(e.stdout, res)
			}
			if err := warnMissing(e, &res.Manifest); err != nil {
				return err
			}
			return e.say("%s is good: %s, %s", args[0], sizeText(res.Bytes), describeBackup(&res.Manifest))
		},
	}
}

func warnMissing(e env, m *backup.Manifest) error {
	if m.Missing == "" {
		return nil
	}
	return e.warn("warning: when it was made, not everything could be read: %s", m.Missing)
}

func newBackupInspectCommand(e env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "inspect FILE|-",
		Short: "Show what a backup, or a stopped server's data directory, holds",
		Long: `Show what a backup holds, or with --data-dir what a stopped server does: for
choosing between the survivors of a cluster that has lost its majority. The one
with the highest term, and of those the one with the highest log index, has
everything that was acknowledged. Nothing is changed.`,
		Example: "  leasehold backup inspect /backups/leasehold-monday\n  leasehold backup inspect --data-dir /var/lib/leasehold",
		Args:    optionalArg,
		RunE: func(_ *cobra.Command, args []string) error {
			if (len(args) == 1) == (dir != "") {
				return usage("want the name of a backup, or --data-dir")
			}
			if dir != "" {
				v, m, err := readDataDir(dir)
				if err != nil {
					return err
				}
				return printInspected(e, v.State, &backupResult{DataDir: dir, Manifest: m}, v)
			}
			s, res, err := loadBackup(e, args[0], "reading")
			if err != nil {
				if res != nil && res.Manifest.ClusterID != "" {
					err = fmt.Errorf("%w (it says that it is of %s)", err, describeBackup(&res.Manifest))
				}
				return err
			}
			return printInspected(e, s, res, nil)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "data `directory` of a stopped server, instead of a file")
	return cmd
}

// readDataDir reads a stopped server's directory.
func readDataDir(dir string) (*raftstore.Salvage, backup.Manifest, error) {
	v, err := raftstore.ReadDir(dir)
	if err != nil {
		var used *raftstore.InUseError
		if errors.As(err, &used) {
			return nil, backup.Manifest{}, &codedError{exitRefused, &hintError{err, "stop that server first; a running one is saved without --data-dir"}}
		}
		return nil, backup.Manifest{}, err
	}
	m := backup.Describe(v.State)
	m.Version, m.ServerID, m.StoreID = version(), v.ServerID, v.StoreID
	m.Index, m.Term = v.Index, v.Term
	m.Time, m.Offline = time.Now().UTC(), true
	m.Missing = strings.Join(v.Missing, "; ")
	if m.ClusterID == "" {
		return nil, m, &codedError{exitRefused, fmt.Errorf("%s: its log begins before there was a cluster, there is nothing in it to save", dir)}
	}
	return v, m, nil
}

// inspected is a backup with its keyspaces.
type inspected struct {
	backupResult
	SnapshotIndex uint64              `json:"snapshot_index,string,omitempty"` // of a data directory
	Entries       int                 `json:"entries,omitempty"`
	Keyspaces     []inspectedKeyspace `json:"keyspaces"`
}

type inspectedKeyspace struct {
	ID         uint32 `json:"id"`
	Name       string `json:"name"`
	Partitions uint32 `json:"partitions"`
	Owned      int    `json:"owned"`
	TTLMillis  int64  `json:"ttl_ms,string"`
	Takeover   string `json:"takeover"`
	LastToken  uint64 `json:"last_token,string"`
	Deleting   bool   `json:"deleting"`
}

func inspect(s *state.State, res *backupResult, v *raftstore.Salvage) inspected {
	in := inspected{backupResult: *res, Keyspaces: []inspectedKeyspace{}}
	if v != nil {
		in.SnapshotIndex, in.Entries = v.SnapshotIndex, v.Entries
	}
	for k := range s.Keyspaces() {
		x := inspectedKeyspace{
			ID: uint32(k.ID), Name: k.Name, Partitions: k.Partitions, Owned: k.Owned, TTLMillis: k.Settings.TTL.Milliseconds(),
			Takeover: k.Settings.Takeover.String(), Deleting: k.Deleting,
		}
		for p := range k.Partitions {
			x.LastToken = max(x.LastToken, uint64(k.Lease(p).Token))
		}
		in.Keyspaces = append(in.Keyspaces, x)
	}
	return in
}

func printInspected(e env, s *state.State, res *backupResult, v *raftstore.Salvage) error {
	in := inspect(s, res, v)
	if e.json() {
		return printJSON(e.stdout, in)
	}
	m := &res.Manifest
	fields := []string{
		"cluster", m.ClusterID,
		"log", fmt.Sprintf("index %d, term %d", m.Index, m.Term),
		"server", m.ServerID + " (version " + m.Version + ")",
	}
	if v == nil {
		made := "made"
		if m.Offline {
			made = "made of a stopped server's directory"
		}
		fields = append(fields, made, m.Time.Format(time.RFC3339), "size", sizeText(res.Bytes))
	} else {
		fields = append(fields, "read", fmt.Sprintf("a snapshot up to index %d and %d log entries", v.SnapshotIndex, v.Entries))
	}
	fields = append(fields,
		"feature level", number(uint32(m.FeatureLevel)),
		"last token", tokenText(uint64(m.LastToken)),
		"revision", number(m.Revision),
		"longest TTL", shortDuration(time.Duration(m.LongestTTLMillis)*time.Millisecond),
		"leases", fmt.Sprintf("%d of %s, %s, %s", m.Counts.Leases, counted(m.Counts.Partitions, "partition"), counted(m.Counts.Sessions, "session"), counted(m.Counts.Workers, "worker")),
	)
	if k := m.Keys; k != nil {
		fields = append(fields, "keys", fmt.Sprintf("%d at revision %d, about %s with their history, %s", k.Count, k.Revision, sizeText(k.Bytes), counted(k.Sequences, "sequence")))
	}
	if m.Missing != "" {
		fields = append(fields, "MISSING", m.Missing)
	}
	if err := printFields(e, fields...); err != nil || len(in.Keyspaces) == 0 {
		return err
	}
	if err := e.say(""); err != nil {
		return err
	}
	t := newTable(e, numCol("ID"), col("KEYSPACE"), numCol("PARTITIONS"), numCol("OWNED"), numCol("TTL"), col("TAKEOVER"), numCol("LAST-TOKEN"))
	for _, k := range in.Keyspaces {
		t.row(number(k.ID), k.Name, number(k.Partitions), number(int64(k.Owned)), shortDuration(time.Duration(k.TTLMillis)*time.Millisecond), k.Takeover, tokenText(k.LastToken))
	}
	return t.print("")
}
