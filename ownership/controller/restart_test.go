package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// A rolling restart with the same ids inside the grace: nobody else gets any.
func TestRollingRestartWithinTheGraceMovesNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 64, func(x *state.Settings) { x.RestartGrace = 20 * time.Second })
		ids := make(map[string]state.SessionID)
		for i := range 5 {
			id := fmt.Sprintf("w%d", i)
			ids[id] = s.open(id, 0, "orders")
		}
		pass(time.Minute)
		owner := make(map[uint32]string)
		for id, session := range ids {
			for _, p := range s.held(session, ks) {
				owner[p] = id
			}
		}
		before := s.revision()
		for i := range 5 {
			id := fmt.Sprintf("w%d", i)
			had := s.held(ids[id], ks)
			s.must(&state.LeaveSession{Session: ids[id], Restart: true})
			pass(2 * time.Second)
			if r, _ := why(c, ks, had[0]); r.Code != CodeReserved || r.Worker != id {
				t.Errorf("reason is %+v, want reserved for %s", r, id)
			}
			ids[id] = s.open(id, 0, "orders")
			pass(10 * time.Millisecond)
			if got := s.held(ids[id], ks); !slices.Equal(got, had) {
				t.Errorf("%s came back to %d of its %d partitions", id, len(got), len(had))
			}
			pass(5 * time.Second)
		}
		third := 0
		for _, e := range s.events(before, state.KindGrant) {
			if e.Worker != owner[e.Partition] {
				third++
			}
		}
		if third > 0 {
			t.Errorf("%d grants to third parties", third)
		}
	})
}

func TestGraceThatPassesFreesTheSlot(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 64, func(x *state.Settings) { x.RestartGrace = 5 * time.Second })
		s.open("a", 0, "orders")
		id := s.open("b", 0, "orders")
		pass(time.Minute)
		s.must(&state.LeaveSession{Session: id, Restart: true})
		pass(4 * time.Second)
		if owned, _ := s.counts(ks); owned != 32 {
			t.Errorf("%d owned within the grace, want 32", owned)
		}
		pass(3 * time.Second)
		if owned, _ := s.counts(ks); owned != 64 {
			t.Errorf("%d owned after the grace, want 64", owned)
		}
	})
}

// Without a grace the slot moves at once and comes back at once, to the same
// id or to a newcomer in its zone.
func TestSlotIsGivenBackWithoutWaiting(t *testing.T) {
	for _, who := range []string{"c", "d"} {
		bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
			ks := s.keyspace("orders", 60, nil)
			s.open("a", 0, "orders")
			s.open("b", 0, "orders")
			id := s.open("c", 0, "orders")
			pass(time.Minute)
			had := s.held(id, ks)
			s.must(&state.LeaveSession{Session: id, Restart: true})
			pass(time.Second)
			if owned, _ := s.counts(ks); owned != 60 {
				t.Fatalf("%d of 60 owned after a leave", owned)
			}
			back := s.open(who, 0, "orders")
			pass(time.Second)
			got := s.held(back, ks)
			if len(got) < 18 {
				t.Errorf("%s holds %d a second after it came", who, len(got))
			}
			for _, p := range got {
				if !slices.Contains(had, p) {
					t.Errorf("%s got partition %d, which was not in the slot", who, p)
				}
			}
		})
	}
}

// O-16: killed and started again under the same id within the TTL, strict.
func TestRestartUnderTheSameIDInsideTheTTL(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 30, nil)
		s.open("a", 0, "orders")
		old := s.open("b", 0, "orders")
		pass(2 * time.Minute)
		had := s.held(old, ks)
		before := s.revision()
		f.setDead(old)
		pass(time.Second)
		now := s.open("b", 0, "orders")
		pass(5 * time.Second)
		if n := len(s.held(now, ks)); n > 0 {
			t.Errorf("new session got %d while its predecessor's leases last", n)
		}
		if r, _ := why(c, ks, had[0]); r.Code != CodeBlocked {
			t.Errorf("reason is %+v, want blocked", r)
		}
		pass(8 * time.Second)
		if got := s.held(now, ks); !slices.Equal(got, had) {
			t.Errorf("after the TTL it has %v, had %v", got, had)
		}
		for _, e := range s.events(before, state.KindGrant) {
			if e.Session != now {
				t.Errorf("partition %d went to %s", e.Partition, e.Worker)
			}
		}
	})
}
