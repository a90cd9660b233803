package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// phase is one measurement of one cluster.
type phase struct {
	name string
	// goal is what Leasehold wants to be, as a ratio to etcd: at least that
	// often, or at most that long.
	goal   float64
	faster bool // the figure is a rate; else a time
	skip   map[string]bool
	run    func(ctx context.Context, c *cluster, seconds float64) (figures, error)
	value  func(figures) float64
	unit   string
}

func rate(f figures) float64  { return f.PerSecond }
func p50(f figures) float64   { return float64(f.P50.Microseconds()) / 1000 }
func inCPU(f figures) float64 { return f.Seconds }

func phases(sessions int) []phase {
	load := func(n int, prepare func(context.Context, *clientv3.Client, int) (func(context.Context) error, error)) func(context.Context, *cluster, float64) (figures, error) {
		return func(ctx context.Context, c *cluster, seconds float64) (figures, error) {
			return callers(ctx, c, n, seconds, prepare)
		}
	}
	noWrites := map[string]bool{"ceiling": true}
	return []phase{
		{name: "cas, 1 client", goal: 1, run: load(1, cas), value: p50, unit: "ms p50", skip: noWrites},
		{name: "cas, 64 clients", goal: 1.5, faster: true, run: load(64, cas), value: rate, unit: "/s", skip: noWrites},
		{name: "cas, 256 clients", goal: 1.5, faster: true, run: load(256, cas), value: rate, unit: "/s", skip: noWrites},
		{name: "read, 1 client", goal: 1, run: load(1, get), value: p50, unit: "ms p50"},
		{name: "read, 64 clients", goal: 1.3, faster: true, run: load(64, get), value: rate, unit: "/s"},
		{name: "read, 256 clients", goal: 1, faster: true, run: load(256, get), value: rate, unit: "/s"},
		{name: "lock and unlock, 2 contenders", goal: 10, faster: true, run: locks(2), value: rate, unit: "/s", skip: noWrites},
		{name: "lock and unlock, 16 contenders", goal: 3, faster: true, run: locks(16), value: rate, unit: "/s", skip: noWrites},
		{name: "write to the last of 1000 watchers", goal: 0.5, run: watchers(1000), value: p50, unit: "ms p50", skip: noWrites},
		{name: "leader killed to next write", goal: 0.5, run: failover(5), value: p50, unit: "ms p50", skip: noWrites},
		{name: fmt.Sprintf("%d sessions, TTL 60 s", sessions), goal: 0.5, run: keptAlive(sessions), value: inCPU, unit: "CPU-s/min", skip: noWrites},
	}
}

// locks lets n contend for one mutex of etcd's client library.
func locks(n int) func(ctx context.Context, c *cluster, seconds float64) (figures, error) {
	return func(ctx context.Context, c *cluster, seconds float64) (figures, error) {
		var sessions []*concurrency.Session
		defer func() {
			for _, s := range sessions {
				_ = s.Close()
				_ = s.Client().Close()
			}
		}()
		return callers(ctx, c, n, seconds, func(context.Context, *clientv3.Client, int) (func(context.Context) error, error) {
			cl, err := c.client() // of its own: another process, as a rule
			if err != nil {
				return nil, err
			}
			s, err := concurrency.NewSession(cl, concurrency.WithTTL(30))
			if err != nil {
				return nil, err
			}
			sessions = append(sessions, s)
			m := concurrency.NewMutex(s, "bench/lock")
			return func(ctx context.Context) error {
				if err := m.Lock(ctx); err != nil {
					return err
				}
				return m.Unlock(ctx)
			}, nil
		})
	}
}

