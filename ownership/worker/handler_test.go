package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/prometheus/client_golang/prometheus"
)

// causes counts releases by cause.
func (c *cluster) causes() map[leaseholdv1.ReleaseCause]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[leaseholdv1.ReleaseCause]int{}
	for _, r := range c.releases {
		out[r.GetCause()] += len(r.GetLeases())
	}
	return out
}

// What a handler returns decides how the lease goes back.
func TestReturnDecidesTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		h     Handler
		drain bool
		want  leaseholdv1.ReleaseCause
		text  string
	}{
		"nil":             {func(context.Context, *Lease) error { return nil }, false, leaseholdv1.ReleaseCause_RELEASE_CAUSE_YIELD, ""},
		"nil after drain": {untilDone, true, leaseholdv1.ReleaseCause_RELEASE_CAUSE_DRAINED, ""},
		"error":           {func(context.Context, *Lease) error { return errors.New("no disk") }, false, leaseholdv1.ReleaseCause_RELEASE_CAUSE_FAILED, "no disk"},
		"error after drain": {func(_ context.Context, l *Lease) error {
			<-l.Draining()
			return errors.New("flush failed")
		}, true, leaseholdv1.ReleaseCause_RELEASE_CAUSE_FAILED, "flush failed"},
		"panic": {func(context.Context, *Lease) error { panic("oh no") }, false, leaseholdv1.ReleaseCause_RELEASE_CAUSE_FAILED, "oh no"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 10*time.Second, 1, func(b *bench) {
				b.join()
				b.run(tc.h)
				s := b.c.only()
				b.c.grant(s, 1)
				b.seen.started(t, 1)
				if tc.drain {
					pass(time.Second)
					b.c.drain(s, 30*time.Second, 1)
				}
				b.c.wait("a release", func() bool { return len(b.c.releases) == 1 })
				if r := b.c.releases[0]; r.GetCause() != tc.want || !contains(r.GetError(), tc.text) {
					t.Errorf("released with %v %q; want %v %q", r.GetCause(), r.GetError(), tc.want, tc.text)
				}
				b.finish() // after it, all that was to be logged is
				if name == "panic" && !b.log.has("handler_test.go") {
					t.Error("the log does not have the panic's stack")
				}
			})
		})
	}
}

// O-23: the drain's time is over. The handler hears ErrDrainTimeout, and in
// strict mode nobody else gets the partition before it has returned.
func TestDrainSlowerThanTheHandoffTimeout(t *testing.T) {
	for _, mode := range []leaseholdv1.Takeover{leaseholdv1.Takeover_TAKEOVER_STRICT, leaseholdv1.Takeover_TAKEOVER_FENCED} {
		t.Run(mode.String(), func(t *testing.T) {
			inBubble(t, 5*time.Second, 1, func(b *bench) {
				b.c.mode = mode
				b.join()
				b.run(func(ctx context.Context, l *Lease) error {
					<-l.Draining()
					if left := time.Until(l.DrainBy()); left < 9*time.Second || left > 10*time.Second {
						t.Errorf("DrainBy is %v away", left)
					}
					pass(30 * time.Second)
					if context.Cause(ctx) != ErrDrainTimeout || !errors.Is(l.Check(), ErrDrainTimeout) {
						t.Errorf("cause %v, Check %v", context.Cause(ctx), l.Check())
					}
					return nil
				})
				s := b.c.only()
				b.c.grant(s, 1)
				b.seen.started(t, 1)
				b.c.drain(s, 10*time.Second, 1)
				x := b.seen.ended(t, 1)[0]
				pass(5 * time.Second)
				strict := mode == leaseholdv1.Takeover_TAKEOVER_STRICT
				if held := b.c.held(s) == 1; held != strict {
					t.Errorf("held after the timeout with the handler running: %v", held)
				}
				b.c.wait("the lease back", func() bool { return len(s.held) == 0 })
				if n := b.c.causes()[leaseholdv1.ReleaseCause_RELEASE_CAUSE_ENDED]; n != 1 || x.cause != ErrDrainTimeout {
					t.Errorf("%d released as ended, cause %v", n, x.cause)
				}
				pass(30 * time.Second)
				b.finish()
			})
		})
	}
}

// O-24: fifty handlers that start slowly, with a slow guard before them, hold
// up no keep-alive.
func TestSlowStartDoesNotStarveKeepAlives(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		guard := guardFunc(func(context.Context, []fence.Stamp) error {
			pass(20 * time.Second)
			return nil
		})
		var one sync.Mutex // a resource that serves one at a time
		b.run(func(ctx context.Context, l *Lease) error {
			for !one.TryLock() {
				pass(10 * time.Millisecond)
			}
			pass(time.Second)
			one.Unlock()
			l.Ready()
			return untilDone(ctx, l)
		}, Claim(guard))
		var all []uint32
		for p := range uint32(50) {
			all = append(all, p)
		}
		b.c.grant(b.c.only(), all...)
		b.seen.started(t, 50)
		pass(2 * time.Minute)
		if len(b.c.sessions) != 1 {
			t.Errorf("%d sessions", len(b.c.sessions))
		}
		sees, ready := b.c.seen(), []uint32{}
		for _, k := range sees {
			if n := len(ready); n == 0 || ready[n-1] != k.GetReady() {
				ready = append(ready, k.GetReady())
			}
		}
		if len(ready) < 10 || ready[len(ready)-1] != 50 {
			t.Errorf("progress of the start as the servers saw it: %v", ready)
		}
		if _, ends, _ := b.seen.counts(); ends != 0 {
			t.Errorf("%d contexts ended", ends)
		}
		b.finish()
	})
}

