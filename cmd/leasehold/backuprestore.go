package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/spf13/cobra"
)

// restoreFlags say what a new cluster begins with.
type restoreFlags struct {
	dir, id, raftAddr string
	tokenFloor        uint64
	hold              durationFlag
	wall              func() time.Time
}

func newBackupRestoreCommand(e env) *cobra.Command {
	r := restoreFlags{hold: durationFlag{max: state.MaxTTL}, wall: time.Now}
	cmd := &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Make the first server of a new cluster from a backup",
		Long: `Write the data directory of the first server of a *new* cluster from a backup. No
server is asked and none may run on the directory, which must be empty or not
exist. A backup is never restored into a cluster that runs: that would let
tokens go back.

Kept are the keyspaces with their settings and the last token of every partition,
and which workers are drained. Tokens and event revisions are raised above all
that the old cluster can have given out since, by the wall clock, which must be
right. Sessions and leases are dropped: workers of the old cluster that find the
new one join it, and get nothing strict before leases of before can be believed in
no longer. Fenced keyspaces are granted at once. Credentials come back as the backup
has them, also those that were revoked since; the keys of gossip do not: the new
cluster begins with the file that its servers are given.

All servers of the old cluster must be stopped for good: two clusters that grant
the same partitions exclude each other at guarded resources only.`,
		Example: `  leasehold backup restore leasehold-monday --data-dir /var/lib/leasehold --id s1 --raft-addr 10.0.0.1:7401
  leasehold backup restore leasehold-monday --data-dir /var/lib/leasehold --id s1 --raft-addr 10.0.0.1:7401 --yes   # in a script`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), e, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&r.dir, "data-dir", "", "`directory` to write, empty or new")
	f.StringVar(&r.id, "id", "", "id of the server that will run on it")
	f.StringVar(&r.raftAddr, "raft-addr", "", "`host:port` at which the other servers will reach its Raft")
	f.Uint64Var(&r.tokenFloor, "token-floor", 0, "last resort, when the wall clock is known to be wrong: the first `token`; it must be above every one that was granted")
	f.Var(&r.hold, "strict-hold", "grant nothing strict for longer than the backup tells, when a TTL was raised after it")
	return cmd
}

// check refuses what is wrong on the command line.
func (r *restoreFlags) check() error {
	switch {
	case r.dir == "":
		return usage("--data-dir is missing: where will the server's log and snapshots live? for example --data-dir /var/lib/leasehold")
	case r.id == "":
		return usage("--id is missing: which server will run on it? for example --id s1")
	case r.raftAddr == "":
		return usage("--raft-addr is missing: where will the other servers reach it? for example --raft-addr 10.0.0.1:7401")
	case r.tokenFloor > uint64(state.MaxToken):
		return usage("--token-floor %d: at most %d", r.tokenFloor, uint64(state.MaxToken))
	}
	if err := state.ValidateName("server", "server_id", r.id); err != nil {
		return usage("--id: %v", err)
	}
	host, port, err := net.SplitHostPort(r.raftAddr)
	n, perr := strconv.Atoi(port)
	if ip := net.ParseIP(host); err != nil || perr != nil || n < 1 || n > 65535 || host == "" || ip != nil && ip.IsUnspecified() {
		return usage("--raft-addr %q: want the host and the port at which others reach it, for example 10.0.0.1:7401", r.raftAddr)
	}
	return nil
}

// restored is what -o json says.
type restored struct {
	backupResult
	ClusterID    string `json:"cluster_id"`
	ServerID     string `json:"server_id"`
	StoreID      string `json:"store_id"`
	RaftAddr     string `json:"raft_addr"`
	LastToken    uint64 `json:"last_token,string"`
	Revision     uint64 `json:"revision,string"`
	StrictHoldMs int64  `json:"strict_hold_ms,string"`
	Credentials  int    `json:"credentials"`
}

