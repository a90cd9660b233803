package state

import (
	"io"
	"iter"
	"slices"
	"sync"
	"testing"
)

func drainSeq[T any](seq iter.Seq[T]) {
	for range seq {
	}
}

// TestReadersAndSnapshotsShareTheState: everything that looks must leave the
// state alone, since readers and the snapshot hold a read lock together. The
// race detector is the judge.
func TestReadersAndSnapshotsShareTheState(t *testing.T) {
	s := keyedState(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for k := range s.Keyspaces() {
				for p := range k.Partitions {
					k.Lease(p)
					k.Previous(p)
					k.Move(p)
					k.Suspect(p)
				}
				drainSeq(k.Moves())
				drainSeq(k.Slots())
				drainSeq(k.Suspects())
				for x := range s.Sessions() {
					if n := len(slices.Collect(s.Held(x.ID, k.ID))); n != s.HeldCount(x.ID, k.ID) {
						t.Errorf("session %d: %d held, %d counted", x.ID, n, s.HeldCount(x.ID, k.ID))
					}
				}
			}
			drainSeq(s.Workers())
			s.Servers()
			s.Alarms()
			drainSeq(s.Keys().Keys())
			for x := range s.Sessions() {
				s.SessionKeys(x.ID)
			}
			if _, err := s.Events(0, 1000, nil); err != nil {
				t.Error(err)
			}
			if err := s.Snapshot().Write(io.Discard); err != nil {
				t.Error(err)
			}
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
