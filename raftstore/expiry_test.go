package raftstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// renewOnce renews at the leader and returns when that was acknowledged.
func (c *cluster) renewOnce(id state.SessionID) time.Time {
	c.t.Helper()
	if _, err := c.leader().store.KeepAlive(context.Background(), id); err != nil {
		c.t.Fatal(err)
	}
	return time.Now()
}

// gone waits until a session has expired and returns when.
func (c *cluster) gone(id state.SessionID, limit time.Duration) time.Time {
	c.t.Helper()
	c.within(limit, "expiry", func() bool { return !c.alive(id) })
	return time.Now()
}

func TestO01ExpiryNeverEarlyAndOnTimeWithoutLeaderChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		c.keyspace("orders", 8, testTTL)
		// A second session keeps the clock busy in one round and is gone in the next.
		for round := range 4 {
			id := state.SessionID(1 + round)
			c.session(id, "orders")
			time.Sleep(time.Duration(round) * 777 * time.Millisecond)
			last := c.renewOnce(id)
			took := c.gone(id, 30*time.Second).Sub(last)
			if took < testTTL-25*time.Millisecond || took > testTTL+150*time.Millisecond {
				t.Errorf("round %d: gone %v after the last renewal, want %v to %v", round, took, testTTL, testTTL+150*time.Millisecond)
			}
		}
		c.check()
	})
}

func TestO01SessionOpenedAfterALongSilenceHasItsWholeTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		c.keyspace("orders", 8, testTTL)
		time.Sleep(2 * time.Minute) // no sessions, no ticks
		sent := time.Now()
		c.session(1, "orders")
		if took := c.gone(1, 30*time.Second).Sub(sent); took < testTTL || took > testTTL+150*time.Millisecond {
			t.Errorf("gone %v after it was opened, want %v", took, testTTL)
		}
	})
}

func TestO01ExpiryWindowAcrossALeaderChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		c.keyspace("orders", 8, testTTL)
		c.session(1, "orders")
		last := c.renewOnce(1)
		time.Sleep(6 * time.Second)
		old := c.leader()
		old.crash()
		c.leader()
		took := c.gone(1, 30*time.Second).Sub(last)
		// One tick and one election are lost at most.
		if bound := testTTL + 3*time.Second; took < testTTL || took > bound {
			t.Errorf("gone %v after the last renewal, want %v to %v", took, testTTL, bound)
		}
		old.start()
		c.within(10*time.Second, "expiry on the server that was down", func() (ok bool) {
			old.store.View(func(st *state.State) { _, ok = st.Session(1) })
			return !ok
		})
	})
}

func TestO02AllServersRestartedUnderLiveWorkers(t *testing.T) {
	for _, outage := range []time.Duration{3 * time.Second, 2 * testTTL} {
		t.Run(outage.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3, onDisk)
				defer c.stopAll()
				ks := c.keyspace("orders", 64, testTTL)
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				var lost atomic.Int32
				for id := state.SessionID(1); id <= 5; id++ {
					c.session(id, "orders")
					c.renew(ctx, &wg, id, testTTL/4, func(err error) { lost.Add(1); t.Errorf("session %d: %v", id, err) })
				}
				before := c.grantAll(ks, 64, 5)
				time.Sleep(5 * time.Second)
				for _, s := range c.servers {
					c.net.isolate(s.addr, true)
				}
				for _, s := range c.servers {
					s.crash()
				}
				time.Sleep(outage)
				for _, s := range c.servers {
					s.start()
				}
				c.leader()
				time.Sleep(2 * testTTL)
				if after := c.tokens(ks); !slices.Equal(before, after) {
					t.Errorf("tokens changed: %v, then %v", before, after)
				}
				if n := lost.Load(); n > 0 {
					t.Errorf("%d sessions lost", n)
				}
				next := c.do(&state.CreateKeyspace{Name: "next", Partitions: 1, Settings: state.Settings{TTL: testTTL, Takeover: state.Strict, HandoffTimeout: time.Second}})
				c.do(&state.JoinKeyspace{Session: 1, Keyspace: "next"})
				rs := c.do(&state.Grant{Term: c.leader().store.Term(), Keyspace: next[0].Keyspace.ID, Items: []state.GrantItem{{Session: 1}}})
				if rs[0].Tokens[0] <= slices.Max(before) {
					t.Errorf("token %d after the restart is not above %d", rs[0].Tokens[0], slices.Max(before))
				}
				c.check()
			})
		})
	}
}

