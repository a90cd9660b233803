package raftstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// register is the model: a number that is written and read.
type register struct {
	write bool
	value int64
}

var registerModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(st, in, out any) (bool, any) {
		if op := in.(register); op.write {
			return true, op.value
		}
		return out.(int64) == st.(int64), st
	},
}

// The register lives in a setting of a keyspace.
func writeRegister(v int64) state.Command {
	return &state.UpdateKeyspace{Name: "register", Settings: state.Settings{
		TTL: time.Hour, Takeover: state.Strict, HandoffTimeout: time.Second + time.Duration(v)*time.Millisecond,
	}}
}

func readRegister(st *state.State) int64 {
	k, ok := st.KeyspaceByName("register")
	if !ok {
		return 0
	}
	return int64((k.Settings.HandoffTimeout - time.Second) / time.Millisecond)
}

// history writes and reads at every server while disturb is at work, and
// returns what happened.
func history(t *testing.T, read func(context.Context, *Store, func(*state.State)) error, disturb func(*cluster), opts ...option) []porcupine.Operation {
	c := newCluster(t, 3, append([]option{onDisk, lossy, func(_ *server, c *Config) { c.HangBound, c.HangExit = time.Hour, 2*time.Hour }}, opts...)...)
	defer c.stopAll()
	c.leader()
	c.do(&state.CreateKeyspace{Name: "register", Partitions: 1, Settings: state.Settings{TTL: time.Hour, Takeover: state.Strict, HandoffTimeout: time.Second}})
	ctx, cancel := context.WithCancel(t.Context())
	start := time.Now()
	var mu sync.Mutex
	var ops []porcupine.Operation
	note := func(client int, in register, call time.Duration, ret time.Duration, out int64) {
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, porcupine.Operation{ClientId: client, Input: in, Call: int64(call), Output: out, Return: int64(ret)})
	}
	const never = 24 * time.Hour
	var wg sync.WaitGroup
	for w := range 9 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 42))
			for i := 0; ctx.Err() == nil; i++ {
				s := c.servers[w%3].now()
				call := time.Since(start)
				if w < 3 {
					v := int64(w*10_000 + i + 1)
					rs, err := s.Propose(ctx, writeRegister(v))
					var not *NotLeaderError
					switch {
					case errors.As(err, &not), errors.Is(err, ErrStopped): // nothing was written
					case err != nil:
						note(w, register{true, v}, call, never, 0)
					case rs[0].Err == nil:
						note(w, register{true, v}, call, time.Since(start), 0)
					}
				} else {
					var got int64
					// Whoever waits for long shows nothing about what came meanwhile.
					rctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
					err := read(rctx, s, func(st *state.State) { got = readRegister(st) })
					cancel()
					if err == nil {
						note(w, register{}, call, time.Since(start), got)
					}
				}
				time.Sleep(time.Duration(1+rng.IntN(30)) * time.Millisecond)
			}
		})
	}
	disturb(c)
	cancel()
	wg.Wait()
	return ops
}

// freeze lets leaders freeze and thaw.
func freeze(c *cluster) {
	for range 5 {
		time.Sleep(time.Second)
		l := c.leader()
		thaw := l.vfs.hangSyncs()
		c.net.stall(l.addr)
		time.Sleep(2500 * time.Millisecond)
		thaw()
		c.net.resume(l.addr)
	}
}

// patient gives the first server a clock that hardly moves, as if it had been
// stopped whenever it is cut off: it stays in office for seconds without hearing
// from anyone.
func patient(s *server, c *Config) {
	if s.id == "s1" {
		c.ElectionTimeout = 6 * time.Second
		c.HangBound = time.Hour
	}
}

// lateAnswers makes the patient server leader and stops it while answers are on
// their way to it. Meanwhile a follower is killed and is back within 100 ms, and
// one is elected. Then the old answers of the other arrive.
func lateAnswers(c *cluster) {
	rng := rand.New(rand.NewPCG(7, 8))
	old := c.servers[0]
	for range 6 {
		c.within(time.Minute, "patient leader", func() bool {
			if old.now().IsLeader() {
				return true
			}
			if l := c.leader(); l != old {
				_ = l.now().TransferLeadership(c.t.Context(), old.peer())
			}
			return old.now().IsLeader()
		})
		c.net.slow(old.addr, 30*time.Millisecond)
		time.Sleep(300*time.Millisecond + time.Duration(rng.IntN(100_000))*time.Microsecond)
		c.net.stall(old.addr)
		s := c.servers[1+rng.IntN(2)]
		s.crash()
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		s.start()
		c.within(time.Minute, "next leader", func() bool {
			return c.servers[1].now().IsLeader() || c.servers[2].now().IsLeader()
		})
		time.Sleep(time.Duration(100+rng.IntN(400)) * time.Millisecond)
		c.net.resume(old.addr)
		time.Sleep(200 * time.Millisecond)
		c.net.slow(old.addr, 0)
	}
}

func TestReadsAreLinearizableWhileLeadersFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ops := history(t, func(ctx context.Context, s *Store, fn func(*state.State)) error { return s.Read(ctx, fn) }, freeze)
		reads := 0
		for _, op := range ops {
			if !op.Input.(register).write {
				reads++
			}
		}
		if reads < 100 || len(ops)-reads < 50 {
			t.Fatalf("only %d reads and %d writes", reads, len(ops)-reads)
		}
		if r := porcupine.CheckOperationsTimeout(registerModel, ops, 20*time.Second); r != porcupine.Ok {
			t.Errorf("%d operations: %v", len(ops), r)
		}
	})
}

func TestLinearizabilityCheckerNoticesStaleReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ops := history(t, func(_ context.Context, s *Store, fn func(*state.State)) error { s.View(fn); return nil }, freeze)
		if r := porcupine.CheckOperationsTimeout(registerModel, ops, 20*time.Second); r != porcupine.Illegal {
			t.Errorf("stale reads pass as %v", r)
		}
	})
}

func TestReadsAreLinearizableWhenAnswersAreLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ops := history(t, func(ctx context.Context, s *Store, fn func(*state.State)) error { return s.Read(ctx, fn) }, lateAnswers, patient)
		reads := 0
		for _, op := range ops {
			if !op.Input.(register).write {
				reads++
			}
		}
		if reads < 100 || len(ops)-reads < 50 {
			t.Fatalf("only %d reads and %d writes", reads, len(ops)-reads)
		}
		if r := porcupine.CheckOperationsTimeout(registerModel, ops, 20*time.Second); r != porcupine.Ok {
			t.Errorf("%d operations: %v", len(ops), r)
		}
	})
}

// Raft's own VerifyLeader counts answers to heartbeats that were sent before it
// was called.
func TestLateAnswersDeceiveVerifyLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ops := history(t, func(ctx context.Context, s *Store, fn func(*state.State)) error {
			r := s.running()
			if r == nil || !s.IsLeader() {
				return ErrStopped
			}
			index := r.CommitIndex()
			verified := make(chan error, 1)
			go func() { verified <- r.VerifyLeader().Error() }()
			select {
			case err := <-verified:
				if err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := s.WaitApplied(ctx, index); err != nil {
				return err
			}
			s.View(fn)
			return nil
		}, lateAnswers, patient)
		if r := porcupine.CheckOperationsTimeout(registerModel, ops, 20*time.Second); r != porcupine.Illegal {
			t.Errorf("stale reads pass as %v", r)
		}
	})
}
