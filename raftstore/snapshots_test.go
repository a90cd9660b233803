package raftstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func frequentSnapshots(_ *server, c *Config) {
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 8, 4, 5*time.Millisecond
}

// snapshotted starts one server that takes snapshots often, lets it write, and
// stops it with two on disk. It returns their directories, newest first, and
// the names that it was given.
func snapshotted(t *testing.T) (s *server, dirs, marks []string) {
	t.Helper()
	c := newCluster(t, 1, onDisk, smallSegments, frequentSnapshots)
	c.keyspace("orders", 8, time.Hour)
	for i := range 60 {
		name := fmt.Sprintf("m%d", i)
		c.do(mark(name))
		marks = append(marks, name)
		time.Sleep(2 * time.Millisecond)
	}
	s = c.servers[0]
	if err := s.halt(); err != nil {
		t.Fatal(err)
	}
	names, err := snapshotNames(filepath.Join(s.dir, "snapshots"))
	if err != nil || len(names) != 2 {
		t.Fatalf("snapshots: %v %v", names, err)
	}
	for _, n := range names {
		dirs = append(dirs, filepath.Join(s.dir, "snapshots", n.id))
	}
	return s, dirs, marks
}

// damages lists what O-50 does to a file, and worse.
func damages(good []byte) map[string][]byte {
	flip := func(at int) []byte {
		b := slices.Clone(good)
		b[at] ^= 4
		return b
	}
	return map[string][]byte{
		"first byte flipped": flip(0), "middle byte flipped": flip(len(good) / 2), "last byte flipped": flip(len(good) - 1),
		"cut": good[:len(good)-5], "empty": nil,
	}
}

// O-50, the log reaching back: an older snapshot and the log say the same.
func TestDamagedNewestSnapshotIsMadeUpForByTheLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, dirs, marks := snapshotted(t)
		again := keepCopy(t, s.dir)
		for _, file := range []string{"state.bin", "meta.json", metaSum} {
			path := filepath.Join(dirs[0], file)
			for what, bad := range damages(contents(t, path)) {
				rewrite(t, path, bad)
				store, err := New(s.config())
				if err != nil {
					t.Errorf("%s, %s: %v", file, what, err)
					again()
					continue
				}
				s.store = store
				s.run()
				s.c.do(nudge())
				if missing := missing(store, marks); len(missing) > 0 {
					t.Errorf("%s, %s: %d of %d are gone: %v", file, what, len(missing), len(marks), missing)
				}
				if err := s.halt(); err != nil {
					t.Fatal(err)
				}
				aside := filepath.Join(s.dir, "snapshot-"+filepath.Base(dirs[0])+".damaged")
				if _, err := os.Stat(aside); err != nil {
					t.Errorf("%s, %s: not set aside: %v", file, what, err)
				}
				again()
			}
		}
	})
}

// O-50, with a gap: it would be another state, and is refused.
func TestDamagedSnapshotThatTheLogDoesNotReachBackToIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, dirs, marks := snapshotted(t)
		newest, err := parseSnapshotName(filepath.Base(dirs[0]))
		if err != nil {
			t.Fatal(err)
		}
		shortenLog(t, s, func(first, last uint64) (uint64, uint64) { return first, newest.index })
		for _, file := range []string{"state.bin", "meta.json"} {
			path := filepath.Join(dirs[0], file)
			good := contents(t, path)
			for what, bad := range damages(good) {
				rewrite(t, path, bad)
				wantRefused(t, s, dirs[0], file+", "+what)
			}
			rewrite(t, path, good)
		}
		reopenWith(t, s, marks)
		// Without any entry behind it, nothing tells how far the log once went.
		newer, err := snapshotNames(filepath.Join(s.dir, "snapshots"))
		if err != nil {
			t.Fatal(err)
		}
		shortenLog(t, s, func(first, last uint64) (uint64, uint64) { return first, last })
		damage(t, filepath.Join(s.dir, "snapshots", newer[0].id, "state.bin"))
		wantRefused(t, s, filepath.Join(s.dir, "snapshots", newer[0].id), "no log")
	})
}

func TestAllSnapshotsDamagedIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, dirs, _ := snapshotted(t)
		for _, d := range dirs {
			damage(t, filepath.Join(d, "state.bin"))
		}
		wantRefused(t, s, dirs[0], "all damaged")
		for _, d := range dirs {
			if err := os.RemoveAll(d); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := New(s.config()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("opened without any snapshot: %v", err)
		}
	})
}

// The very first snapshot, with a log that begins at its beginning.
func TestDamagedOnlySnapshotIsMadeUpForByTheWholeLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk, func(_ *server, c *Config) { c.SnapshotThreshold, c.SnapshotInterval = 1000, 5*time.Millisecond })
		for range 1000 {
			c.do(nudge())
		}
		c.do(mark("x"))
		time.Sleep(time.Second)
		s := c.servers[0]
		if err := s.halt(); err != nil {
			t.Fatal(err)
		}
		names, err := snapshotNames(filepath.Join(s.dir, "snapshots"))
		if err != nil || len(names) != 1 {
			t.Fatalf("snapshots: %v %v", names, err)
		}
		damage(t, filepath.Join(s.dir, "snapshots", names[0].id, "state.bin"))
		reopenWith(t, s, []string{"x"})
	})
}

// A crash between the arrival of the leader's snapshot and the end of the log
// that it replaces leaves a log that ends before it.
func TestLogThatEndsBeforeTheSnapshotIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, dirs, marks := snapshotted(t)
		newest, err := parseSnapshotName(filepath.Base(dirs[0]))
		if err != nil {
			t.Fatal(err)
		}
		shortenLog(t, s, func(first, last uint64) (uint64, uint64) { return newest.index - 2, last })
		reopenWith(t, s, marks[:40])
	})
}

// keepCopy returns a function that makes dir what it is now.
func keepCopy(t *testing.T, dir string) (again func()) {
	t.Helper()
	kept := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(kept))); err != nil {
			t.Fatal(err)
		}
	}
}

// shortenLog deletes a range of a stopped server's log.
func shortenLog(t *testing.T, s *server, from func(first, last uint64) (uint64, uint64)) {
	t.Helper()
	conf, err := s.config().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	l, err := openWAL(filepath.Join(s.dir, "log"), &conf, newLogAdapter(conf.Logger, "raft"))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	first, last = from(first, last)
	if err := errors.Join(l.DeleteRange(first, last), l.Close()); err != nil {
		t.Fatal(err)
	}
}

func damage(t *testing.T, path string) {
	t.Helper()
	b := contents(t, path)
	b[len(b)/2] ^= 4
	rewrite(t, path, b)
}

func wantRefused(t *testing.T, s *server, path, what string) {
	t.Helper()
	store, err := New(s.config())
	if err == nil {
		store.Close()
	}
	var failure *StorageError
	if !errors.As(err, &failure) || !errors.Is(err, ErrCorrupt) || failure.Path != path {
		t.Errorf("%s: %v", what, err)
	} else if !strings.Contains(err.Error(), "move the data directory away") {
		t.Errorf("%s: does not say what to do: %v", what, err)
	}
}

// missing lists the marks that are not in the state.
func missing(store *Store, marks []string) (gone []string) {
	store.View(func(st *state.State) {
		for _, name := range marks {
			if !marked(st, name) {
				gone = append(gone, name)
			}
		}
	})
	return gone
}

// reopenWith opens a directory, which must have everything.
func reopenWith(t *testing.T, s *server, marks []string) {
	t.Helper()
	s.open()
	s.run()
	s.c.do(nudge())
	if gone := missing(s.store, marks); len(gone) > 0 {
		t.Errorf("%d of %d are gone: %v", len(gone), len(marks), gone)
	}
	if err := s.halt(); err != nil {
		t.Fatal(err)
	}
}