// grantAll gives p partitions to sessions 1…n in turn.
func (c *cluster) grantAll(ks state.KeyspaceID, p, n int) []state.Token {
	c.t.Helper()
	var items []state.GrantItem
	for i := range p {
		items = append(items, state.GrantItem{Partition: uint32(i), Session: state.SessionID(1 + i%n)})
	}
	return c.do(&state.Grant{Term: c.leader().store.Term(), Keyspace: ks, Items: items})[0].Tokens
}

// tokens reads the tokens of all leases that are held.
func (c *cluster) tokens(ks state.KeyspaceID) (tokens []state.Token) {
	c.t.Helper()
	c.leader().store.View(func(st *state.State) {
		k, _ := st.Keyspace(ks)
		for p := range k.Partitions {
			if l := k.Lease(p); l.Session != 0 {
				tokens = append(tokens, l.Token)
			}
		}
	})
	return tokens
}

func TestO06FrozenLeaderExpiresNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const ttl = 4 * time.Second
		c := newCluster(t, 3, onDisk, lossy, func(_ *server, c *Config) {
			c.HangBound, c.HangExit = time.Hour, 2*time.Hour // a frozen process watches nothing
		})
		defer c.stopAll()
		ks := c.keyspace("orders", 10, ttl)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for id := state.SessionID(1); id <= 10; id++ {
			c.session(id, "orders")
			c.renew(ctx, &wg, id, ttl/4, func(err error) { t.Errorf("session %d: %v", id, err) })
		}
		before := c.grantAll(ks, 10, 10)
		for range 6 {
			time.Sleep(ttl)
			l := c.leader()
			resume := l.vfs.hangSyncs()
			c.net.stall(l.addr)
			time.Sleep(10 * time.Second)
			c.net.resume(l.addr)
			resume()
			time.Sleep(3 * time.Second)
		}
		if after := c.tokens(ks); !slices.Equal(before, after) {
			t.Errorf("tokens changed: %v, then %v", before, after)
		}
		w := c.leader().store.Watch("", 0)
		defer w.Stop()
		events, err := w.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Kind == state.KindSessionExpire {
				t.Errorf("session %d expired", e.Session)
			}
		}
		c.check()
	})
}

func TestO11LeaseRunsOutWhileThereIsNoQuorum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const ttl = 5 * time.Second
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		ks := c.keyspace("orders", 1, ttl)
		c.session(1, "orders")
		c.session(2, "orders")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		c.renew(ctx, &wg, 2, ttl/4, func(err error) { t.Errorf("the living session: %v", err) })
		first := c.do(&state.Grant{Term: c.leader().store.Term(), Keyspace: ks, Items: []state.GrantItem{{Session: 1}}})[0].Tokens[0]
		l := c.leader()
		var down []*server
		for _, s := range c.servers {
			if s != l {
				s.crash()
				down = append(down, s)
			}
		}
		time.Sleep(time.Minute)
		if l.store.IsLeader() {
			t.Error("still leading without a quorum")
		}
		l.store.View(func(st *state.State) {
			if _, ok := st.Session(1); !ok {
				t.Error("expired without a quorum")
			}
		})
		for _, s := range down {
			s.start()
		}
		back := time.Now()
		c.leader()
		if took := c.gone(1, time.Minute).Sub(back); took > ttl+3*time.Second {
			t.Errorf("gone %v after the quorum returned", took)
		}
		rs := c.do(&state.Grant{Term: c.leader().store.Term(), Keyspace: ks, Items: []state.GrantItem{{Session: 2, LastToken: first}}})
		if rs[0].Tokens[0] <= first {
			t.Errorf("granted with token %d after %d", rs[0].Tokens[0], first)
		}
	})
}

