package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// O-25: the receiver dies at each point of a handoff.
func TestReceiverDiesInTheMiddleOfAHandoff(t *testing.T) {
	type point struct {
		name string
		kill func(s *testStore, c *Controller, f *fleet, g *testGossip, from, to state.SessionID)
	}
	for _, mode := range []state.Takeover{state.Strict, state.Fenced} {
		for _, p := range []point{
			{name: "after plan", kill: func(s *testStore, c *Controller, f *fleet, g *testGossip, from, to state.SessionID) {
				f.setDeaf(from) // the owner takes its time
				s.must(&state.LeaveSession{Session: from})
				pass(20 * time.Millisecond)
				f.setDead(to)
				g.set("b", Dead, false)
				c.StreamBroken(to)
				pass(500 * time.Millisecond)
				f.mu.Lock()
				f.deaf[from] = false
				f.mu.Unlock()
				s.must(&state.RaiseToken{Token: 1}) // something happens: the fleet looks
			}},
			{name: "after release", kill: func(s *testStore, c *Controller, f *fleet, g *testGossip, from, to state.SessionID) {
				s.must(&state.LeaveSession{Session: from})
				f.setDead(to)
				g.set("b", Dead, false)
				c.StreamBroken(to)
			}},
			{name: "after grant", kill: func(s *testStore, c *Controller, f *fleet, g *testGossip, from, to state.SessionID) {
				s.must(&state.LeaveSession{Session: from})
				pass(30 * time.Millisecond)
				f.setDead(to)
				g.set("b", Dead, false)
				c.StreamBroken(to)
			}},
		} {
			t.Run(fmt.Sprintf("%v/%s", mode, p.name), func(t *testing.T) {
				g := newTestGossip()
				bubble(t, g, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
					ks := s.keyspace("orders", 30, func(x *state.Settings) { x.Takeover = mode })
					a := s.open("a", 0, "orders")
					b := s.open("b", 0, "orders")
					s.open("c", 0, "orders")
					pass(2 * time.Minute)
					p.kill(s, c, f, g, a, b)
					pass(13 * time.Second) // TTL, a tick and a bound
					if owned, draining := s.counts(ks); owned != 30 || draining != 0 {
						t.Errorf("one TTL later %d of 30 are owned, %d draining", owned, draining)
					}
					if n := len(c.Stuck()); n > 0 {
						t.Errorf("%d handoffs are stuck", n)
					}
				})
			})
		}
	}
}

// O-23 and DESIGN §7: a handler that does not return.
func TestHandlerThatNeverReturns(t *testing.T) {
	for _, mode := range []state.Takeover{state.Strict, state.Fenced} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
				ks := s.keyspace("orders", 30, func(x *state.Settings) { x.Takeover, x.HandoffTimeout = mode, 10*time.Second })
				a := s.open("a", 0, "orders")
				s.open("b", 0, "orders")
				pass(time.Minute)
				had := len(s.held(a, ks))
				f.setDeaf(a)
				s.must(&state.BarWorker{Worker: "a", Drained: true})
				pass(9500 * time.Millisecond)
				if n := len(s.held(a, ks)); n != had {
					t.Errorf("%d of %d held before the timeout", n, had)
				}
				pass(2 * time.Second)
				stuck := c.Stuck()
				if mode == state.Fenced {
					if n := len(s.held(a, ks)); n > 0 || len(stuck) > 0 {
						t.Errorf("fenced: %d held, %d stuck after the timeout", n, len(stuck))
					}
					return
				}
				if n := len(s.held(a, ks)); n != had || len(stuck) != had {
					t.Errorf("strict: %d of %d held, %d stuck after the timeout", n, had, len(stuck))
				}
				if len(stuck) > 0 && (stuck[0].Worker != "a" || stuck[0].Overdue < time.Second) {
					t.Errorf("stuck: %+v", stuck[0])
				}
				// Nobody else waits for it: another worker joins and is served.
				d := s.open("d", 0, "orders")
				for waited := 0; len(s.held(d, ks)) == 0; waited++ {
					if waited == 60 {
						t.Fatal("a newcomer got nothing in a minute while handoffs are stuck")
					}
					pass(time.Second)
				}
			})
		})
	}
}

// O-28, the controller's part: an operator's drain waits for nothing, and bars
// until it is lifted.
func TestOperatorDrainNeverWaits(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 200, nil)
		a := s.open("a", 0, "orders")
		s.open("b", 0, "orders")
		pass(time.Minute)
		s.must(&state.BarWorker{Worker: "a", Drained: true})
		pass(20 * time.Millisecond)
		if n := len(s.held(a, ks)); n > 0 {
			t.Errorf("drained worker holds %d after 20 ms", n)
		}
		pass(time.Minute)
		if n := len(s.held(a, ks)); n > 0 {
			t.Errorf("drained worker was granted %d", n)
		}
		s.must(&state.BarWorker{Worker: "a"})
		pass(time.Minute)
		if n := len(s.held(a, ks)); n != 100 {
			t.Errorf("undrained worker holds %d, want 100", n)
		}
	})
}

func TestMoveTo(t *testing.T) {
	ctx := context.Background()
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 30, nil)
		a := s.open("a", 10, "orders")
		b := s.open("b", 0, "orders")
		s.keyspace("other", 1, nil)
		s.open("stranger", 0, "other")
		pass(time.Minute)
		p := s.held(b, ks)[0]
		for _, bad := range []struct {
			ks   state.KeyspaceID
			p    uint32
			to   string
			want state.Reason
		}{
			{99, 0, "a", state.ReasonNotFound},
			{ks, 30, "a", state.ReasonNotFound},
			{ks, p, "nobody", state.ReasonNotFound},
			{ks, p, "stranger", state.ReasonConflict},
			{ks, p, "a", state.ReasonConflict}, // full
		} {
			if err := c.MoveTo(ctx, bad.ks, bad.p, bad.to); state.ReasonOf(err) != bad.want {
				t.Errorf("move %d/%d to %s: %v, want %s", bad.ks, bad.p, bad.to, err, bad.want)
			}
		}
		q := s.held(a, ks)[0]
		if err := c.MoveTo(ctx, ks, q, "a"); err != nil {
			t.Errorf("move to where it is: %v", err)
		}
		if err := c.MoveTo(ctx, ks, q, "b"); err != nil {
			t.Fatal(err)
		}
		pass(50 * time.Millisecond)
		if !slices.Contains(s.held(b, ks), q) {
			t.Errorf("partition %d has not moved to b", q)
		}
		pass(time.Minute)
		if !slices.Contains(s.held(b, ks), q) {
			t.Errorf("partition %d was moved back", q)
		}
	})
}
