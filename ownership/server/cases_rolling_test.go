package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// steadyWrites are keyspaces that are created at a steady pace, and those of
// them that were acknowledged.
type steadyWrites struct {
	mu      sync.Mutex
	acked   []string
	started int
}

// writeSteadily creates so many keyspaces a second, however long each takes,
// until the returned function is called.
func (c *cluster) writeSteadily(perSecond int) (stop func() *steadyWrites) {
	c.t.Helper()
	cl := c.client()
	w := &steadyWrites{}
	ctx, cancel := context.WithCancel(c.t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		began := time.Now()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for due := int(time.Since(began).Seconds() * float64(perSecond)); w.started < due; w.started++ {
				name := fmt.Sprintf("k%d", w.started)
				all.Go(func() {
					one, done := context.WithTimeout(ctx, 5*time.Second)
					defer done()
					if _, err := cl.Keyspaces().CreateKeyspace(one, &leaseholdv1.CreateKeyspaceRequest{Name: name, Partitions: 1, TtlMs: 10_000}); err == nil {
						w.mu.Lock()
						defer w.mu.Unlock()
						w.acked = append(w.acked, name)
					}
				})
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() *steadyWrites {
		cancel()
		all.Wait()
		return w
	}
}

// leaders counts the terms that had a leader until the returned function is
// called.
func (c *cluster) leaders() (stop func() int) {
	c.t.Helper()
	var all []leaseholdv1.ClusterServiceClient
	for i := range c.configs {
		all = append(all, c.api(i))
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	count := make(chan int, 1)
	go func() {
		terms := map[uint64]bool{}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for _, api := range all {
				one, done := context.WithTimeout(ctx, time.Second)
				if st, err := api.GetStatus(one, &leaseholdv1.GetStatusRequest{}); err == nil && st.GetRaftState() == "leader" {
					terms[st.GetTerm()] = true
				}
				done()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		count <- len(terms)
	}()
	return func() int {
		cancel()
		return <-count
	}
}

// O-53 at its full rate: the servers are restarted one after the other, first
// with a second in between, whatever they say, then as soon as each is ready.
// Two hundred writes a second go on. No acknowledged write and no lease is lost,
// nobody says that it is ready before it has caught up, and no leader changes
// but by a restart.
func TestRollingRestartUnderTwoHundredWritesASecond(t *testing.T) {
	t.Parallel()
	c := calm(t, 3)
	c.startAll()
	createCold(t, c.client(), "orders", 8, 40*time.Second)
	crew := newCrew(t, c.servers())
	crew.joinAll("orders", "w1", "w2")
	crew.settled(40*time.Second, "both have a share of all", func() bool {
		return crew.held("") == 8 && crew.held("w1") > 0 && crew.held("w2") > 0
	})
	held, starts := crew.tokens(), crew.begun()

	const rate = 200
	began := time.Now()
	stop, leaders := c.writeSteadily(rate), c.leaders()
	for _, byReadiness := range []bool{false, true} {
		for i := range c.configs {
			other := c.running[(i+1)%3].store
			c.stopServer(i)
			then := other.Status().AppliedIndex
			s := c.start(i)
			early := func() bool {
				ready, _ := s.Readiness()
				return ready && s.store.Status().AppliedIndex < then
			}
			if byReadiness {
				eventually(t, 20*time.Second, s.ID()+" is ready", func() bool {
					if early() {
						t.Fatalf("%s is ready before it has caught up", s.ID())
					}
					ready, _ := s.Readiness()
					return ready
				})
			} else {
				never(t, time.Second, s.ID()+" is ready before it has caught up", early)
			}
		}
		c.ready()
	}
	changes, took, w := leaders()-1, time.Since(began), stop()
	t.Logf("%d writes in %v, %d acknowledged; %d changes of leader by 6 restarts", w.started, took.Round(time.Millisecond), len(w.acked), changes)
	if changes > 6 {
		t.Errorf("%d changes of leader by 6 restarts", changes)
	}
	if float64(w.started) < 0.9*rate*took.Seconds() || len(w.acked) < w.started/2 {
		t.Errorf("%d writes in %v, %d acknowledged: too few to show anything", w.started, took, len(w.acked))
	}
	for i := range c.configs {
		c.has(i, w.acked...)
	}
	for p, token := range crew.tokens() {
		if held[p] != token {
			t.Errorf("partition %d is held under %d, before under %d", p, token, held[p])
		}
	}
	if n, more := crew.held(""), crew.begun()-starts; n != 8 || more != 0 {
		t.Errorf("%d of 8 partitions are held, after %d more starts", n, more)
	}
}
