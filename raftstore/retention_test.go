package raftstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// unsyncedFS is a file layer for tests of what is written, not of whether it
// survives: a day's syncs would take minutes.
type unsyncedFS struct{ types.VFS }

type unsyncedFile struct{ types.WritableFile }

func (unsyncedFile) Sync() error { return nil }

func (f unsyncedFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	w, err := f.VFS.Create(dir, name, size)
	return unsyncedFile{w}, err
}

func (f unsyncedFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	w, err := f.VFS.OpenWriter(dir, name)
	return unsyncedFile{w}, err
}

func unsynced(_ *server, c *Config) { c.hooks.vfs = unsyncedFS{fs.New()} }

// largeEntry fills a log entry to the brim: sessions that are opened once and
// found ever after.
func largeEntry() (cmds []state.Command) {
	for i := range (maxEntry - entryHead) / 4400 {
		cmds = append(cmds, largeSession(state.SessionID(i+1)))
	}
	return cmds
}

func largeSession(id state.SessionID) *state.OpenSession {
	open := openSession(id, "orders")
	open.Labels = map[string]string{}
	for i := range state.MaxLabels { // all different: an entry holds each string once
		open.Labels[fmt.Sprintf("%0*d", state.MaxLabelLen, i<<32|int(id))] = fmt.Sprintf("%0*d", state.MaxLabelLen, i<<33|int(id))
	}
	return open
}

// watchStorage returns the largest log that a server had, looked at every so
// often until stop is called.
func watchStorage(s *server, every time.Duration) (stop func() (most StorageStatus)) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan StorageStatus, 1)
	go func() {
		var most StorageStatus
		for ctx.Err() == nil {
			st := s.store.Storage()
			most.LogBytes = max(most.LogBytes, st.LogBytes)
			most.DataBytes = max(most.DataBytes, st.DataBytes)
			if st.LastIndex-st.FirstIndex > most.LastIndex-most.FirstIndex {
				most.FirstIndex, most.LastIndex = st.FirstIndex, st.LastIndex
			}
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
		result <- most
	}()
	return func() StorageStatus {
		cancel()
		return <-result
	}
}

func TestLogStaysBoundedInBytesWithTheLargestEntries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const segment, due, trailing = 1 << 20, 2 << 20, 5 << 20
		c := newCluster(t, 1, onDisk, unsynced, func(_ *server, c *Config) {
			c.hooks.segmentSize, c.SnapshotBytes, c.TrailingBytes = segment, due, trailing
		})
		defer c.stopAll()
		c.keyspace("orders", 8, time.Hour)
		s := c.servers[0]
		var most, st StorageStatus
		written := 0
		for written < 60<<20 {
			c.do(largeEntry()...)
			written += maxEntry
			st = s.store.Storage()
			most.LogBytes = max(most.LogBytes, st.LogBytes)
		}
		t.Logf("%d MiB written, at most %d KiB of log; entries %d to %d are left, snapshot at %d", written>>20, most.LogBytes>>10, st.FirstIndex, st.LastIndex, st.SnapshotIndex)
		if limit := int64(2*due + trailing + 3*segment); most.LogBytes > limit {
			t.Errorf("log of %d bytes, the limit is %d", most.LogBytes, limit)
		}
		if st.SnapshotIndex+2*due/maxEntry < st.LastIndex {
			t.Errorf("newest snapshot ends at %d, the log at %d", st.SnapshotIndex, st.LastIndex)
		}
		if st.LogBytes < trailing/2 {
			t.Errorf("only %d bytes are left for servers that come back", st.LogBytes)
		}
	})
}

// TestLogStaysBoundedOverADay with nobody there, and with one worker that does
// nothing but keep its session alive.
func TestLogStaysBoundedOverADay(t *testing.T) {
	const threshold = 512
	for name, workers := range map[string]int{"idle": 0, "keep-alives": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 1, onDisk, unsynced, func(_ *server, c *Config) {
					c.SnapshotThreshold, c.hooks.segmentSize = threshold, 64<<10
				})
				defer c.stopAll()
				c.keyspace("orders", 8, 10*time.Second)
				s := c.servers[0]
				stop := watchStorage(s, 10*time.Minute)
				ctx, cancel := context.WithCancel(t.Context())
				lost := make(chan error, workers)
				done := make(chan struct{})
				go func() {
					defer close(done)
					for i := range workers {
						c.session(state.SessionID(i+1), "orders")
					}
					for workers > 0 && ctx.Err() == nil {
						if _, err := s.store.KeepAlive(ctx, 1); err != nil && ctx.Err() == nil {
							lost <- err
							return
						}
						select {
						case <-time.After(2500 * time.Millisecond):
						case <-ctx.Done():
						}
					}
				}()
				time.Sleep(24 * time.Hour)
				cancel()
				<-done
				select {
				case err := <-lost:
					t.Fatalf("keep-alive: %v", err)
				default:
				}
				most := stop()
				st := s.store.Storage()
				t.Logf("%d entries in a day; at most %d at once, in %d KiB", st.LastIndex, most.LastIndex-most.FirstIndex, most.LogBytes>>10)
				if workers > 0 && st.LastIndex < 50_000 {
					t.Errorf("only %d entries in a day", st.LastIndex)
				}
				// Trailing entries, those until the next snapshot, and what is written
				// until Raft's own goroutine looks.
				if n := most.LastIndex - most.FirstIndex; n > 3*threshold+200 {
					t.Errorf("%d entries in the log", n)
				}
				if most.LogBytes > 1<<20 {
					t.Errorf("log of %d bytes", most.LogBytes)
				}
			})
		})
	}
}

