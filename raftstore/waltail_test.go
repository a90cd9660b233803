package raftstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// A write that power loss cut short ends in zeros. It was never acknowledged.
func TestTornTailOfTheLogIsHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 40)
		path := segments(t, s)[0]
		good := contents(t, path)
		end := walEnd(good)
		for cut := 1; cut < 60; cut += 4 {
			torn := slices.Clone(good)
			clear(torn[end-cut:]) // what had not reached the disk
			rewrite(t, path, torn)
			if _, err := reopen(t, s); err != nil {
				t.Fatalf("cut %d bytes: %v", cut, err)
			}
		}
	})
}

// O-46: what was cut off the newest segment was never written, as long as a
// word of zeros is left behind the last commit. Nothing is missing then.
func TestLogCutBehindItsLastEntryIsHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 40)
		path := segments(t, s)[0]
		good := contents(t, path)
		whole, err := reopen(t, s)
		if err != nil {
			t.Fatal(err)
		}
		end := walEnd(good)
		for _, size := range []int{len(good) - 1, len(good) - 7, len(good) - 8, len(good) - 9, len(good) - 100, len(good) / 2, end + walWord} {
			rewrite(t, path, good[:size])
			applied, err := reopen(t, s)
			if err != nil {
				t.Errorf("cut to %d bytes, the entries end at %d: %v", size, end, err)
				continue
			}
			if applied < whole-3 { // its own barrier and announcement
				t.Errorf("cut to %d bytes: entries after %d are gone, there were %d", size, applied, whole)
			}
			if info, err := os.Stat(path); err != nil || info.Size() != segmentSize {
				t.Errorf("healed file: %v %v", info.Size(), err)
			}
		}
	})
}

// O-46: a cut that may have taken something along is refused, with the file,
// the place and what to do.
func TestLogCutIntoItsEntriesIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 40)
		path := segments(t, s)[0]
		good := contents(t, path)
		end := walEnd(good)
		for _, size := range []int{0, 1, 16, walHeader, end - 100, end - 9, end - 8, end - 1, end, end + 1, end + walWord - 1} {
			rewrite(t, path, good[:size])
			_, err := New(s.config())
			var failure *StorageError
			if !errors.As(err, &failure) || !errors.Is(err, ErrCorrupt) || failure.Path != path {
				t.Errorf("cut to %d bytes, the entries end at %d: %v", size, end, err)
				continue
			}
			if !strings.Contains(err.Error(), "move the data directory away") {
				t.Errorf("does not say what to do: %v", err)
			}
		}
		rewrite(t, path, make([]byte, segmentSize))
		if _, err := New(s.config()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("opened with the newest segment full of zeros: %v", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := New(s.config()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("opened without the newest segment: %v", err)
		}
		rewrite(t, path, good)
		if _, err := reopen(t, s); err != nil {
			t.Errorf("as it was: %v", err)
		}
	})
}

// Without its list of segments, raft-wal would begin a new log.
func TestLogWithoutItsListOfSegmentsIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 5)
		meta := filepath.Join(s.dir, "log", metadb.FileName)
		good := contents(t, meta)
		if err := os.Remove(meta); err != nil {
			t.Fatal(err)
		}
		if _, err := New(s.config()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("opened: %v", err)
		}
		rewrite(t, meta, good)
		if _, err := reopen(t, s); err != nil {
			t.Errorf("as it was: %v", err)
		}
	})
}

// A segment that was begun and never synced holds nothing, in whatever state a
// crash or a full disk has left it.
func TestSegmentThatWasNeverSyncedIsHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := rotated(t)
		names := segments(t, s)
		sealed, next := names[len(names)-2], names[len(names)-1]
		acked := filepath.Join(s.dir, "log", ackedFile)
		good, meta := contents(t, sealed), contents(t, filepath.Join(s.dir, "log", metadb.FileName))
		for _, size := range []int{-1, 0, 5, 5000, smallSegment} {
			rewrite(t, acked, []byte(filepath.Base(sealed)+"\n"))
			rewrite(t, sealed, good)
			rewrite(t, filepath.Join(s.dir, "log", metadb.FileName), meta)
			for _, name := range segments(t, s) {
				if name > sealed {
					os.Remove(name)
				}
			}
			if size >= 0 {
				rewrite(t, next, make([]byte, size))
			}
			if _, err := reopen(t, s); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
	})
}

// A crash between the last write into a segment and the note that it is full
// must not keep the server from ever writing again.
func TestSealedSegmentThatWasNotNotedIsHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := rotated(t)
		unnoteSeal(t, s)
		names := segments(t, s)
		whole := walSealedAt(t, names[len(names)-1])
		applied, err := reopen(t, s)
		if err != nil {
			t.Fatal(err)
		}
		if applied < whole {
			t.Errorf("applied %d, the segment reached to %d", applied, whole)
		}
	})
}

