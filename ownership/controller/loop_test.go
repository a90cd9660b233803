package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test in fake time over a store that leads.
func bubble(t *testing.T, g *testGossip, fn func(t *testing.T, s *testStore, c *Controller, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		var gossip Gossip
		if g != nil {
			gossip = g
		}
		c, f, stop := lead(t, s, gossip, nil)
		defer stop()
		fn(t, s, c, f)
	})
}

// pass lets fake time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestKeyspaceIsHandedOutEvenly(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 64, nil)
		synctest.Wait()
		if r, err := c.Why(ks, 3); err != nil || r.Code != CodeNoWorker {
			t.Errorf("reason is %q (%v), want no_worker", r.Code, err)
		}
		var ids []state.SessionID
		for i := range 4 {
			ids = append(ids, s.open(fmt.Sprintf("w%d", i), 0, "orders"))
		}
		pass(10 * time.Second)
		for _, id := range ids {
			if n := len(s.held(id, ks)); n < 14 || n > 17 {
				t.Errorf("session %d holds %d of 64", id, n)
			}
		}
		if r, err := c.Why(ks, 3); err != nil || r.Code != CodeNone {
			t.Errorf("reason is %q (%v), want none", r.Code, err)
		}
		if _, err := c.Why(ks, 64); state.ReasonOf(err) != state.ReasonNotFound {
			t.Errorf("partition out of range: %v", err)
		}
	})
}

func TestColdStartWaitsForWorkers(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 60, func(x *state.Settings) { x.InitialDelay = time.Second })
		pass(3 * time.Second) // no worker: no wait has begun
		for i := range 3 {
			s.open(fmt.Sprintf("w%d", i), 0, "orders")
			pass(600 * time.Millisecond)
			if owned, _ := s.counts(ks); owned != 0 {
				t.Fatalf("%d partitions granted %d workers early", owned, 2-i)
			}
		}
		if r, _ := c.Why(ks, 0); r.Code != CodeColdStart {
			t.Errorf("reason is %q, want cold_start", r.Code)
		}
		pass(1500 * time.Millisecond) // the clock of the log may be a second behind
		if owned, _ := s.counts(ks); owned != 60 {
			t.Errorf("%d of 60 partitions granted after the delay", owned)
		}
		for _, e := range s.events(0, state.KindGrant) {
			if e.Cause != state.CauseInitial {
				t.Fatalf("cause of a first grant is %v", e.Cause)
			}
		}
		if drains := s.events(0, state.KindDrain); len(drains) > 0 {
			t.Errorf("%d drains in a cold start", len(drains))
		}
	})
}

func TestColdStartEndsThoughWorkersKeepJoining(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 60, func(x *state.Settings) { x.InitialDelay = time.Second })
		pass(3 * time.Second)
		for i := range 12 {
			s.open(fmt.Sprintf("w%d", i), 0, "orders")
			pass(500 * time.Millisecond)
			owned, _ := s.counts(ks)
			if at := time.Duration(i+1) * 500 * time.Millisecond; at < coldMax && owned > 0 || at > coldMax+time.Second/2 && owned == 0 {
				t.Fatalf("after %v of joins %d are owned", at, owned)
			}
		}
	})
}