// O-49, a tenth of it: the state takes a minute over the link, while snapshots
// are taken every few seconds and the log moves on.
func TestSnapshotSlowerThanTheTimersIsSentOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const sessions, rate = 4000, 256 << 10 // 16 MiB of state
		c := newCluster(t, 3, onDisk, unsynced, func(_ *server, c *Config) {
			c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = 64, 2*time.Second, 64
			c.SnapshotBytes = 1 << 20
		})
		defer c.stopAll()
		c.keyspace("orders", 8, time.Hour)
		late := c.follower()
		late.crash()
		for i := 0; i < sessions; i += 50 {
			var cmds []state.Command
			for j := range 50 {
				cmds = append(cmds, largeSession(state.SessionID(i+j+1)))
			}
			c.do(cmds...)
		}
		time.Sleep(10 * time.Second) // snapshots; the log no longer reaches back
		l := c.leader()
		term := l.store.Term()
		c.net.throttle(late.addr, rate)
		late.start()
		began := time.Now()
		started := map[time.Time]bool{}
		slowest, beats := time.Duration(0), 0
		var most Transfer
		for late.store.appliedIndex.Load()+20 < l.store.appliedIndex.Load() {
			if time.Since(began) > 5*time.Minute {
				t.Fatalf("not caught up after %v and %d transfers: applied %d of %d", time.Since(began), len(started), late.store.appliedIndex.Load(), l.store.appliedIndex.Load())
			}
			for _, tr := range l.store.Storage().Sending {
				started[tr.Started] = true
				if tr.Bytes > most.Bytes {
					most = tr
				}
			}
			at := time.Now()
			if _, err := l.store.KeepAlive(t.Context(), state.SessionID(beats%sessions+1)); err != nil {
				t.Fatalf("keep-alive: %v", err)
			}
			beats++
			slowest = max(slowest, time.Since(at))
			c.do(nudge(), nudge())
		}
		t.Logf("caught up after %v; %d transfers, last seen at %d of %d bytes; slowest of %d keep-alives %v", time.Since(began).Round(time.Second), len(started), most.Bytes, most.Total, beats, slowest)
		if took := time.Since(began); took < 30*time.Second {
			t.Errorf("caught up after %v: the link was not slow", took)
		}
		if n := len(started); n < 1 || n > 2 {
			t.Errorf("%d transfers were started", n)
		}
		if l.store.Term() != term || !l.store.IsLeader() {
			t.Error("the leader changed")
		}
		if slowest > 200*time.Millisecond {
			t.Errorf("a keep-alive took %v", slowest)
		}
	})
}

// Raft sends up to 64 entries in two seconds, whatever their size.
func TestLargestEntriesGetThroughASlowLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, unsynced)
		defer c.stopAll()
		c.keyspace("orders", 8, time.Hour)
		late := c.follower()
		late.crash()
		for range 40 {
			c.do(largeEntry()...)
		}
		c.net.throttle(late.addr, 384<<10)
		late.start()
		c.within(2*time.Minute, "follower that has caught up", func() bool {
			return late.store.appliedIndex.Load() >= c.leader().store.appliedIndex.Load()
		})
	})
}

// TestLogMeter against what a list of sizes says.
func TestLogMeter(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		r := newRetention(&Config{TrailingBytes: 1 << 20, SnapshotBytes: 1 << 20})
		sizes := map[uint64]int{}
		first, last := uint64(1), uint64(0)
		for range 2000 {
			switch rng.IntN(50) {
			case 0:
				if last > first {
					from := first + rng.Uint64N(last-first) + 1
					r.removed(from, last, last)
					last = from - 1
				}
			case 1:
				if last > first {
					to := first + rng.Uint64N(last-first)
					r.removed(first, to, last)
					first = to + 1
				}
			default:
				last++
				n := rng.IntN(200)
				if rng.IntN(10) == 0 {
					n = rng.IntN(maxEntry)
				}
				sizes[last] = n + entryOverhead
				r.appended(&raft.Log{Index: last, Data: make([]byte, n)})
			}
		}
		sum := func(from uint64) (n uint64) {
			for i := max(from, first); i <= last; i++ {
				n += uint64(sizes[i])
			}
			return n
		}
		for range 50 {
			at := first + rng.Uint64N(last-first+1)
			exact, got := sum(at+1), r.meter.since(at)
			if got+2*maxEntry < exact || got > exact+2*maxEntry {
				t.Fatalf("seed %d: %d bytes behind %d, want about %d", seed, got, at, exact)
			}
			limit := rng.Uint64N(4 << 20)
			if from := r.meter.within(limit); sum(from) > limit+2*maxEntry {
				t.Fatalf("seed %d: entries from %d on have %d bytes, the limit is %d", seed, from, sum(from), limit)
			}
		}
	}
}