// watchers measures how long after a write began the last of n watchers of the
// key has seen it. A hundred share a client, and there are clients of all servers.
func watchers(n int) func(ctx context.Context, c *cluster, seconds float64) (figures, error) {
	const perClient = 100
	return func(ctx context.Context, c *cluster, seconds float64) (figures, error) {
		ctx, cancel := context.WithCancel(ctx)
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		writer, err := c.client()
		if err != nil {
			return figures{}, err
		}
		defer writer.Close()
		const key = "bench/watched"
		seen := make(chan int64, 2*n)
		for i := 0; i < n; i += perClient {
			cl, err := c.client(i / perClient % 3)
			if err != nil {
				return figures{}, err
			}
			defer cl.Close()
			for range min(perClient, n-i) {
				w := cl.Watch(ctx, key, clientv3.WithCreatedNotify())
				if r := <-w; !r.Created {
					return figures{}, fmt.Errorf("watch was not created: %w", r.Err())
				}
				all.Go(func() {
					for r := range w {
						for _, e := range r.Events {
							seen <- e.Kv.ModRevision
						}
					}
				})
			}
		}
		var took []time.Duration
		start := time.Now()
		for time.Since(start).Seconds() < seconds {
			t := time.Now()
			if _, err := writer.Put(ctx, key, t.String()); err != nil {
				return figures{}, err
			}
			for range n {
				select {
				case <-seen:
				case <-time.After(10 * time.Second):
					return figures{}, fmt.Errorf("a watcher saw nothing for 10 s")
				}
			}
			took = append(took, time.Since(t))
			time.Sleep(20 * time.Millisecond) // each write by itself
		}
		return summarize(took, time.Since(start)), nil
	}
}

// tryFor bounds each write of failover: one that was sent while nobody led is
// not answered by etcd before seven seconds, and would stand for all of it.
const tryFor = 100 * time.Millisecond

// failover kills the leader a number of times, and measures until a write is
// acknowledged by one of the others.
func failover(times int) func(ctx context.Context, c *cluster, seconds float64) (figures, error) {
	return func(ctx context.Context, c *cluster, _ float64) (figures, error) {
		var took []time.Duration
		start := time.Now()
		for range times {
			leader, err := c.leader(ctx)
			if err != nil {
				return figures{}, err
			}
			var rest []int
			for i := range c.ports {
				if i != leader {
					rest = append(rest, i)
				}
			}
			cl, err := c.client(rest...)
			if err != nil {
				return figures{}, err
			}
			if _, err := cl.Put(ctx, "bench/failover", "before"); err != nil {
				return figures{}, err
			}
			t := time.Now()
			c.kill(leader)
			for {
				try, stop := context.WithTimeout(ctx, tryFor)
				_, err = cl.Put(try, "bench/failover", "after")
				stop()
				if err == nil {
					break
				}
				if time.Since(t) > time.Minute {
					return figures{}, fmt.Errorf("no write for a minute: %w", err)
				}
				time.Sleep(time.Millisecond)
			}
			took = append(took, time.Since(t))
			_ = cl.Close()
			if err := c.start(leader); err != nil {
				return figures{}, err
			}
			if err := c.ready(ctx); err != nil {
				return figures{}, err
			}
			time.Sleep(2 * time.Second) // the one that came back catches up
		}
		return summarize(took, time.Since(start)), nil
	}
}

// keptAlive measures the processor time of the servers while ten clients keep n
// sessions alive, beyond what they take with none.
func keptAlive(n int) func(ctx context.Context, c *cluster, seconds float64) (figures, error) {
	const clients = 10
	return func(ctx context.Context, c *cluster, seconds float64) (figures, error) {
		ctx, cancel := context.WithCancel(ctx)
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		errs := make(chan error, clients)
		for range clients {
			cl, err := c.client()
			if err != nil {
				return figures{}, err
			}
			defer cl.Close()
			all.Go(func() { errs <- hold(ctx, cl, n/clients, &all) })
		}
		for range clients {
			if err := <-errs; err != nil {
				return figures{}, err
			}
		}
		span := max(time.Duration(5*seconds*float64(time.Second)), 22*time.Second) // more than one round of keep-alives
		before, err := c.cpu()
		if err != nil {
			return figures{}, err
		}
		time.Sleep(span)
		after, err := c.cpu()
		return figures{Seconds: (after - before).Seconds() * 60 / span.Seconds()}, err
	}
}

// hold opens n sessions and keeps them alive until ctx ends.
func hold(ctx context.Context, cl *clientv3.Client, n int, all *sync.WaitGroup) error {
	ids := make([]clientv3.LeaseID, 0, n)
	for range n {
		g, err := cl.Grant(ctx, 60)
		if err != nil {
			return fmt.Errorf("grant: %w", err)
		}
		ids = append(ids, g.ID)
	}
	for id := range slices.Values(ids) {
		ch, err := cl.KeepAlive(ctx, id)
		if err != nil {
			return fmt.Errorf("keep alive: %w", err)
		}
		all.Go(func() {
			for range ch {
				continue
			}
		})
	}
	return nil
}