func (r *restoreFlags) run(ctx context.Context, e env, file string) error {
	if err := r.check(); err != nil {
		return err
	}
	s, res, err := loadBackup(e, file, "reading")
	if err != nil {
		return err
	}
	if err := warnMissing(e, &res.Manifest); err != nil {
		return err
	}
	if err := r.rebase(s, res); err != nil {
		return err
	}
	question := fmt.Sprintf("Make a new cluster of the backup of %s? All servers of cluster %s must be stopped for good.",
		res.Manifest.Time.Format(time.RFC3339), res.Manifest.ClusterID)
	if err := confirm(ctx, e, question); err != nil {
		return err
	}
	self, err := (&raftstore.Seed{Dir: r.dir, ServerID: r.id, RaftAddr: r.raftAddr, State: s}).Write()
	if err != nil {
		var full *raftstore.NotEmptyError
		var used *raftstore.InUseError
		if errors.As(err, &full) || errors.As(err, &used) {
			return &codedError{exitRefused, &hintError{fmt.Errorf("restore: %w", err),
				"a backup is only restored into an empty directory: name another, or move that one away after you have looked at it with: leasehold backup inspect --data-dir " + r.dir}}
		}
		return fmt.Errorf("restore: %w", err)
	}
	out := restored{
		backupResult: *res, ClusterID: s.ClusterID(), ServerID: self.ID, StoreID: self.Store, RaftAddr: self.RaftAddr,
		LastToken: uint64(s.LastToken()), Revision: s.Revision(), StrictHoldMs: s.StrictHold().Milliseconds(),
		Credentials: s.CredentialCount(),
	}
	out.DataDir = r.dir
	return r.report(e, &out)
}

// rebase makes the state that of a new cluster.
func (r *restoreFlags) rebase(s *state.State, res *backupResult) error {
	m, now := &res.Manifest, r.wall()
	first := raftstore.FirstToken(now)
	if r.tokenFloor > 0 && r.tokenFloor <= uint64(s.LastToken()) {
		return usage("--token-floor %d: want a token above every one that was granted, and the backup has granted %d", r.tokenFloor, uint64(s.LastToken()))
	}
	if r.tokenFloor > 0 {
		first = state.Token(r.tokenFloor)
	} else if now.Before(m.Time) {
		return &codedError{exitRefused, &hintError{
			fmt.Errorf("restore: the clock of this machine says %s, the backup was made at %s: tokens that begin by such a clock may have been granted already",
				now.UTC().Format(time.RFC3339), m.Time.Format(time.RFC3339)),
			"set the clock; if it is that of the backup which was wrong, give a token above all that were granted with --token-floor"}}
	}
	err := s.Rebase(state.Rebase{
		ClusterID: raftstore.NewClusterID(), Index: m.Index + 1, Term: m.Term + 1, First: first, Hold: r.hold.d, Wall: now,
	})
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

func (r *restoreFlags) report(e env, out *restored) error {
	if e.json() {
		return printJSON(e.stdout, out)
	}
	abs, err := filepath.Abs(r.dir)
	if err != nil {
		abs = r.dir
	}
	err = e.say(`restored %s into %s: new cluster %s, server %s
tokens go on above %d, revisions at %d; nothing strict is granted for %s after it has started

next, when no server of cluster %s runs any more:
  leasehold server --id %s --data-dir %s --raft-addr %s …   (and its other flags as before)
  leasehold server --id s2 --data-dir EMPTY --join THE-FIRST:7402 …   (the others, with empty directories)
  leasehold raft add s2   (each of them, once it runs)
  leasehold status --wait`,
		out.File, abs, out.ClusterID, out.ServerID, out.LastToken, out.Revision, shortDuration(time.Duration(out.StrictHoldMs)*time.Millisecond),
		out.Manifest.ClusterID, out.ServerID, abs, out.RaftAddr)
	if err != nil || out.Credentials == 0 {
		return err
	}
	return e.say(`
%s valid again, also what was revoked after the backup was made: look, and revoke that
  leasehold credential ls`, credentialsAre(out.Credentials))
}

func credentialsAre(n int) string {
	if n == 1 {
		return "1 credential is"
	}
	return fmt.Sprintf("%d credentials are", n)
}
