package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestPoisonIsTriedAloneAndQuarantined(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 12, nil)
		for i := range 4 {
			s.open(fmt.Sprintf("w%d", i), 0, "orders")
		}
		pass(10 * time.Second)
		fails := 0
		fail := func() {
			for _, p := range []uint32{3, 4} {
				s.View(func(st *state.State) {
					k, _ := st.Keyspace(ks)
					l := k.Lease(p)
					if l.Session == 0 || p == 4 && fails > 6 {
						return
					}
					fails++
					go s.apply(&state.Release{Session: l.Session, Cause: state.CauseFailed, Error: "boom",
						Items: []state.LeaseRef{{Keyspace: ks, Partition: p, Token: l.Token}}})
				})
			}
		}
		most := 0
		for range 600 {
			fail()
			pass(100 * time.Millisecond)
			owned, _ := s.counts(ks)
			most = max(most, 12-owned)
		}
		if most > 2 {
			t.Errorf("%d partitions were unowned at once, two fail", most)
		}
		r, _ := why(c, ks, 3)
		if r.Code != CodeQuarantined {
			t.Errorf("reason is %+v, want quarantined", r)
		}
		workers := make(map[string]bool)
		for _, e := range s.events(0, state.KindGrant) {
			if e.Partition == 3 {
				workers[e.Worker] = true
			}
		}
		if len(workers) < 3 {
			t.Errorf("tried on %d distinct workers, want 3", len(workers))
		}
		if fails > 20 {
			t.Errorf("failed %d times in a minute", fails)
		}
		before := s.revision()
		s.must(&state.Retry{Keyspace: ks, Partition: 3})
		pass(50 * time.Millisecond)
		if n := len(s.events(before, state.KindGrant)); n == 0 {
			t.Errorf("not granted after partitions retry")
		}
	})
}

// A handler that returns at once, over and over, does not turn the log into a
// treadmill.
func TestPartitionGivenBackOverAndOverIsSlowedDown(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 4, nil)
		id := s.open("a", 0, "orders")
		for range 3000 {
			pass(10 * time.Millisecond)
			s.View(func(st *state.State) {
				k, _ := st.Keyspace(ks)
				if l := k.Lease(2); l.Session != 0 {
					go s.apply(&state.Release{Session: id, Cause: state.CauseYield,
						Items: []state.LeaseRef{{Keyspace: ks, Partition: 2, Token: l.Token}}})
				}
			})
		}
		if n := len(s.events(0, state.KindGrant)); n > 20 {
			t.Errorf("%d grants in 30 s", n)
		}
		if owned, _ := s.counts(ks); owned < 3 {
			t.Errorf("%d owned, want the other 3", owned)
		}
	})
}
