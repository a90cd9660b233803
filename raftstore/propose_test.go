package raftstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestTooLongCommandIsRefusedAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		l := c.leader().store
		before := l.Status().LastIndex
		long := largeCommand(state.MaxCommandBytes)
		var tooLong *TooLongError
		_, err := l.Propose(t.Context(), nudge(), long)
		if !errors.As(err, &tooLong) || tooLong.Limit != state.MaxCommandBytes || tooLong.Size <= tooLong.Limit || !strings.Contains(err.Error(), "CreateKeyspace") {
			t.Errorf("%d bytes: %v", tooLong.Size, err)
		}
		if after := l.Status().LastIndex; after != before {
			t.Errorf("the log went from %d to %d", before, after)
		}
		c.do(nudge())
	})
}

func TestLongGroupIsSplitBetweenCommandsAndKeepsItsOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen countObserver
		c := newCluster(t, 3, func(_ *server, c *Config) { c.Metrics = &seen })
		defer c.stopAll()
		ks := c.keyspace("orders", 100_000, testTTL)
		c.session(1, "orders")
		l := c.leader().store
		var cmds []state.Command
		for from := 0; from < 100_000; from += 5000 {
			g := &state.Grant{Term: l.Term(), Keyspace: ks}
			for p := range 5000 {
				g.Items = append(g.Items, state.GrantItem{Partition: uint32(from + p), Session: 1})
			}
			cmds = append(cmds, g)
		}
		batches := seen.batches.Load()
		rs, err := l.Propose(t.Context(), cmds...)
		if err != nil || len(rs) != len(cmds) {
			t.Fatalf("%d results, %v", len(rs), err)
		}
		var last state.Token
		for i, r := range rs {
			if r.Err != nil || len(r.Tokens) != 5000 {
				t.Fatalf("command %d: %v, %d tokens", i, r.Err, len(r.Tokens))
			}
			for _, token := range r.Tokens {
				if token <= last {
					t.Fatalf("command %d: token %d after %d", i, token, last)
				}
				last = token
			}
		}
		if n := seen.batches.Load() - batches; n < 2 || n > 10 {
			t.Errorf("written as %d entries", n)
		}
		c.check()
	})
}

func TestGroupThatFitsStaysInOneEntry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		ks := c.keyspace("orders", 1<<20, testTTL)
		c.session(1, "orders")
		l := c.leader().store
		var wg sync.WaitGroup
		for w := range 20 {
			wg.Go(func() {
				cmds := make([]state.Command, 3)
				for i := range cmds {
					g := &state.Grant{Term: l.Term(), Keyspace: ks}
					for p := range 3000 {
						g.Items = append(g.Items, state.GrantItem{Partition: uint32(w*9000 + i*3000 + p), Session: 1})
					}
					cmds[i] = g
				}
				rs, err := l.Propose(t.Context(), cmds...)
				if err != nil || rs[0].Index != rs[2].Index {
					t.Errorf("caller %d: entries %d and %d, %v", w, rs[0].Index, rs[2].Index, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestCallersShareEntries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen countObserver
		c := newCluster(t, 3, func(_ *server, c *Config) { c.Metrics = &seen })
		defer c.stopAll()
		l := c.leader().store
		before := seen.batches.Load()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				rs, err := l.Propose(t.Context(), mark(fmt.Sprintf("k%d", i)), mark(fmt.Sprintf("l%d", i)))
				if err != nil || len(rs) != 2 || rs[0].Keyspace.Name != fmt.Sprintf("k%d", i) || rs[1].Keyspace.Name != fmt.Sprintf("l%d", i) {
					t.Errorf("caller %d: %+v %v", i, rs, err)
				}
			})
		}
		wg.Wait()
		if n := seen.batches.Load() - before; n > 20 {
			t.Errorf("1000 callers needed %d entries", n)
		}
	})
}

func TestKeepAlivesGoAheadOfPlanChunks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, func(_ *server, c *Config) { c.KeepAliveGather = time.Millisecond })
		defer c.stopAll()
		ks := c.keyspace("orders", 1<<20, testTTL)
		c.session(1, "orders")
		l := c.leader().store
		c.net.mu.Lock()
		c.net.latency = 20 * time.Millisecond // so that a queue builds up
		c.net.mu.Unlock()
		var wg sync.WaitGroup
		var plan []state.Result
		wg.Go(func() {
			var cmds []state.Command
			for from := range 40 {
				g := &state.Grant{Term: l.Term(), Keyspace: ks}
				for p := range 10_000 {
					g.Items = append(g.Items, state.GrantItem{Partition: uint32(from*10_000 + p), Session: 1})
				}
				cmds = append(cmds, g)
			}
			var err error
			if plan, err = l.Propose(t.Context(), cmds...); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond)
		k, err := l.KeepAlive(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		wg.Wait()
		ahead, behind := map[uint64]bool{}, map[uint64]bool{}
		for _, r := range plan {
			if r.Index < k.Index {
				ahead[r.Index] = true
			} else {
				behind[r.Index] = true
			}
		}
		if len(ahead) > plainSlots || len(behind) < 3 {
			t.Errorf("%d entries of the plan went ahead of the renewal, %d behind it", len(ahead), len(behind))
		}
	})
}

