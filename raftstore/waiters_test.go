package raftstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitAppliedWakesExactlyThoseThatAreReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a appliedWaiters
		var reached atomic.Uint64
		var wg sync.WaitGroup
		var early, done, left atomic.Int64
		rng := rand.New(rand.NewPCG(3, 4))
		const waiters = 5000
		for range waiters {
			index, patience := 1+rng.Uint64N(100), time.Duration(rng.IntN(300))*time.Millisecond
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				err := a.wait(ctx, index, reached.Load)
				switch {
				case err == nil && reached.Load() < index:
					early.Add(1)
				case err == nil:
					done.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					left.Add(1)
				}
			})
		}
		for i := uint64(1); i <= 100; i++ {
			time.Sleep(time.Millisecond)
			reached.Store(i)
			a.wake(i)
		}
		wg.Wait()
		if early.Load() > 0 || done.Load()+left.Load() != waiters || left.Load() == 0 || a.count.Load() != 0 || len(a.queue) != 0 {
			t.Errorf("%d early, %d done, %d gave up; %d are still counted, %d queued", early.Load(), done.Load(), left.Load(), a.count.Load(), len(a.queue))
		}
	})
}

func TestWaitAppliedOnEveryServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, unsynced)
		defer c.stopAll()
		rs := c.do(mark("a"))
		for _, s := range c.servers {
			if err := s.store.WaitApplied(t.Context(), rs[0].Index); err != nil {
				t.Error(err)
			}
			if at := s.store.AppliedIndex(); at < rs[0].Index {
				t.Errorf("%s has applied %d", s.id, at)
			}
		}
		// A follower that was away gets there by a snapshot, too.
		late := c.follower()
		late.crash()
		for range 3 {
			rs = c.do(nudge())
		}
		l := c.leader().store
		if err := l.running().Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		if err := l.files.log.logStore.DeleteRange(1, rs[0].Index); err != nil {
			t.Fatal(err)
		}
		l.retain.removed(1, rs[0].Index, l.Status().LastIndex)
		late.start()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := late.store.WaitApplied(ctx, rs[0].Index); err != nil {
			t.Error(err)
		}
		// Nobody waits longer than the store lives.
		ended := make(chan error, 1)
		go func() { ended <- late.store.WaitApplied(context.Background(), 1<<40) }()
		time.Sleep(time.Second)
		if err := late.halt(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, ErrStopped) {
			t.Errorf("at the end: %v", err)
		}
		if err := late.store.WaitApplied(context.Background(), 1<<40); !errors.Is(err, ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}