// The same with that last write torn: raft-wal drops it, and then must be able
// to write again.
func TestTornSealIsHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := rotated(t)
		unnoteSeal(t, s)
		names := segments(t, s)
		path := names[len(names)-1]
		b := contents(t, path)
		last, ok := walGood(b)
		if !ok || last.index == 0 {
			t.Fatal("not sealed")
		}
		for _, torn := range []int{last.commit, last.commit + 4, last.index + 2} {
			bad := slices.Clone(b)
			clear(bad[torn:])
			rewrite(t, path, bad)
			if _, err := reopen(t, s); err != nil {
				t.Errorf("torn at %d: %v", torn, err)
			}
			for _, name := range segments(t, s) {
				if name > path {
					os.Remove(name)
				}
			}
			unnoteSealTo(t, s, filepath.Base(path))
		}
	})
}

const smallSegment = 64 << 10

func smallSegments(_ *server, c *Config) { c.hooks.segmentSize = smallSegment }

// rotated starts one server with small segments, lets it fill some, and stops it.
func rotated(t *testing.T) *server {
	t.Helper()
	c := newCluster(t, 1, onDisk, smallSegments)
	c.keyspace("orders", 8, testTTL)
	big := openSession(1, "orders")
	big.Labels = map[string]string{"x": strings.Repeat("x", state.MaxLabelLen)}
	cmds := slices.Repeat([]state.Command{big}, 20) // the first opens it, the others find it
	for range 100 {
		c.do(cmds...)
		if names, _ := filepath.Glob(filepath.Join(c.servers[0].dir, "log", "*.wal")); len(names) > 2 {
			break
		}
	}
	s := c.servers[0]
	if err := s.halt(); err != nil {
		t.Fatal(err)
	}
	if len(segments(t, s)) < 3 {
		t.Fatal("no segment was filled")
	}
	return s
}

// unnoteSeal takes the newest segment away and makes the one before it look as
// in a crash before raft-wal noted that it is full.
func unnoteSeal(t *testing.T, s *server) {
	t.Helper()
	names := segments(t, s)
	if err := os.Remove(names[len(names)-1]); err != nil {
		t.Fatal(err)
	}
	unnoteSealTo(t, s, filepath.Base(names[len(names)-2]))
}

func unnoteSealTo(t *testing.T, s *server, name string) {
	t.Helper()
	dir := filepath.Join(s.dir, "log")
	var db metadb.BoltMetaDB
	st, err := db.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(st.Segments, func(si types.SegmentInfo) bool { return segment.FileName(si) == name })
	st.Segments = st.Segments[:i+1]
	last := &st.Segments[i]
	*last = types.SegmentInfo{
		ID: last.ID, BaseIndex: last.BaseIndex, MinIndex: last.MinIndex,
		SizeLimit: last.SizeLimit, Codec: last.Codec, CreateTime: last.CreateTime,
	}
	if err := errors.Join(db.CommitState(st), db.Close()); err != nil {
		t.Fatal(err)
	}
	rewrite(t, filepath.Join(dir, ackedFile), []byte(name+"\n"))
}

// walSealedAt returns the last index in a full segment.
func walSealedAt(t *testing.T, path string) uint64 {
	t.Helper()
	var base, id uint64
	if _, err := fmt.Sscanf(filepath.Base(path), "%d-%x.wal", &base, &id); err != nil {
		t.Fatal(err)
	}
	entries, index := walSealed(contents(t, path))
	if index == 0 {
		t.Fatalf("%s is not full", path)
	}
	return base + uint64(entries) - 1
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func rewrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A log that cannot begin its next file says why, instead of that this one is
// full.
func TestFullDiskIsNamedWhenASegmentCannotBeMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cause := errors.New("no room for another file")
		c := newCluster(t, 1, onDisk, smallSegments, lossy)
		defer c.stopAll()
		s := c.servers[0]
		c.leader()
		s.vfs.failCreates(cause)
		big := openSession(1, "orders")
		big.Labels = map[string]string{"x": strings.Repeat("x", state.MaxLabelLen)}
		cmds := slices.Repeat([]state.Command{big}, 20)
		for range 100 {
			if _, err := s.store.Propose(t.Context(), cmds...); err != nil {
				break
			}
		}
		<-s.done
		if !errors.Is(s.err, cause) || !errors.Is(s.err, ErrPoisoned) {
			t.Errorf("Run: %v", s.err)
		}
	})
}
