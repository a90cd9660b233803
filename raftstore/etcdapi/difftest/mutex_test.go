package difftest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func session(t *testing.T, c *clientv3.Client, opts ...concurrency.SessionOption) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(c, opts...)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// mutexScenario: lock, trylock, and the order of those who wait.
func mutexScenario(t *testing.T, addrs []string) {
	c, ctx := client(t, addrs...), within(t, 60*time.Second)
	first := concurrency.NewMutex(session(t, c), "mutex/")
	must(t, first.Lock(ctx))
	second := concurrency.NewMutex(session(t, c), "mutex/")
	if err := second.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
		t.Fatalf("trylock of a locked mutex: %v", err)
	}
	var order []int
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range 5 {
		m := concurrency.NewMutex(session(t, c), "mutex/")
		wg.Go(func() {
			if err := m.Lock(ctx); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := m.Unlock(ctx); err != nil {
				t.Error(err)
			}
		})
		must(t, poll(ctx, 2*time.Millisecond, func() bool { // until it stands in the queue
			r, err := c.Get(ctx, "mutex/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && r.Count == int64(i+2)
		}))
	}
	must(t, first.Unlock(ctx))
	wg.Wait()
	if fmt.Sprint(order) != "[0 1 2 3 4]" {
		t.Errorf("the lock was given in the order %v", order)
	}
	must(t, second.TryLock(ctx))
	must(t, second.Unlock(ctx))
}

// excludeScenario: many who lock and count never meet inside.
func excludeScenario(t *testing.T, addrs []string) {
	ctx := within(t, 60*time.Second)
	var inside, done atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		c := client(t, addrs[i%len(addrs)])
		m := concurrency.NewMutex(session(t, c), "counted")
		wg.Go(func() {
			for range 10 {
				if err := m.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				inside.Add(-1)
				done.Add(1)
				if err := m.Unlock(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := done.Load(); n != 40 {
		t.Errorf("locked %d times", n)
	}
}

// sessionLossScenario: a lease that is revoked ends its session, frees its
// lock and fails the waiter that it belongs to. The session hears of it by its
// next keep-alive.
func sessionLossScenario(t *testing.T, addrs []string) {
	c, ctx := client(t, addrs...), within(t, 60*time.Second)
	owner, waiter, last := session(t, c, concurrency.WithTTL(6)), session(t, c, concurrency.WithTTL(6)), session(t, c)
	held := concurrency.NewMutex(owner, "loss")
	must(t, held.Lock(ctx))
	results := make(chan error, 2)
	m := concurrency.NewMutex(waiter, "loss")
	go func() { results <- m.Lock(ctx) }()
	must(t, poll(ctx, 2*time.Millisecond, func() bool {
		r, err := c.Get(ctx, "loss", clientv3.WithPrefix())
		return err == nil && r.Count == 2
	}))
	_, err := c.Revoke(ctx, waiter.Lease())
	must(t, err)
	<-waiter.Done()
	_, err = c.Revoke(ctx, owner.Lease())
	must(t, err)
	<-owner.Done()
	if err := <-results; !errors.Is(err, concurrency.ErrSessionExpired) {
		t.Errorf("the waiter whose session was gone: %v", err)
	}
	l := concurrency.NewMutex(last, "loss")
	must(t, l.Lock(ctx))
	must(t, held.Unlock(ctx)) // of a lock that is lost: it frees nobody else's
	if r, err := c.Get(ctx, l.Key()); err != nil || r.Count != 1 {
		t.Errorf("the lock of the third is gone: %v %v", r, err)
	}
	if _, err := c.KeepAliveOnce(ctx, owner.Lease()); err == nil {
		t.Error("a revoked lease was renewed")
	}
}

// sessionLivesOnScenario: keep-alives carry a lease past its TTL, and a session
// that was given up by Orphan is not renewed.
func sessionLivesOnScenario(t *testing.T, addrs []string) {
	c, ctx := client(t, addrs...), within(t, 60*time.Second)
	s := session(t, c, concurrency.WithTTL(2))
	orphan := session(t, c, concurrency.WithTTL(2))
	_, err := c.Put(ctx, "kept", "", clientv3.WithLease(s.Lease()))
	must(t, err)
	put, err := c.Put(ctx, "orphan", "", clientv3.WithLease(orphan.Lease()))
	must(t, err)
	orphan.Orphan()
	// A watch that names no revision begins where its server is, here as with etcd,
	// and that may be a follower which has the put still before it.
	w := c.Watch(ctx, "orphan", clientv3.WithPrevKV(), clientv3.WithRev(put.Header.Revision+1))
	end, open := <-w
	must(t, end.Err())
	if !open || end.Events[0].Type != clientv3.EventTypeDelete || end.Events[0].PrevKv == nil {
		t.Errorf("the end of the orphan: %v", end)
	}
	r, err := c.Get(ctx, "kept")
	must(t, err)
	if r.Count != 1 {
		t.Error("the key of a session that was renewed is gone")
	}
	select {
	case <-s.Done():
		t.Error("a session that was renewed ended")
	default:
	}
}
