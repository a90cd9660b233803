package controller

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// tally is a Metrics that remembers.
type tally struct {
	mu        sync.Mutex
	moved     map[state.Cause]int
	takeovers map[state.Cause][]time.Duration
	handoffs  map[state.Cause][]time.Duration
	drains    []time.Duration
	refused   int
	planned   int
	stuck     int
	imbalance float64
}

func newTally() *tally {
	return &tally{
		moved:     make(map[state.Cause]int),
		takeovers: make(map[state.Cause][]time.Duration),
		handoffs:  make(map[state.Cause][]time.Duration),
	}
}

func (m *tally) do(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
}

func (m *tally) Moved(_ string, c state.Cause, n int) { m.do(func() { m.moved[c] += n }) }
func (m *tally) Takeover(_ string, c state.Cause, d time.Duration) {
	m.do(func() { m.takeovers[c] = append(m.takeovers[c], d) })
}
func (m *tally) Handoff(_ string, c state.Cause, d time.Duration) {
	m.do(func() { m.handoffs[c] = append(m.handoffs[c], d) })
}
func (m *tally) Drained(_ string, d time.Duration) {
	m.do(func() { m.drains = append(m.drains, d) })
}
func (m *tally) Refused(_ string, n int)       { m.do(func() { m.refused += n }) }
func (m *tally) Planned(_ string, n int)       { m.do(func() { m.planned = n }) }
func (m *tally) Imbalance(_ string, r float64) { m.do(func() { m.imbalance = r }) }
func (m *tally) Stuck(_ string, n int)         { m.do(func() { m.stuck = n }) }

func TestMetricsTellWhatMovedAndHowLongItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, m := newTestStore(t), newTestGossip(), newTally()
		c, f, stop := lead(t, s, g, m)
		defer stop()
		s.keyspace("orders", 60, fenced)
		a := s.open("a", 0, "orders")
		s.open("b", 0, "orders")
		victim := s.open("c", 0, "orders")
		pass(2 * time.Minute)
		if m.moved[state.CauseInitial] != 60 {
			t.Errorf("%d first grants counted, want 60", m.moved[state.CauseInitial])
		}
		f.setDead(victim)
		g.set("c", Alive, false)
		c.StreamBroken(victim)
		pass(time.Second)
		crash := m.takeovers[state.CauseCrash]
		if len(crash) == 0 || len(crash) != m.moved[state.CauseCrash] {
			t.Errorf("%d takeovers timed, %d counted", len(crash), m.moved[state.CauseCrash])
		}
		for _, d := range crash {
			if d < resumeFor || d > 300*time.Millisecond {
				t.Errorf("a takeover took %v from the first sign", d)
			}
		}
		s.must(&state.LeaveSession{Session: a})
		pass(time.Second)
		leave := m.handoffs[state.CauseLeave]
		if len(leave) == 0 || len(leave) != m.moved[state.CauseLeave] {
			t.Errorf("%d handoffs timed, %d counted", len(leave), m.moved[state.CauseLeave])
		}
		for _, d := range leave {
			if d < f.work || d > 5*f.work {
				t.Errorf("a handoff took %v, the handler %v", d, f.work)
			}
		}
		if len(m.drains) < len(leave) {
			t.Errorf("%d drains timed for %d handoffs", len(m.drains), len(leave))
		}
		for _, d := range m.drains {
			if d < f.work || d > 5*f.work {
				t.Errorf("a drain took %v, the handler %v", d, f.work)
			}
		}
		if m.imbalance != 1 {
			t.Errorf("imbalance is %v with one worker left", m.imbalance)
		}
	})
}

// An evicted worker gives back what it had as ended: it was the eviction.
func TestMovesOfAnEvictedWorkerAreEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newTestStore(t), newTally()
		_, _, stop := lead(t, s, nil, m)
		defer stop()
		ks := s.keyspace("orders", 12, nil)
		s.open("a", 0, "orders")
		evicted := s.open("b", 0, "orders")
		pass(time.Minute)
		had := s.held(evicted, ks)
		r := &state.Release{Session: evicted, Cause: state.CauseEnded}
		s.View(func(st *state.State) {
			k, _ := st.Keyspace(ks)
			for _, p := range had {
				r.Items = append(r.Items, state.LeaseRef{Keyspace: ks, Partition: p, Token: k.Lease(p).Token})
			}
		})
		s.must(&state.Evict{Worker: "b"})
		pass(100 * time.Millisecond)
		s.must(r)
		pass(time.Second)
		if owned, _ := s.counts(ks); owned != 12 || len(had) == 0 || m.moved[state.CauseEvicted] != len(had) || m.moved[state.CauseEnded] != 0 {
			t.Errorf("%d of 12 owned; %d were evicted, and %d moves counted as that, %d as ended",
				owned, len(had), m.moved[state.CauseEvicted], m.moved[state.CauseEnded])
		}
	})
}

// A worker that was thought dead and is not: it is served again.
func TestWorkerThoughtDeadThatRenewsIsServedAgain(t *testing.T) {
	g := newTestGossip()
	bubble(t, g, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 60, fenced)
		s.open("a", 0, "orders")
		id := s.open("b", 0, "orders")
		pass(2 * time.Minute)
		g.set("b", Dead, false) // cut off from gossip and from this server, not from another
		c.StreamBroken(id)
		pass(500 * time.Millisecond)
		if n := len(s.held(id, ks)); n > 0 {
			t.Fatalf("not taken over, holds %d", n)
		}
		pass(time.Minute)
		if n := len(s.held(id, ks)); n != 30 {
			t.Errorf("holds %d of 60 a minute later; its session has lived on", n)
		}
	})
}