// O-22: one worker leaves, nobody else is interrupted, and it is quick.
func TestCleanLeaveMovesOnlyTheLeaversPartitions(t *testing.T) {
	for _, size := range []struct{ partitions, workers int }{{3, 3}, {30, 10}} {
		bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
			ks := s.keyspace("orders", uint32(size.partitions), nil)
			var ids []state.SessionID
			for i := range size.workers {
				ids = append(ids, s.open(fmt.Sprintf("w%d", i), 0, "orders"))
			}
			pass(time.Minute)
			had := s.held(ids[1], ks)
			before := s.revision()
			s.must(&state.LeaveSession{Session: ids[1]})
			pass(50 * time.Millisecond)
			if owned, draining := s.counts(ks); owned != size.partitions || draining != 0 {
				t.Errorf("50 ms after the leave: %d owned, %d draining", owned, draining)
			}
			pass(time.Minute)
			grants := s.events(before, state.KindGrant)
			if len(grants) != len(had) {
				t.Errorf("%d grants for %d partitions of the leaver", len(grants), len(had))
			}
			for _, e := range s.events(before, state.KindRelease, state.KindDrain, state.KindRevoke, state.KindExpire) {
				if e.Session != ids[1] {
					t.Errorf("%+v concerns another worker than the leaver", e)
				}
			}
			for _, e := range grants {
				if e.Cause != state.CauseLeave {
					t.Errorf("cause of a grant is %v, want leave", e.Cause)
				}
			}
		})
	}
}

func TestJoinWaitsForQuietAndMovesAFewAtATime(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		const partitions = 90
		ks := s.keyspace("orders", partitions, nil)
		s.open("a", 0, "orders")
		s.open("b", 0, "orders")
		pass(10 * time.Second)
		f.work = 100 * time.Millisecond
		before := s.revision()
		id := s.open("c", 0, "orders")
		pass(2900 * time.Millisecond)
		if n := len(s.held(id, ks)); n > 0 {
			t.Errorf("newcomer holds %d before it has been quiet", n)
		}
		for range 100 {
			pass(50 * time.Millisecond)
			if _, draining := s.counts(ks); draining > perReceiver || draining > inFlight(partitions) {
				t.Fatalf("%d moves towards one receiver at once", draining)
			}
		}
		if n := len(s.held(id, ks)); n != 30 {
			t.Errorf("newcomer holds %d in the end, want 30", n)
		}
		for _, e := range s.events(before, state.KindGrant) {
			if e.Session != id || e.Cause != state.CauseJoin {
				t.Errorf("grant to session %d (%v)", e.Session, e.Cause)
			}
		}
	})
}

func TestStrictCrashWaitsForTheSessionAndMovesOnlyItsPartitions(t *testing.T) {
	g := newTestGossip()
	bubble(t, g, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 60, nil)
		s.open("a", 0, "orders")
		s.open("b", 0, "orders")
		victim := s.open("c", 0, "orders")
		pass(2 * time.Minute)
		had := s.held(victim, ks)
		before := s.revision()
		f.setDead(victim)
		g.set("c", Dead, false)
		c.StreamBroken(victim)
		c.Poke()
		pass(8900 * time.Millisecond)
		if got := s.held(victim, ks); !slices.Equal(got, had) {
			t.Errorf("strict lease ended before its session: %d of %d left", len(got), len(had))
		}
		if r, _ := c.Why(ks, had[0]); r.Code != CodeBlocked || r.Worker != "c" {
			t.Errorf("reason is %+v, want blocked by c", r)
		}
		pass(2200 * time.Millisecond)
		if owned, _ := s.counts(ks); owned != 60 {
			t.Errorf("%d of 60 owned after the session expired", owned)
		}
		grants := s.events(before, state.KindGrant)
		if len(grants) != len(had) {
			t.Errorf("%d grants, want %d", len(grants), len(had))
		}
		for _, e := range grants {
			if e.Cause != state.CauseExpired {
				t.Errorf("cause %v, want expired", e.Cause)
			}
		}
	})
}

func fenced(x *state.Settings) { x.Takeover = state.Fenced }