func TestRetryUnderTheSameRequestIDIsDoneOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		const id = 0x5eed
		rs, err := c.leader().store.ProposeRetry(t.Context(), id, mark("a"), mark("b"))
		if err != nil || rs[0].Err != nil || rs[1].Err != nil {
			t.Fatalf("%+v %v", rs, err)
		}
		if err := c.leader().store.TransferLeadership(t.Context()); err != nil {
			t.Fatal(err)
		}
		rs, err = c.leader().store.ProposeRetry(t.Context(), id, mark("a"), mark("b"))
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rs {
			if state.ReasonOf(r.Err) != state.ReasonUnknownOutcome {
				t.Errorf("command %d again: %v", i, r.Err)
			}
		}
	})
}

func TestAbandonedProposalIsNotWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		l := c.leader()
		for _, s := range c.servers {
			if s != l {
				c.net.stall(s.addr)
			}
		}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				_, err := l.store.Propose(ctx, mark(fmt.Sprintf("k%d", i)))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("caller %d: %v", i, err)
				}
				unknown := errors.Is(err, ErrUnknownOutcome)
				if i >= 2 && unknown {
					t.Errorf("caller %d waited behind two in flight and got %v", i, err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		for _, s := range c.servers {
			c.net.resume(s.addr)
		}
		time.Sleep(5 * time.Second)
		c.do(nudge())
		c.leader().store.View(func(st *state.State) {
			for i := 2; i < 10; i++ {
				if marked(st, fmt.Sprintf("k%d", i)) {
					t.Errorf("k%d was written after its caller had gone", i)
				}
			}
		})
	})
}

func TestKeepAlivesShareAnEntryAndTellTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen countObserver
		c := newCluster(t, 3, func(_ *server, c *Config) { c.Metrics = &seen })
		defer c.stopAll()
		c.keyspace("orders", 8, testTTL)
		for id := range state.SessionID(50) {
			c.session(1+id, "orders")
		}
		l := c.leader().store
		before := l.Status().LastIndex
		var wg sync.WaitGroup
		for id := range state.SessionID(60) {
			wg.Go(func() {
				k, err := l.KeepAlive(t.Context(), 1+id)
				switch {
				case id < 50 && (err != nil || k.TTL != testTTL || k.Term != l.Term() || k.Index <= before):
					t.Errorf("session %d: %+v %v", 1+id, k, err)
				case id >= 50 && state.ReasonOf(err) != state.ReasonNotFound:
					t.Errorf("unknown session %d: %+v %v", 1+id, k, err)
				}
			})
		}
		wg.Wait()
		if n := l.Status().LastIndex - before; n > 2 {
			t.Errorf("60 renewals took %d entries", n)
		}
		if n := seen.renewed.Load(); n != 50 {
			t.Errorf("%d renewals counted", n)
		}
	})
}

func TestAcknowledgedKeepAliveSurvivesALeaderCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		c.keyspace("orders", 8, testTTL)
		c.session(1, "orders")
		for range 5 {
			time.Sleep(testTTL / 2)
			l := c.leader()
			k, err := l.store.KeepAlive(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			l.crash()
			c.leader().store.View(func(st *state.State) {
				if ses, ok := st.Session(1); !ok || ses.Renewal < k.Index {
					t.Errorf("renewed in entry %d, the next leader has %+v", k.Index, ses)
				}
			})
			l.start()
		}
	})
}

func TestUnreadableEntryStopsTheServerWithAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		s := c.servers[0]
		c.leader()
		_ = s.store.running().Apply([]byte{1, 0x80, 2, 3}, 0).Error()
		<-s.done
		var failure *StorageError
		if !errors.As(s.err, &failure) || failure.Op != "apply entry" {
			t.Errorf("Run: %v", s.err)
		}
	})
}

func TestBadConfigNamesTheField(t *testing.T) {
	for field, c := range map[string]Config{
		"server id":        {Wall: testWall},
		"election timeout": {ServerID: "a", Wall: testWall, ElectionTimeout: time.Millisecond},
		"disk hang exit":   {ServerID: "a", Wall: testWall, HangExit: time.Second},
		"wall clock":       {ServerID: "a", Wall: func() time.Time { return time.Unix(0, 0) }},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestFirstTokenIsExactAndBounded(t *testing.T) {
	if got := FirstToken(firstWall); got != 0 {
		t.Errorf("at the epoch: %d", got)
	}
	if got, want := FirstToken(firstWall.Add(time.Second)), state.Token(100<<13); got != want {
		t.Errorf("a second later: %d, want %d", got, want)
	}
	if got := FirstToken(firstWall.AddDate(300, 0, 0)); got > state.MaxToken {
		t.Errorf("in 300 years: %d is above %d", got, state.MaxToken)
	}
}
