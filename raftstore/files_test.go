package raftstore

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// written starts one server, lets it write, and stops it; its directory stays.
func written(t *testing.T, entries int, opts ...option) *server {
	t.Helper()
	c := newCluster(t, 1, append([]option{onDisk}, opts...)...)
	c.keyspace("orders", 8, time.Hour)
	for range entries {
		c.do(nudge())
	}
	time.Sleep(time.Second) // for a snapshot, if they are on
	s := c.servers[0]
	if err := s.halt(); err != nil {
		t.Fatal(err)
	}
	return s
}

func segments(t *testing.T, s *server) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.dir, "log", "*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatalf("segments: %v %v", names, err)
	}
	return names
}

// reopen opens a directory, and runs it for a moment if it opens.
func reopen(t *testing.T, s *server) (applied uint64, err error) {
	t.Helper()
	store, err := New(s.config())
	if err != nil {
		return 0, err
	}
	s.store = store
	s.run()
	defer s.halt()
	s.c.leader()
	return store.appliedIndex.Load(), nil
}

func TestBitFlipInTheLogIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 40)
		path := segments(t, s)[0]
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		end := walEnd(good)
		whole, err := reopen(t, s)
		if err != nil {
			t.Fatal(err)
		}
		good, err = os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		good = good[:walEnd(good)] // not 16 MiB of zeros each time
		// Everywhere but in the last write, which cannot be told from a torn one.
		refused, harmless := 0, 0
		for at := walHeader; at < end-600; at += 13 {
			bad := slices.Clone(good)
			bad[at] ^= 1 << (at % 8)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			store, err := New(s.config())
			if err == nil {
				// The sum of a batch in the middle, padding, or the time of an entry.
				if last, _ := store.files.log.LastIndex(); last < whole {
					t.Errorf("bit flipped at %d: entries after %d are gone without a word", at, last)
				}
				harmless++
				store.Close()
				continue
			}
			var failure *StorageError
			if !errors.As(err, &failure) || !errors.Is(err, ErrCorrupt) {
				t.Errorf("bit flipped at %d: %v", at, err)
			}
			refused++
		}
		t.Logf("%d flips refused, %d without effect", refused, harmless)
		if refused < harmless {
			t.Errorf("only %d flips refused", refused)
		}
	})
}

func TestTruncatedSealedSegmentIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		c.keyspace("orders", 8, time.Hour)
		big := openSession(1, "orders")
		big.Labels = map[string]string{"x": strings.Repeat("x", state.MaxLabelLen)}
		cmds := make([]state.Command, 1200)
		for i := range cmds {
			cmds[i] = big // the first opens it, the others find it
		}
		for range 200 { // more than one segment
			c.do(cmds...)
			if names, _ := filepath.Glob(filepath.Join(c.servers[0].dir, "log", "*.wal")); len(names) > 1 {
				break
			}
		}
		s := c.servers[0]
		if err := s.halt(); err != nil {
			t.Fatal(err)
		}
		names := segments(t, s)
		if len(names) < 2 {
			t.Fatal("only one segment")
		}
		if err := os.Truncate(names[0], 1<<20); err != nil {
			t.Fatal(err)
		}
		_, err := New(s.config())
		var failure *StorageError
		if !errors.As(err, &failure) {
			t.Fatalf("opened with half a segment: %v", err)
		}
		t.Log(err)
	})
}

func TestSecondProcessOnTheSameDirectoryIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		defer c.stopAll()
		_, err := New(c.servers[0].config())
		var inUse *InUseError
		if !errors.As(err, &inUse) || inUse.Holder == "" || inUse.Dir != c.servers[0].dir {
			t.Errorf("opened twice: %v", err)
		}
		c.do(mark("x"))
	})
}

func TestDirectoryOfAnotherServerIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 1)
		conf := s.config()
		conf.ServerID = "other"
		_, err := New(conf)
		var id *IdentityError
		if !errors.As(err, &id) || id.Stored != "s1" || id.Given != "other" {
			t.Errorf("opened as another: %v", err)
		}
		conf.ServerID = ""
		store, err := New(conf)
		if err != nil || store.ServerID() != "s1" {
			t.Fatalf("opened with the stored id: %v", err)
		}
		store.Close()
		conf.Dir = filepath.Join(t.TempDir(), "new")
		if _, err := New(conf); err == nil {
			t.Error("a new directory without an id")
		}
		if info, err := os.Stat(conf.Dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("data directory: %v %v", info, err)
		}
	})
}