func TestFencedCrashIsTakenOverWithinASecond(t *testing.T) {
	g := newTestGossip()
	bubble(t, g, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 60, fenced)
		s.open("a", 0, "orders")
		s.open("b", 0, "orders")
		victim := s.open("c", 0, "orders")
		pass(2 * time.Minute)
		had := s.held(victim, ks)
		before := s.revision()
		f.setDead(victim)
		g.set("c", Alive, false) // the table does not know yet, probes find out
		c.StreamBroken(victim)
		pass(190 * time.Millisecond)
		if n := len(s.held(victim, ks)); n != len(had) {
			t.Errorf("taken over before the stream could be resumed")
		}
		pass(60 * time.Millisecond)
		if owned, _ := s.counts(ks); owned != 60 || len(s.held(victim, ks)) > 0 {
			t.Errorf("250 ms after the crash: %d owned, the dead worker holds %d", owned, len(s.held(victim, ks)))
		}
		revokes, grants := s.events(before, state.KindRevoke), s.events(before, state.KindGrant)
		if len(revokes) != len(had) || len(grants) != len(had) {
			t.Fatalf("%d revokes, %d grants for %d partitions", len(revokes), len(grants), len(had))
		}
		for i := range grants {
			if grants[i].Index != revokes[i].Index {
				t.Errorf("revoke and grant are not in one entry")
			}
			if grants[i].Cause != state.CauseCrash || grants[i].Session == victim {
				t.Errorf("grant %+v", grants[i])
			}
		}
		// Until its session ends or is heard again, it gets nothing.
		pass(5 * time.Second)
		if n := len(s.held(victim, ks)); n > 0 {
			t.Errorf("a worker known dead was granted %d", n)
		}
	})
}

func TestFencedTakeoverNeedsTwoSigns(t *testing.T) {
	for name, do := range map[string]func(g *testGossip, c *Controller, id state.SessionID){
		"stream resumed": func(g *testGossip, c *Controller, id state.SessionID) {
			g.set("c", Dead, false)
			c.StreamBroken(id)
			pass(150 * time.Millisecond)
			c.StreamAttached(id)
		},
		"probe answered": func(g *testGossip, c *Controller, id state.SessionID) {
			g.set("c", Alive, true)
			c.StreamBroken(id)
		},
		"gossip alone": func(g *testGossip, c *Controller, id state.SessionID) {
			g.set("c", Dead, false)
			c.Poke()
		},
		"gossip off": func(g *testGossip, c *Controller, id state.SessionID) {
			g.set("c", Unknown, false)
			c.StreamBroken(id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTestGossip()
			bubble(t, g, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
				ks := s.keyspace("orders", 60, fenced)
				s.open("a", 0, "orders")
				id := s.open("c", 0, "orders")
				pass(2 * time.Minute)
				had := len(s.held(id, ks))
				do(g, c, id)
				pass(time.Minute)
				if n := len(s.held(id, ks)); n != had || had == 0 {
					t.Errorf("one sign took %d of %d leases", had-n, had)
				}
			})
		})
	}
}

func TestFencedTakeoverOnSilenceWithoutABrokenStream(t *testing.T) {
	g := newTestGossip()
	bubble(t, g, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 60, fenced)
		s.open("a", 0, "orders")
		victim := s.open("c", 0, "orders")
		pass(2 * time.Minute)
		f.setDead(victim) // the machine is gone: nothing closes the stream
		pass(2 * time.Second)
		g.set("c", Dead, false)
		c.Poke()
		pass(2 * time.Second)
		if len(s.held(victim, ks)) == 0 {
			t.Errorf("taken over before two keep-alives were missing")
		}
		pass(3 * time.Second)
		if n := len(s.held(victim, ks)); n > 0 {
			t.Errorf("silent for 7 s of 10 and dead in gossip, still holds %d", n)
		}
	})
}

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
			if r, _ := c.Why(ks, had[0]); r.Code != CodeReserved || r.Worker != id {
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

// O-25: the receiver dies at each point of a handoff.
func TestReceiverDiesInTheMiddleOfAHandoff(t *testing.T) {
	type point struct {
		name  string
		setup func(x *state.Settings)
		kill  func(s *testStore, c *Controller, f *fleet, g *testGossip, from, to state.SessionID)
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
				pass(20 * time.Second)
				if n := len(s.held(d, ks)); n == 0 {
					t.Errorf("a newcomer got nothing while handoffs are stuck")
				}
			})
		})
	}
}

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
		r, _ := c.Why(ks, 3)
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

