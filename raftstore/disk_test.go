package raftstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// written starts one server, lets it write, and stops it; its directory stays.
func written(t *testing.T, entries int, opts ...option) *server {
	t.Helper()
	c := newCluster(t, 1, append([]option{onDisk}, opts...)...)
	c.keyspace("orders", 8, time.Hour)
	for range entries {
		c.do(nudge())
	}
	time.Sleep(time.Second) // for a snapshot, if they are on
	s := c.servers[0]
	if err := s.halt(); err != nil {
		t.Fatal(err)
	}
	return s
}

func segments(t *testing.T, s *server) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.dir, "log", "*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatalf("segments: %v %v", names, err)
	}
	return names
}

// reopen opens a directory, and runs it for a moment if it opens.
func reopen(t *testing.T, s *server) (applied uint64, err error) {
	t.Helper()
	store, err := New(s.config())
	if err != nil {
		return 0, err
	}
	s.store = store
	s.run()
	defer s.halt()
	s.c.leader()
	return store.appliedIndex.Load(), nil
}

func TestBitFlipInTheLogIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 40)
		path := segments(t, s)[0]
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		end := walEnd(good)
		whole, err := reopen(t, s)
		if err != nil {
			t.Fatal(err)
		}
		good, err = os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		good = good[:walEnd(good)] // not 16 MiB of zeros each time
		// Everywhere but in the last write, which cannot be told from a torn one.
		refused, harmless := 0, 0
		for at := walHeader; at < end-600; at += 13 {
			bad := slices.Clone(good)
			bad[at] ^= 1 << (at % 8)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			store, err := New(s.config())
			if err == nil {
				// The sum of a batch in the middle, padding, or the time of an entry.
				if last, _ := store.files.log.LastIndex(); last < whole {
					t.Errorf("bit flipped at %d: entries after %d are gone without a word", at, last)
				}
				harmless++
				store.Close()
				continue
			}
			var failure *StorageError
			if !errors.As(err, &failure) || !errors.Is(err, ErrCorrupt) {
				t.Errorf("bit flipped at %d: %v", at, err)
			}
			refused++
		}
		t.Logf("%d flips refused, %d without effect", refused, harmless)
		if refused < harmless {
			t.Errorf("only %d flips refused", refused)
		}
	})
}

func TestTornTailOfTheLogIsHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 40)
		path := segments(t, s)[0]
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		end := walEnd(good)
		for cut := 1; cut < 60; cut += 4 {
			torn := slices.Clone(good)
			clear(torn[end-cut:]) // what had not reached the disk
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := reopen(t, s); err != nil {
				t.Fatalf("cut %d bytes: %v", cut, err)
			}
		}
		if err := os.WriteFile(path, good[:end-10], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := reopen(t, s); err != nil {
			t.Fatalf("truncated file: %v", err)
		}
	})
}

func TestTruncatedSealedSegmentIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		c.keyspace("orders", 8, time.Hour)
		big := openSession(1, "orders")
		big.Labels = map[string]string{"x": strings.Repeat("x", state.MaxLabelLen)}
		cmds := make([]state.Command, 1200)
		for i := range cmds {
			cmds[i] = big // the first opens it, the others find it
		}
		for range 200 { // more than one segment
			c.do(cmds...)
			if names, _ := filepath.Glob(filepath.Join(c.servers[0].dir, "log", "*.wal")); len(names) > 1 {
				break
			}
		}
		s := c.servers[0]
		if err := s.halt(); err != nil {
			t.Fatal(err)
		}
		names := segments(t, s)
		if len(names) < 2 {
			t.Fatal("only one segment")
		}
		if err := os.Truncate(names[0], 1<<20); err != nil {
			t.Fatal(err)
		}
		_, err := New(s.config())
		var failure *StorageError
		if !errors.As(err, &failure) {
			t.Fatalf("opened with half a segment: %v", err)
		}
		t.Log(err)
	})
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 60, func(_ *server, c *Config) {
			c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 8, 4, 5*time.Millisecond
		})
		dirs, err := filepath.Glob(filepath.Join(s.dir, "snapshots", "*-*"))
		if err != nil || len(dirs) == 0 {
			t.Fatalf("snapshots: %v %v", dirs, err)
		}
		newest := dirs[0]
		for _, d := range dirs {
			a, _ := os.Stat(newest)
			if b, _ := os.Stat(d); b.ModTime().After(a.ModTime()) {
				newest = d
			}
		}
		for _, name := range []string{"state.bin", "meta.json"} {
			path := filepath.Join(newest, name)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			flipped := slices.Clone(good)
			if name == "meta.json" {
				flipped = []byte("{" + string(flipped))
			} else {
				flipped[len(flipped)/2] ^= 4
			}
			for what, bad := range map[string][]byte{"flipped": flipped, "truncated": good[:len(good)-5], "empty": nil} {
				if err := os.WriteFile(path, bad, 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := New(s.config())
				var failure *StorageError
				if !errors.As(err, &failure) || !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s %s: %v", what, name, err)
				}
			}
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := reopen(t, s); err != nil {
			t.Errorf("mended: %v", err)
		}
	})
}

func TestSecondProcessOnTheSameDirectoryIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		defer c.stopAll()
		_, err := New(c.servers[0].config())
		var inUse *InUseError
		if !errors.As(err, &inUse) || inUse.Holder == "" || inUse.Dir != c.servers[0].dir {
			t.Errorf("opened twice: %v", err)
		}
		c.do(mark("x"))
	})
}

func TestDirectoryOfAnotherServerIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := written(t, 1)
		conf := s.config()
		conf.ServerID = "other"
		_, err := New(conf)
		var id *IdentityError
		if !errors.As(err, &id) || id.Stored != "s1" || id.Given != "other" {
			t.Errorf("opened as another: %v", err)
		}
		conf.ServerID = ""
		store, err := New(conf)
		if err != nil || store.ServerID() != "s1" {
			t.Fatalf("opened with the stored id: %v", err)
		}
		store.Close()
		conf.Dir = filepath.Join(t.TempDir(), "new")
		if _, err := New(conf); err == nil {
			t.Error("a new directory without an id")
		}
		if info, err := os.Stat(conf.Dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("data directory: %v %v", info, err)
		}
	})
}
