package raftstore

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// largeCommand has a little more than that many bytes, and is refused: no name
// is so long.
func largeCommand(size int) state.Command {
	return &state.CreateKeyspace{Name: strings.Repeat("x", size), Settings: state.Settings{TTL: time.Hour}}
}

func TestLargeCommandIsAnEntryOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, unsynced)
		defer c.stopAll()
		l := c.leader().store
		for _, size := range []int{maxEntry - 2*entryHead, maxEntry, 1 << 20, state.MaxCommandBytes - 4096} {
			rs, err := l.Propose(t.Context(), nudge(), largeCommand(size), nudge(), nudge())
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			var at []uint64
			for _, r := range rs {
				at = append(at, r.Index)
			}
			if state.ReasonOf(rs[1].Err) != state.ReasonInvalid || at[0] == at[1] || at[1] == at[2] || at[2] != at[3] || !slices.IsSorted(at) {
				t.Errorf("%d bytes: entries %v, %v", size, at, rs[1].Err)
			}
		}
		last := l.Status().LastIndex
		c.within(time.Second, "followers that have all of it", func() bool {
			return !slices.ContainsFunc(c.servers, func(s *server) bool { return s.store.AppliedIndex() < last })
		})
		for _, s := range c.servers { // and can read it back
			if err := s.halt(); err != nil {
				t.Error(err)
			}
		}
		for _, s := range c.servers {
			s.start()
		}
		c.do(nudge())
	})
}

// A renewal waits for one large entry at most, however many are queued.
func TestLargeCommandsDoNotDelayRenewals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		c.keyspace("orders", 8, testTTL)
		c.session(1, "orders")
		l := c.leader()
		for _, s := range c.servers {
			if s != l {
				c.net.throttle(s.addr, 16<<20) // an eighth of a second for each
			}
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var written []uint64
		for range 15 {
			wg.Go(func() {
				rs, err := l.store.Propose(t.Context(), largeCommand(2_000_000))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				written = append(written, rs[0].Index)
				mu.Unlock()
			})
		}
		time.Sleep(time.Millisecond)
		for range 5 {
			start := time.Now()
			before := l.store.Status().LastIndex
			rs, err := l.store.ProposeUrgent(t.Context(), &state.KeepAlive{Sessions: []state.SessionID{1}})
			if err != nil || rs[0].Err != nil {
				t.Fatalf("%+v %v", rs, err)
			}
			if took := time.Since(start); took > 180*time.Millisecond || rs[0].Index > before+2 {
				t.Errorf("renewed after %v, in entry %d of a log that ended at %d", took, rs[0].Index, before)
			}
			time.Sleep(50 * time.Millisecond)
		}
		wg.Wait()
		if len(written) != 15 {
			t.Errorf("%d of 15 were written", len(written))
		}
	})
}

// A stream of renewals does not keep a large command waiting either.
func TestRenewalsDoNotStarveLargeCommands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		l := c.leader().store
		c.net.mu.Lock()
		c.net.latency = 5 * time.Millisecond
		c.net.mu.Unlock()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := l.ProposeUrgent(t.Context(), nudge()); err != nil {
						t.Error(err)
						return
					}
				}
			})
			time.Sleep(time.Millisecond)
		}
		start := time.Now()
		if _, err := l.Propose(t.Context(), largeCommand(1<<20)); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("a large command waited %v", took)
		}
		close(stop)
		wg.Wait()
	})
}

func TestLargeCommandGetsThroughASlowLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, unsynced)
		defer c.stopAll()
		late := c.follower()
		late.crash()
		for range 4 {
			if _, err := c.leader().store.Propose(t.Context(), largeCommand(2_000_000)); err != nil {
				t.Fatal(err)
			}
		}
		c.net.throttle(late.addr, 384<<10)
		late.start()
		c.within(2*time.Minute, "follower that has caught up", func() bool {
			return late.store.AppliedIndex() >= c.leader().store.AppliedIndex()
		})
	})
}

func TestLogCacheIsBoundedInBytes(t *testing.T) {
	conf, err := Config{ServerID: "s1", Wall: testWall}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	disk := newDisk(&conf, "", func(*StorageError) {})
	c := &logCache{watchedLog: watchedLog{
		&checkedLog{logStore: memoryLog{raft.NewInmemStore()}, disk: disk, retain: newRetention(&conf)}, &members{},
	}}
	rng := rand.New(rand.NewPCG(1, 2))
	most, term := 0, uint64(1)
	for last := uint64(0); last < 1000; {
		n := 1 + rng.IntN(64)
		var logs []*raft.Log
		for range n {
			last++
			size := rng.IntN(1000)
			if rng.IntN(3) == 0 {
				size = rng.IntN(2 << 20)
			}
			logs = append(logs, &raft.Log{Index: last, Term: term, Data: make([]byte, size)})
		}
		if err := c.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, l := range c.ring {
			if l != nil {
				kept += len(l.Data)
			}
		}
		if most = max(most, kept); kept != c.bytes || kept > cachedBytes {
			t.Fatalf("after entry %d: %d bytes, counted as %d", last, kept, c.bytes)
		}
		if rng.IntN(5) == 0 { // another leader's entries come in their place
			from := last - uint64(rng.IntN(n))
			if err := c.DeleteRange(from, last); err != nil {
				t.Fatal(err)
			}
			last, term = from-1, term+1
		}
		for i := max(last, 300) - 299; i <= last; i++ {
			var l, stored raft.Log
			if err := errors.Join(c.GetLog(i, &l), c.checkedLog.GetLog(i, &stored)); err != nil || l.Index != i || l.Term != stored.Term || len(l.Data) != len(stored.Data) {
				t.Fatalf("entry %d: %d of term %d with %d bytes, %v", i, l.Index, l.Term, len(l.Data), err)
			}
		}
	}
	if most < cachedBytes/2 {
		t.Errorf("only %d bytes were kept", most)
	}
}
