package raftstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestHangingDiskGivesUpTheLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen countObserver
		c := newCluster(t, 3, onDisk, lossy, func(_ *server, c *Config) { c.Metrics = &seen })
		defer c.stopAll()
		old := c.leader()
		resume := old.vfs.hangSyncs()
		start := time.Now()
		outcome := make(chan error, 1)
		go func() {
			_, err := old.store.Propose(context.Background(), mark("x"))
			outcome <- err
		}()
		c.within(10*time.Second, "leader with a disk that works", func() bool {
			for _, s := range c.servers {
				if s != old && s.store.IsLeader() {
					return true
				}
			}
			return false
		})
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("taken over after %v", took)
		}
		c.net.isolate(old.addr, false)
		time.Sleep(2 * time.Second)
		resume()
		if err := <-outcome; !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("proposal on the hanging disk: %v", err)
		}
		time.Sleep(5 * time.Second)
		if seen.hangs.Load() == 0 {
			t.Error("not counted")
		}
		c.do(mark("y"))
		c.within(5*time.Second, "old leader that has caught up", func() bool {
			return old.store.appliedIndex.Load() == c.leader().store.appliedIndex.Load()
		})
	})
}

func TestDiskThatHangsForGoodEndsRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, lossy)
		defer c.stopAll()
		old := c.leader()
		resume := old.vfs.hangSyncs()
		start := time.Now()
		go func() {
			_, _ = old.store.Propose(context.Background(), mark("x"))
		}()
		<-old.done
		if took := time.Since(start); took < 20*time.Second || took > 26*time.Second {
			t.Errorf("Run ended after %v", took)
		}
		var failure *StorageError
		if !errors.As(old.err, &failure) || !errors.Is(old.err, ErrDiskHangs) || !errors.Is(old.err, ErrPoisoned) || failure.Path == "" {
			t.Errorf("Run: %v", old.err)
		}
		c.leader()
		resume() // the kernel lets go of the goroutine that was left behind
	})
}

func TestFailedSyncPoisonsForGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, lossy)
		defer c.stopAll()
		old := c.leader()
		cause := errors.New("input/output error")
		old.vfs.failSyncs(cause)
		_, err := old.store.Propose(t.Context(), mark("x"))
		if err == nil {
			t.Error("acknowledged without a sync")
		}
		old.vfs.failSyncs(nil) // the kernel would say that all is well again
		<-old.done
		var failure *StorageError
		if !errors.As(old.err, &failure) || !errors.Is(old.err, cause) || !errors.Is(old.err, ErrPoisoned) {
			t.Fatalf("Run: %v", old.err)
		}
		if failure.Op != "write log" || failure.Path != filepath.Join(old.dir, "log") {
			t.Errorf("failure %+v", failure)
		}
		c.net.isolate(old.addr, true)
		c.do(mark("y"))
		old.start()
		c.within(5*time.Second, "restarted server that has caught up", func() bool {
			return old.store.appliedIndex.Load() == c.leader().store.appliedIndex.Load()
		})
	})
}

func TestAcknowledgedOnlyAfterCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		c.keyspace("orders", 1, testTTL)
		c.session(1, "orders")
		l := c.leader()
		for _, s := range c.servers {
			if s != l {
				c.net.stall(s.addr)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if rs, err := l.store.Propose(ctx, mark("x")); err == nil {
			t.Errorf("acknowledged by one of three: %+v", rs)
		}
		if k, err := l.store.KeepAlive(ctx, 1); err == nil {
			t.Errorf("renewed by one of three: %+v", k)
		}
		for _, s := range c.servers {
			c.net.resume(s.addr)
		}
	})
}

func TestAcknowledgedOnlyAfterSync(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, lossy)
		defer c.stopAll()
		c.keyspace("orders", 1, testTTL)
		c.session(1, "orders")
		l := c.leader()
		var resume []func()
		for _, s := range c.servers {
			if s != l {
				resume = append(resume, s.vfs.hangSyncs())
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if k, err := l.store.KeepAlive(ctx, 1); err == nil {
				t.Errorf("renewed with one disk of three: %+v", k)
			}
		}()
		if rs, err := l.store.Propose(ctx, mark("x")); err == nil {
			t.Errorf("acknowledged with one disk of three: %+v", rs)
		}
		<-done
		for _, f := range resume {
			f()
		}
		c.do(mark("y"))
	})
}

// powerLoss writes from several goroutines, turns the power of all servers off
// in the middle, starts them again and returns the acknowledged workers that
// are missing, and how many there were.
func powerLoss(t *testing.T, c *cluster, skip bool) (missing []string, acknowledged int) {
	c.do(nudge())
	for _, s := range c.servers {
		s.vfs.mu.Lock()
		s.vfs.skip = skip
		s.vfs.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var acked []string
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("%d-%d-%d", time.Now().UnixMilli(), w, i)
				for _, s := range c.servers {
					rs, err := s.store.Propose(ctx, mark(name))
					if err == nil && rs[0].Err == nil {
						mu.Lock()
						acked = append(acked, name)
						mu.Unlock()
					}
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	time.Sleep(60 * time.Millisecond)
	for _, s := range c.servers {
		s.vfs.powerOff()
	}
	for _, s := range c.servers {
		s.crash()
	}
	cancel()
	wg.Wait()
	for _, s := range c.servers {
		s.start()
	}
	l := c.leader()
	l.store.View(func(st *state.State) {
		for _, name := range acked {
			if !marked(st, name) {
				missing = append(missing, name)
			}
		}
	})
	return missing, len(acked)
}

func TestPowerLossOfAllServersLosesNothingAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, lossy)
		defer c.stopAll()
		for range 3 {
			missing, n := powerLoss(t, c, false)
			if len(missing) > 0 {
				t.Errorf("%d of %d acknowledged are gone", len(missing), n)
			}
			if n < 100 {
				t.Errorf("only %d acknowledged", n)
			}
		}
	})
}

func TestPowerLossCheckerNoticesSkippedSyncs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, lossy)
		defer c.stopAll()
		if missing, n := powerLoss(t, c, true); len(missing) == 0 {
			t.Errorf("none of %d acknowledged without a sync is gone", n)
		}
	})
}
