package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

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
		if r, _ := why(c, ks, had[0]); r.Code != CodeBlocked || r.Worker != "c" {
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
