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

// history writes and reads at every server while leaders freeze and thaw, and
// returns what happened.
func history(t *testing.T, read func(context.Context, *Store, func(*state.State)) error) []porcupine.Operation {
	c := newCluster(t, 3, onDisk, lossy, func(_ *server, c *Config) { c.HangBound, c.HangExit = time.Hour, 2*time.Hour })
	defer c.stopAll()
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
			s := c.servers[w%3].store
			for i := 0; ctx.Err() == nil; i++ {
				call := time.Since(start)
				if w < 3 {
					v := int64(w*10_000 + i + 1)
					rs, err := s.Propose(ctx, writeRegister(v))
					var not *NotLeaderError
					switch {
					case errors.As(err, &not): // nothing was written
					case err != nil:
						note(w, register{true, v}, call, never, 0)
					case rs[0].Err == nil:
						note(w, register{true, v}, call, time.Since(start), 0)
					}
				} else {
					var got int64
					err := read(ctx, s, func(st *state.State) { got = readRegister(st) })
					if err == nil {
						note(w, register{}, call, time.Since(start), got)
					}
				}
				time.Sleep(time.Duration(1+rng.IntN(30)) * time.Millisecond)
			}
		})
	}
	for range 5 {
		time.Sleep(time.Second)
		l := c.leader()
		thaw := l.vfs.hangSyncs()
		c.net.stall(l.addr)
		time.Sleep(2500 * time.Millisecond)
		thaw()
		c.net.resume(l.addr)
	}
	cancel()
	wg.Wait()
	return ops
}

func TestReadsAreLinearizableWhileLeadersFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ops := history(t, func(ctx context.Context, s *Store, fn func(*state.State)) error { return s.Read(ctx, fn) })
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
		ops := history(t, func(_ context.Context, s *Store, fn func(*state.State)) error { s.View(fn); return nil })
		if r := porcupine.CheckOperationsTimeout(registerModel, ops, 20*time.Second); r != porcupine.Illegal {
			t.Errorf("stale reads pass as %v", r)
		}
	})
}

func TestReadersShareABarrier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		l := c.leader().store
		before := l.Status().LastIndex
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if err := l.Read(t.Context(), func(*state.State) {}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := l.Status().LastIndex - before; n > 5 {
			t.Errorf("1000 readers took %d entries", n)
		}
	})
}