// A token is run once, whatever arrives late or twice; a re-grant waits for the
// old handler.
func TestRegrantWaitsForTheOldHandler(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.c.mode = leaseholdv1.Takeover_TAKEOVER_FENCED
		b.join(func(c *Config) { c.StopGrace = 3 * time.Second })
		running := map[uint32]int{}
		var mu sync.Mutex
		b.run(func(ctx context.Context, l *Lease) error {
			mu.Lock()
			running[l.Partition()]++
			if running[l.Partition()] > 1 {
				t.Errorf("two handlers of partition %d", l.Partition())
			}
			mu.Unlock()
			<-ctx.Done()
			pass(2 * time.Second) // slow to stop, within StopGrace
			mu.Lock()
			running[l.Partition()]--
			mu.Unlock()
			return nil
		})
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		b.c.grant(s, 1) // the servers revoked and granted anew
		pass(time.Second)
		if starts, ends, _ := b.seen.counts(); starts != 1 || ends != 1 {
			t.Errorf("%d starts, %d ends before the old handler returned", starts, ends)
		}
		b.seen.started(t, 2)
		b.stop()
		<-b.done
	})
}

// A handler that does not return is an overrun: counted, told, and its
// partition is refused until it has returned.
func TestOverrunIsToldAndItsPartitionRefused(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		var mu sync.Mutex
		var told []time.Duration
		reg := prometheus.NewRegistry()
		m := metrics.NewWorker()
		reg.MustRegister(m)
		b.join(func(c *Config) {
			c.Metrics = m
			c.StopGrace = time.Second
			c.OnOverrun = func(l *Lease, since time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, since)
			}
		})
		release := make(chan struct{})
		b.run(func(ctx context.Context, l *Lease) error {
			mu.Lock()
			first := len(told) == 0
			mu.Unlock()
			if first {
				<-release
				return nil
			}
			return untilDone(ctx, l)
		})
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		b.c.net.swallow(b.c.addrs...)
		b.seen.ended(t, 1)
		pass(1500 * time.Millisecond)
		mu.Lock()
		if len(told) != 1 || told[0] < time.Second || told[0] > 1500*time.Millisecond {
			t.Errorf("OnOverrun was called %d times: %v", len(told), told)
		}
		mu.Unlock()
		pass(20 * time.Second)
		b.c.net.heal(b.c.addrs...)
		again := b.c.only()
		b.c.grant(again, 1)
		b.c.wait("the refusal", func() bool { return len(again.held) == 0 })
		if n := b.c.causes()[leaseholdv1.ReleaseCause_RELEASE_CAUSE_REFUSED]; n != 1 {
			t.Errorf("%d refused", n)
		}
		close(release)
		b.seen.wait(t, "the return", func() bool { return len(b.seen.returns) == 1 })
		b.c.grant(again, 1)
		b.seen.started(t, 2)
		if got := gathered(t, reg, "leasehold_worker_overruns_total"); got != 1 {
			t.Errorf("leasehold_worker_overruns_total = %v", got)
		}
		b.stop()
		<-b.done
	})
}

// Time has ended a lease, its handler goes on, and the servers are back before
// the session's TTL was over: the lease goes back all the same, or nobody would
// get the partition for as long as the handler runs.
func TestExpiredLeaseOfAnOverrunIsGivenBack(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join(func(c *Config) { c.StopGrace = 2 * time.Second })
		release := make(chan struct{})
		b.run(func(ctx context.Context, l *Lease) error {
			<-release
			return nil
		})
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		pass(time.Second)
		b.c.net.swallow(b.c.addrs...)
		b.seen.ended(t, 1)
		b.c.net.heal(b.c.addrs...)
		b.c.wait("the lease back", func() bool { return len(s.held) == 0 })
		if b.c.only() != s {
			t.Error("the session was given up although it was alive")
		}
		close(release)
		b.seen.wait(t, "the return", func() bool { return len(b.seen.returns) == 1 })
		b.finish()
	})
}

func gathered(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no series %s", name)
	return 0
}

// O-28: a wedged handler is drained away by the operator; the session and its
// other partitions go on.
func TestWedgedHandlerHoldsUpNothingElse(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		wedge := make(chan struct{})
		b.run(func(ctx context.Context, l *Lease) error {
			if l.Partition() == 1 {
				<-wedge
			}
			return untilDone(ctx, l)
		})
		s := b.c.only()
		b.c.grant(s, 1, 2)
		b.seen.started(t, 2)
		b.c.drain(s, 5*time.Second, 1, 2)
		b.c.wait("the healthy one back", func() bool { return len(s.held) == 1 })
		pass(30 * time.Second)
		if ends := b.seen.ended(t, 2); len(ends) != 2 {
			t.Errorf("ends: %v", fmt.Sprint(ends))
		}
		if b.c.only() != s || b.c.held(s) != 1 {
			t.Error("a strict lease went back although its handler is running")
		}
		close(wedge)
		b.c.wait("the wedged one back", func() bool { return len(s.held) == 0 })
		b.finish()
	})
}
