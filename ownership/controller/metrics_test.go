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
		if m.imbalance != 1 {
			t.Errorf("imbalance is %v with one worker left", m.imbalance)
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
