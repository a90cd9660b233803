package raftstore

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// duties counts how many leaders are at work, over all servers.
type duties struct {
	now, most, runs atomic.Int64
	mu              sync.Mutex
	byTerm          map[uint64]int
	causes          []error
}

func (d *duties) lead(ctx context.Context, l *Lead) error {
	n := d.now.Add(1)
	defer d.now.Add(-1)
	for m := d.most.Load(); n > m && !d.most.CompareAndSwap(m, n); m = d.most.Load() {
	}
	d.runs.Add(1)
	d.mu.Lock()
	if d.byTerm == nil {
		d.byTerm = map[uint64]int{}
	}
	d.byTerm[l.Term]++
	d.mu.Unlock()
	<-ctx.Done()
	d.mu.Lock()
	d.causes = append(d.causes, context.Cause(ctx))
	d.mu.Unlock()
	return ctx.Err()
}

func TestO51RapidLeadershipFlaps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var d duties
		c := newCluster(t, 3, func(_ *server, c *Config) { c.Lead = d.lead })
		defer c.stopAll()
		c.keyspace("orders", 8, testTTL)
		c.session(1, "orders")
		time.Sleep(5 * time.Second)
		before := runtime.NumGoroutine()
		start := time.Now()
		for done := 0; done < 50; {
			if err := c.leader().store.TransferLeadership(t.Context()); err == nil {
				done++
			}
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("50 transfers took %v", took)
		}
		c.leader()
		granted := time.Now()
		c.do(mark("x"))
		if took := time.Since(granted); took > time.Second {
			t.Errorf("a proposal afterwards took %v", took)
		}
		c.within(5*time.Second, "single leader at work", func() bool { return d.now.Load() == 1 })
		c.renewOnce(1)
		time.Sleep(5 * time.Second)
		if after := runtime.NumGoroutine(); after > before+5 {
			t.Errorf("%d goroutines, %d before", after, before)
		}
		if !c.alive(1) {
			t.Error("the session is gone")
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		for term, n := range d.byTerm {
			if n != 1 {
				t.Errorf("the duties of term %d were started %d times", term, n)
			}
		}
		if d.runs.Load() < 40 {
			t.Errorf("only %d terms", d.runs.Load())
		}
		for _, cause := range d.causes {
			if !errors.Is(cause, ErrLostLeadership) {
				t.Errorf("a role ended with %v", cause)
			}
		}
	})
}

func TestO87AHundredElectionsLeakNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var d duties
		c := newCluster(t, 3, func(_ *server, c *Config) { c.Lead = d.lead })
		defer c.stopAll()
		c.keyspace("orders", 8, testTTL)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for id := state.SessionID(1); id <= 20; id++ {
			c.session(id, "orders")
			c.renew(ctx, &wg, id, testTTL/4, func(err error) { t.Errorf("session %d: %v", id, err) })
		}
		time.Sleep(10 * time.Second)
		goroutines, conns := runtime.NumGoroutine(), c.net.open()
		for range 100 {
			l := c.leader()
			c.net.isolate(l.addr, true)
			c.within(10*time.Second, "next leader", func() bool {
				for _, s := range c.servers {
					if s != l && s.store.IsLeader() {
						return true
					}
				}
				return false
			})
			c.net.isolate(l.addr, false)
		}
		time.Sleep(time.Minute)
		if after := runtime.NumGoroutine(); after > goroutines+goroutines/20+2 {
			t.Errorf("%d goroutines, %d before", after, goroutines)
		}
		if after := c.net.open(); after > conns+6 {
			t.Errorf("%d connection ends, %d before", after, conns)
		}
		if n := d.now.Load(); n != 1 {
			t.Errorf("%d leaders at work", n)
		}
	})
}

func TestMinorityCutOffStopsLeadingAndTheMajorityGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		old := c.leader()
		c.net.isolate(old.addr, true)
		cut := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := old.store.Propose(ctx, mark("x")); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("proposed in the minority: %v", err)
		}
		if took := time.Since(cut); took > time.Second {
			t.Errorf("the outcome took %v to be known as unknown", took)
		}
		if err := old.store.Read(ctx, func(*state.State) {}); err == nil {
			t.Error("read in the minority")
		}
		c.leader()
		if took := time.Since(cut); took > 4*time.Second {
			t.Errorf("the majority took %v to elect", took)
		}
		c.do(mark("y"))
		c.net.isolate(old.addr, false)
		c.within(10*time.Second, "the same state on all three", func() bool {
			return old.store.appliedIndex.Load() == c.leader().store.appliedIndex.Load()
		})
		old.store.View(func(st *state.State) {
			if marked(st, "x") {
				t.Error("a command of the minority was carried out")
			}
			if !marked(st, "y") {
				t.Error("a command of the majority is missing")
			}
		})
	})
}

func TestCleanStopHandsTheLeadershipOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		c.keyspace("orders", 1, testTTL)
		for range 3 {
			l := c.leader()
			start := time.Now()
			if err := l.halt(); err != nil {
				t.Fatal(err)
			}
			c.within(300*time.Millisecond, "leader after a clean stop", func() bool {
				for _, s := range c.servers {
					if s != l && s.store.IsLeader() {
						return true
					}
				}
				return false
			})
			t.Logf("without a leader for %v", time.Since(start))
			c.do(nudge())
			l.start()
			time.Sleep(2 * time.Second)
		}
	})
}

func TestEachServerRestartedInTurnKeepsTheState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, func(_ *server, c *Config) {
			c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 8, 4, time.Second
		})
		defer c.stopAll()
		ks := c.keyspace("orders", 32, time.Hour)
		c.session(1, "orders")
		tokens := c.grantAll(ks, 32, 1)
		for i := range 9 {
			s := c.servers[i%3]
			s.crash()
			for range 30 {
				c.do(nudge())
			}
			time.Sleep(5 * time.Second) // snapshots; the log no longer reaches back
			s.start()
			c.within(10*time.Second, "server that has caught up", func() bool {
				return s.store.appliedIndex.Load() >= c.leader().store.appliedIndex.Load()
			})
			s.store.View(func(st *state.State) {
				k, ok := st.Keyspace(ks)
				if !ok {
					t.Fatalf("round %d: %s has no keyspace", i, s.id)
				}
				for p := range k.Partitions {
					if got := k.Lease(p).Token; got != tokens[p] {
						t.Errorf("round %d: %s has token %d for partition %d, not %d", i, s.id, got, p, tokens[p])
					}
				}
			})
		}
		c.check()
	})
}

func TestDutyThatFailsHandsTheLeadershipOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var bad atomic.Pointer[server]
		c := newCluster(t, 3, func(s *server, c *Config) {
			c.Lead = func(ctx context.Context, l *Lead) error {
				bad.CompareAndSwap(nil, s)
				if bad.Load() == s {
					return errors.New("broken")
				}
				<-ctx.Done()
				return ctx.Err()
			}
		})
		defer c.stopAll()
		c.within(10*time.Second, "another leader", func() bool {
			b := bad.Load()
			if b == nil {
				return false
			}
			for _, s := range c.servers {
				if s != b && s.store.IsLeader() {
					return true
				}
			}
			return false
		})
	})
}

func TestStatusTellsTheAgeOfWhatViewShows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		l, f := c.leader(), c.follower()
		time.Sleep(time.Second)
		st := l.store.Status()
		if st.State != "leader" || st.LeaderID != l.id || len(st.Peers) != 3 || st.LastContact != 0 {
			t.Errorf("leader's status: %+v", st)
		}
		for _, p := range st.Peers {
			if p.LastContact < 0 || p.LastContact > 200*time.Millisecond || !p.Voter || p.LastIndex != st.LastIndex {
				t.Errorf("peer %+v", p)
			}
		}
		c.net.isolate(f.addr, true)
		time.Sleep(10 * time.Second)
		if age := f.store.LastContact(); age < 9*time.Second || age > 11*time.Second {
			t.Errorf("a server cut off for 10 s says %v", age)
		}
		if id, ok := f.store.LeaderID(); ok {
			t.Errorf("a server cut off says %s leads", id)
		}
		c.net.isolate(f.addr, false)
		time.Sleep(5 * time.Second)
		if age := f.store.LastContact(); age > 200*time.Millisecond {
			t.Errorf("after the cut: %v", age)
		}
	})
}

func TestOneServerInMemoryLeadsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, err := New(Config{ServerID: "dev", Wall: testWall, Logger: testLogger(t), ElectionTimeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if s.HasState() {
			t.Error("a new server has state")
		}
		if err := s.Bootstrap([]Peer{{"dev", s.Self().Store, "local"}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Bootstrap([]Peer{{"dev", s.Self().Store, "local"}}); !errors.Is(err, ErrHasState) {
			t.Errorf("bootstrapped twice: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		start := time.Now()
		for !s.IsLeader() {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(start); took > 250*time.Millisecond {
			t.Errorf("ready after %v", took)
		}
		if err := s.Bootstrap([]Peer{{"dev", s.Self().Store, "local"}}); !errors.Is(err, ErrHasState) {
			t.Errorf("bootstrapped while running: %v", err)
		}
		if rs, err := s.Propose(ctx, mark("x")); err != nil || rs[0].Err != nil {
			t.Errorf("propose: %v %v", rs, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := s.Propose(t.Context(), &state.Tick{}); !errors.Is(err, ErrStopped) {
			t.Errorf("propose after Run: %v", err)
		}
		if err := s.Run(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("second Run: %v", err)
		}
	})
}
