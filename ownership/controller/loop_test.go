package controller

import (
	"context"
	"errors"
	"fmt"
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
		if r, err := why(c, ks, 3); err != nil || r.Code != CodeNoWorker {
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
		if r, err := why(c, ks, 3); err != nil || r.Code != CodeNone {
			t.Errorf("reason is %q (%v), want none", r.Code, err)
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
		if r, _ := why(c, ks, 0); r.Code != CodeColdStart {
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

// An outage ended every context, and the workers are all still there: nobody is
// waited for, though one of them is drained at that moment.
func TestNoColdStartForWorkersThatWereThere(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *testStore, c *Controller, f *fleet) {
		ks := s.keyspace("orders", 60, func(x *state.Settings) { x.InitialDelay = 5 * time.Second })
		var ids []state.SessionID
		for i := range 3 {
			ids = append(ids, s.open(fmt.Sprintf("w%d", i), 0, "orders"))
		}
		pass(time.Minute)
		if owned, _ := s.counts(ks); owned != 60 {
			t.Fatalf("%d of 60 partitions are owned", owned)
		}
		lost := []state.Command{&state.BarWorker{Worker: "w2", Drained: true}}
		for _, id := range ids {
			r := &state.Release{Session: id, Cause: state.CauseEnded}
			s.View(func(st *state.State) {
				k, _ := st.Keyspace(ks)
				for p := range k.Partitions {
					if l := k.Lease(p); l.Session == id {
						r.Items = append(r.Items, state.LeaseRef{Keyspace: ks, Partition: p, Token: l.Token})
					}
				}
			})
			lost = append(lost, r)
		}
		s.must(lost...)
		pass(time.Second)
		if owned, _ := s.counts(ks); owned != 60 {
			r, _ := why(c, ks, 0)
			t.Errorf("%d of 60 partitions are owned again after a second: %v", owned, r)
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
		// Both are there before anything is handed out: what had to be evened out
		// between them would be in its cool-down.
		ks := s.keyspace("orders", partitions, func(x *state.Settings) { x.InitialDelay = time.Second })
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
				if r, _ := why(c, ks, p); r.Code == CodeCapacity {
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
		if _, err := why(c, ks, 0); !errors.Is(err, ErrNotLeading) {
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
		if plan, err := c.Planned(ks); err != nil || plan != nil {
			t.Errorf("the plan of a deleted keyspace: %v, %v", plan, err)
		}
		if err := c.MoveTo(context.Background(), ks, 0, "a"); state.ReasonOf(err) != state.ReasonNotFound {
			t.Errorf("MoveTo in a deleted keyspace: %v", err)
		}
	})
}
