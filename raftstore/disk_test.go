package raftstore

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
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

// A disk whose syncs take 100 ms is slow, not dead: everything works, and
// somebody is told.
func TestSlowSyncsAreBorneAndTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lines lockedBuffer
		c := newCluster(t, 3, onDisk, lossy, func(s *server, c *Config) {
			slowSyncs(s, c, 100*time.Millisecond)
			c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		})
		defer c.stopAll()
		l := c.leader()
		term := l.store.Term()
		c.keyspace("orders", 1, testTTL)
		c.session(1, "orders")
		slowest := time.Duration(0)
		for range 60 {
			start := time.Now()
			if _, err := l.store.KeepAlive(t.Context(), 1); err != nil {
				t.Fatalf("keep-alive: %v", err)
			}
			slowest = max(slowest, time.Since(start))
			time.Sleep(time.Second)
		}
		if slowest > time.Second {
			t.Errorf("a keep-alive took %v", slowest)
		}
		if l.store.Term() != term || !l.store.IsLeader() {
			t.Error("the leader changed")
		}
		w := l.store.FsyncWindow()
		if w.Count < 50 || w.P50 < 100*time.Millisecond || w.P99 < 100*time.Millisecond || w.Max > 130*time.Millisecond {
			t.Errorf("window %+v", w)
		}
		if n := strings.Count(lines.String(), "disk is slow"); n < 3 || n > 6 { // once each, not every time
			t.Errorf("%d warnings:\n%s", n, lines.String())
		}
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// What the kernel says of a full, a broken and a read-only disk: the store ends
// with it, says what to do, and another leads.
func TestWriteErrorsEndTheStoreAndMoveTheLeadership(t *testing.T) {
	for cause, next := range map[error]string{
		syscall.ENOSPC: "free some space", syscall.EIO: "kernel's messages", syscall.EROFS: "kernel's messages",
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3, onDisk, lossy)
				defer c.stopAll()
				c.do(mark("before"))
				old := c.leader()
				old.vfs.failSyncs(cause)
				start := time.Now()
				go func() { _, _ = old.store.Propose(context.Background(), mark("x")) }()
				<-old.done
				var failure *StorageError
				if !errors.As(old.err, &failure) || !errors.Is(old.err, cause) || !strings.Contains(old.err.Error(), next) {
					t.Errorf("Run: %v", old.err)
				}
				if !old.store.Storage().Poisoned {
					t.Error("not shown as poisoned")
				}
				c.net.isolate(old.addr, true)
				c.leader()
				if took := time.Since(start); took > 6*time.Second {
					t.Errorf("another leads after %v", took)
				}
				c.do(mark("after"))
				old.start()
				c.within(10*time.Second, "server that has caught up", func() bool { return len(missing(old.store, []string{"before", "after"})) == 0 })
			})
		})
	}
}

func TestFsyncWindowForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fsyncTimes
		if w := f.window(); w != (FsyncWindow{}) {
			t.Errorf("before anything: %+v", w)
		}
		for range 990 {
			f.add(time.Millisecond)
		}
		for range 10 {
			f.add(time.Second)
		}
		f.add(time.Hour)
		w := f.window()
		if w.Count != 1001 || w.P50 < time.Millisecond || w.P50 > 1200*time.Microsecond || w.P99 < time.Second || w.P99 > 1200*time.Millisecond || w.Max != time.Hour {
			t.Errorf("%+v", w)
		}
		time.Sleep(90 * time.Second)
		f.add(2 * time.Millisecond)
		if w := f.window(); w.Count != 1002 {
			t.Errorf("in the next minute: %+v", w)
		}
		time.Sleep(61 * time.Second)
		if w := f.window(); w.Count != 1 || w.Max != 2*time.Millisecond {
			t.Errorf("in the one after: %+v", w)
		}
		time.Sleep(10 * time.Minute)
		if w := f.window(); w.Count != 0 || w.Max != 0 {
			t.Errorf("in the end: %+v", w)
		}
	})
}

// Every election timeout that a server takes has bounds for a disk that hangs.
func TestLongElectionTimeoutFitsTheDefaults(t *testing.T) {
	for _, timeout := range []time.Duration{50 * time.Millisecond, 2 * time.Second, 5 * time.Second, time.Minute} {
		c, err := Config{ServerID: "s1", ElectionTimeout: timeout}.withDefaults()
		if err != nil || c.HangBound < timeout || c.HangExit < c.HangBound {
			t.Errorf("%v: hang bound %v, exit %v: %v", timeout, c.HangBound, c.HangExit, err)
		}
	}
}
