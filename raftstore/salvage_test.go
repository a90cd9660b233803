package raftstore

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// fingerprint sums every file of a directory.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(h, "%s %d %x\n", path, len(b), sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Quorum lost for good: the directory of the survivor has everything that was
// acknowledged and that it had, in snapshots or in the log, and reading it
// changes nothing.
func TestSurvivorsDirectoryHasAllThatWasAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, func(_ *server, conf *Config) {
			conf.SnapshotThreshold, conf.SnapshotInterval, conf.TrailingLogs = 20, 50*time.Millisecond, 5
		})
		var names []string
		for i := range 60 {
			names = append(names, fmt.Sprintf("k%d", i))
			c.do(mark(names[i]))
			time.Sleep(10 * time.Millisecond)
		}
		survivor := c.follower()
		// The newest snapshot must not have everything: the log is to be read as well.
		for r := survivor.store.running(); ; {
			names = append(names, fmt.Sprintf("k%d", len(names)))
			c.do(mark(names[len(names)-1]))
			c.within(10*time.Second, "copy on the follower", func() bool {
				ok := false
				survivor.store.View(func(st *state.State) { ok = marked(st, names[len(names)-1]) })
				return ok
			})
			synctest.Wait() // for a snapshot that is being made
			if r.Stats()["last_snapshot_index"] != r.Stats()["last_log_index"] {
				break
			}
		}
		if _, err := ReadDir(survivor.dir); !errors.As(err, new(*InUseError)) {
			t.Errorf("a running server's directory was read: %v", err)
		}
		for _, s := range c.servers {
			s.crash()
		}
		before := fingerprint(t, survivor.dir)
		v, err := ReadDir(survivor.dir)
		if err != nil {
			t.Fatal(err)
		}
		if fingerprint(t, survivor.dir) != before {
			t.Error("reading changed the directory")
		}
		for _, n := range names {
			if !marked(v.State, n) {
				t.Errorf("%s was acknowledged and is missing", n)
			}
		}
		if v.ServerID != survivor.id || v.SnapshotIndex == 0 || v.Entries == 0 || v.Missing != nil || v.Index < 60 || v.Term == 0 {
			t.Errorf("read %+v", v)
		}
		if err := v.State.Check(); err != nil {
			t.Error(err)
		}
	})
}

// What a deposed leader wrote alone, and the others took back, is not there.
func TestSalvageFollowsWhatRaftTookBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		c.do(mark("before"))
		old := c.leader()
		c.net.isolate(old.addr, true)
		go func() { _, _ = old.store.Propose(t.Context(), mark("alone")) }()
		c.within(10*time.Second, "another leader", func() bool {
			l := c.leader()
			return l != old
		})
		c.do(mark("after"))
		c.net.isolate(old.addr, false)
		c.within(10*time.Second, "copy on the old leader", func() bool {
			ok := false
			old.store.View(func(st *state.State) { ok = marked(st, "after") })
			return ok
		})
		c.stopAll()
		if raw, err := os.ReadFile(segments(t, old)[0]); err != nil || !bytes.Contains(raw, []byte("alone")) {
			t.Errorf("it was never written, so nothing was taken back (%v)", err)
		}
		v, err := ReadDir(old.dir)
		if err != nil {
			t.Fatal(err)
		}
		if !marked(v.State, "before") || !marked(v.State, "after") || marked(v.State, "alone") || v.Missing != nil {
			t.Errorf("before %v, after %v, alone %v, missing %v", marked(v.State, "before"), marked(v.State, "after"), marked(v.State, "alone"), v.Missing)
		}
	})
}

// A damaged directory gives what can be read of it, and says what cannot.
func TestSalvageOfADamagedDirectory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 60, func(_ *server, conf *Config) {
			conf.SnapshotThreshold, conf.SnapshotInterval, conf.TrailingLogs = 20, 50*time.Millisecond, 1000
		})
		whole, err := ReadDir(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		snapshots, err := filepath.Glob(filepath.Join(s.dir, "snapshots", "*", "state.bin"))
		if err != nil || len(snapshots) == 0 {
			t.Fatalf("snapshots %v: %v", snapshots, err)
		}
		flip := func(path string, at int) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[at] ^= 8
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range snapshots {
			flip(path, 60)
		}
		v, err := ReadDir(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		if v.Index != whole.Index || v.SnapshotIndex != 0 || len(v.Missing) != len(snapshots) || !strings.Contains(v.Missing[0], "snapshot") {
			t.Errorf("without snapshots: %+v, want index %d by the log alone", v, whole.Index)
		}
		logFile := segments(t, s)[0]
		b, err := os.ReadFile(logFile)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := walBatches(b) // in between are bytes that say nothing
		flip(logFile, all[len(all)/2].start+walWord)
		v, err = ReadDir(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		if v.Index == 0 || v.Index >= whole.Index || !slices.ContainsFunc(v.Missing, func(m string) bool { return strings.Contains(m, ".wal") }) {
			t.Errorf("with a bit flipped in the middle of the log: index %d of %d, missing %v", v.Index, whole.Index, v.Missing)
		}
		if err := v.State.Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestSalvageOfNothing(t *testing.T) {
	if _, err := ReadDir(t.TempDir()); !errors.Is(err, ErrNoState) {
		t.Error(err)
	}
	if _, err := ReadDir(filepath.Join(t.TempDir(), "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