func TestO85ManySessionsLapseTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n, ttl = 20_000, 20 * time.Second
		expired := &countObserver{}
		c := newCluster(t, 3, func(_ *server, c *Config) { c.Metrics = expired })
		defer c.stopAll()
		c.keyspace("orders", 8, ttl)
		for i := 0; i < n; i += 1000 {
			cmds := make([]state.Command, 1000)
			for j := range cmds {
				cmds[j] = openSession(state.SessionID(1+i+j), "orders")
			}
			c.do(cmds...)
			time.Sleep(time.Second)
		}
		if err := c.leader().store.TransferLeadership(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := c.leader()
		term, opened := l.store.Term(), time.Now()
		var slowest time.Duration
		for l.store.sessionCount() > 0 {
			start := time.Now()
			if _, err := l.store.Propose(t.Context(), nudge()); err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(start))
			time.Sleep(100 * time.Millisecond)
			if since := time.Since(opened); since > ttl+5*time.Second {
				t.Fatalf("%d sessions left after %v", l.store.sessionCount(), since)
			}
		}
		if got := l.store.Term(); got != term {
			t.Errorf("the leader changed: term %d, then %d", term, got)
		}
		if slowest > 250*time.Millisecond {
			t.Errorf("another proposal took %v", slowest)
		}
		if got := expired.expired.Load(); got != n {
			t.Errorf("%d expiries counted, want %d", got, n)
		}
		if late := time.Duration(expired.latest.Load()); late <= 0 || late > 5*time.Second {
			t.Errorf("the latest expiry is said to have been overdue by %v", late)
		}
		if applied := expired.applied.Load(); applied < n/1000 {
			t.Errorf("%d applied entries were timed", applied)
		}
	})
}

// countObserver counts some of what it is told.
type countObserver struct {
	noObserver
	expired, renewed, leaders, batches, hangs atomic.Int64
	latest, applied                           atomic.Int64
}

func (c *countObserver) SessionExpired(overdue float64) {
	c.expired.Add(1)
	for late := int64(overdue * float64(time.Second)); ; {
		before := c.latest.Load()
		if late <= before || c.latest.CompareAndSwap(before, late) {
			return
		}
	}
}
func (c *countObserver) ApplySeconds(float64) { c.applied.Add(1) }
func (c *countObserver) LeaderChange()        { c.leaders.Add(1) }
func (c *countObserver) BatchCommands(int)    { c.batches.Add(1) }
func (c *countObserver) DiskHangs()           { c.hangs.Add(1) }
func (c *countObserver) KeepAlives(n int, outcome string) {
	if outcome == "renewed" {
		c.renewed.Add(int64(n))
	}
}

func TestLeaderClockNeverWritesMoreThanItMeasured(t *testing.T) {
	clock := &handClock{now: time.Hour}
	c := &leaderClock{clock: clock}
	c.begin(7)
	tick := func() time.Duration {
		cmd := &state.Tick{}
		c.stamp([]state.Command{cmd})
		if cmd.Term != 7 {
			t.Fatalf("term %d", cmd.Term)
		}
		return cmd.Elapsed
	}
	clock.now += time.Minute
	if got := tick(); got != 0 {
		t.Errorf("the first of a term says %v", got)
	}
	clock.now += 300 * time.Millisecond
	if got := tick(); got != 300*time.Millisecond {
		t.Errorf("the second says %v", got)
	}
	two := []state.Command{&state.KeepAlive{}, &state.Expire{}}
	clock.now += time.Second
	c.stamp(two)
	if a, b := two[0].(*state.KeepAlive).Elapsed, two[1].(*state.Expire).Elapsed; a != time.Second || b != 0 {
		t.Errorf("two in one entry say %v and %v", a, b)
	}
	c.begin(9)
	clock.now += time.Minute
	cmd := &state.Tick{}
	c.stamp([]state.Command{cmd})
	if cmd.Elapsed != 0 || cmd.Term != 9 {
		t.Errorf("the first of the next term says %v in term %d", cmd.Elapsed, cmd.Term)
	}
}

// handClock is moved by hand.
type handClock struct{ now time.Duration }

func (h *handClock) Now() time.Duration { return h.now }