// A handler that returns at once, over and over, does not turn the log into
// a treadmill.
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

func TestProposalsThatFailAreMadeAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		s.fail.Store(true)
		ks := s.keyspace("orders", 8, nil)
		s.open("a", 0, "orders")
		pass(5 * time.Second)
		s.fail.Store(false)
		pass(1200 * time.Millisecond)
		if owned, _ := s.counts(ks); owned != 8 {
			t.Errorf("%d of 8 owned after proposals work again", owned)
		}
	})
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
		if r, _ := c.Why(ks, had[0]); r.Code != CodeBlocked {
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

func TestCapacityHoldsOverSeveralKeyspaces(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		one, two := s.keyspace("one", 30, nil), s.keyspace("two", 30, nil)
		a := s.open("a", 20, "one", "two")
		b := s.open("b", 25, "one", "two")
		pass(time.Minute)
		na, nb := len(s.held(a, one))+len(s.held(a, two)), len(s.held(b, one))+len(s.held(b, two))
		if na != 20 || nb != 25 {
			t.Errorf("a holds %d of 20, b %d of 25", na, nb)
		}
		before := s.revision()
		pass(5 * time.Minute)
		if n := len(s.events(before, state.KindGrant, state.KindDrain)); n > 0 {
			t.Errorf("%d moves in 5 minutes of peace", n)
		}
		found := 0
		for _, ks := range []state.KeyspaceID{one, two} {
			for p := range uint32(30) {
				if r, _ := c.Why(ks, p); r.Code == CodeCapacity {
					found++
				}
			}
		}
		if found != 15 {
			t.Errorf("%d partitions say capacity, want 15", found)
		}
	})
}

// O-51, the controller's part: leadership that flaps leaves nothing behind.
func TestRapidLeadershipFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		ks := s.keyspace("orders", 64, nil)
		s.open("a", 0, "orders")
		c, err := New(Config{Store: s, Clock: monotonic{time.Now()}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Why(ks, 0); !errors.Is(err, ErrNotLeading) {
			t.Errorf("Why of a follower: %v", err)
		}
		if err := c.MoveTo(context.Background(), ks, 0, "a"); !errors.Is(err, ErrNotLeading) {
			t.Errorf("MoveTo of a follower: %v", err)
		}
		lost := errors.New("lost leadership")
		for range 50 {
			ctx, cancel := context.WithCancelCause(context.Background())
			done := make(chan error)
			go func() { done <- c.Lead(ctx, s) }()
			synctest.Wait()
			if err := c.Lead(ctx, s); err == nil {
				t.Error("led twice at once")
			}
			c.StreamBroken(1)
			cancel(lost)
			if err := <-done; !errors.Is(err, lost) {
				t.Errorf("Lead ended with %v", err)
			}
		}
		if owned, _ := s.counts(ks); owned != 64 {
			t.Errorf("%d of 64 owned", owned)
		}
		if n := len(s.events(0, state.KindGrant)); n != 64 {
			t.Errorf("%d grants for 64 partitions: the flaps moved something", n)
		}
	})
}

func TestDeletedKeyspaceIsForgotten(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 8, nil)
		s.open("a", 0, "orders")
		pass(time.Second)
		s.must(&state.DeleteKeyspace{Name: "orders"})
		pass(time.Second)
		if _, err := c.Why(ks, 0); state.ReasonOf(err) != state.ReasonNotFound {
			t.Errorf("Why of a deleted keyspace: %v", err)
		}
		if err := c.MoveTo(context.Background(), ks, 0, "a"); state.ReasonOf(err) != state.ReasonNotFound {
			t.Errorf("MoveTo in a deleted keyspace: %v", err)
		}
	})
}
