package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func TestRunGetsPartitionsAndLeavesCleanly(t *testing.T) {
	inBubble(t, 10*time.Second, 3, func(b *bench) {
		b.join()
		b.run(func(ctx context.Context, l *Lease) error {
			if l.Keyspace() != "orders" || l.Stamp().Owner != "w1" || l.Check() != nil {
				t.Errorf("lease %v: %v", l.Stamp(), l.Check())
			}
			if s, ok := TokenFrom(ctx); !ok || s != l.Stamp() {
				t.Errorf("TokenFrom = %v, %v", s, ok)
			}
			l.Ready()
			return untilDone(ctx, l)
		})
		s := b.c.only()
		b.c.grant(s, 1, 2, 3)
		b.seen.started(t, 3)
		pass(time.Minute)
		last := b.c.seen()[len(b.c.seen())-1]
		if last.GetRunning() != 3 || last.GetReady() != 3 {
			t.Errorf("keep-alive says running %d, ready %d; want 3, 3", last.GetRunning(), last.GetReady())
		}
		if err := b.finish(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if n := b.c.held(s); n != 0 {
			t.Errorf("%d leases were not given back", n)
		}
		if len(b.c.leaves) != 1 || !b.c.leaves[0].GetRestart() {
			t.Errorf("leaves %v: want one, for a restart", b.c.leaves)
		}
		for _, r := range b.c.releases {
			if r.GetCause() != leaseholdv1.ReleaseCause_RELEASE_CAUSE_DRAINED {
				t.Errorf("released with %v, want drained", r.GetCause())
			}
		}
		for _, x := range b.seen.ended(t, 3) {
			if x.cause != ErrReturned {
				t.Errorf("context ended with %v", x.cause)
			}
		}
		if err := b.w.Run(b.t.Context(), "orders", untilDone); !errors.Is(err, ErrShutdown) {
			t.Errorf("Run after the end = %v", err)
		}
	})
}

func TestLeaveIsForGood(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		b.run(untilDone)
		s := b.c.only()
		b.c.grant(s, 7)
		b.seen.started(t, 1)
		if err := b.w.Leave(b.t.Context()); err != nil {
			t.Errorf("Leave = %v", err)
		}
		if err := <-b.done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if len(b.c.leaves) != 1 || b.c.leaves[0].GetRestart() {
			t.Errorf("leaves %v: want one, not for a restart", b.c.leaves)
		}
		b.stop()
	})
}

func TestKeepAlivesGoOnUntilTheLastHandlerHasReturned(t *testing.T) {
	inBubble(t, 3*time.Second, 1, func(b *bench) {
		b.join()
		b.run(func(ctx context.Context, l *Lease) error {
			<-l.Draining()
			pass(20 * time.Second) // many TTLs
			return context.Cause(ctx)
		})
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		if err := b.finish(); err != nil {
			t.Errorf("Run = %v", err)
		}
		if x := b.seen.ended(t, 1)[0]; x.cause != ErrReturned {
			t.Errorf("context ended with %v while the handler was finishing", x.cause)
		}
	})
}

func TestShutdownIsBounded(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join(func(c *Config) { c.ShutdownTimeout = 5 * time.Second; c.StopGrace = time.Second })
		block := make(chan struct{})
		b.run(func(ctx context.Context, l *Lease) error {
			<-block
			return nil
		})
		b.c.grant(b.c.only(), 4)
		b.seen.started(t, 1)
		began := time.Now()
		err := b.finish()
		if !errors.Is(err, ErrHandlersRunning) || err == nil {
			t.Fatalf("Run = %v, want ErrHandlersRunning", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Run returned after %v", took)
		}
		if x := b.seen.ended(t, 1)[0]; x.cause != ErrShutdown {
			t.Errorf("context ended with %v, want ErrShutdown", x.cause)
		}
		close(block)
		b.seen.wait(t, "the handler's return", func() bool { return len(b.seen.returns) == 1 })
	})
}

func TestLeaveWithoutADrainFromTheServersDrainsLocally(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.c.noDrain = true
		b.join()
		b.run(untilDone)
		b.c.grant(b.c.only(), 1, 2)
		b.seen.started(t, 2)
		began := time.Now()
		if err := b.finish(); err != nil {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("left after %v, want about %v", took, drainWait)
		}
	})
}

func TestHoldRunsOnce(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.c.parts = 1
		w := b.join()
		want := errors.New("done with it")
		result := make(chan error, 1)
		calls := 0
		go func() {
			result <- w.Hold(b.t.Context(), "orders", func(ctx context.Context, l *Lease) error {
				calls++
				pass(time.Second)
				return want
			})
		}()
		s := b.c.only()
		b.c.grant(s, 0)
		if err := <-result; err != want {
			t.Errorf("Hold = %v, want fn's error", err)
		}
		if calls != 1 || b.c.held(s) != 0 {
			t.Errorf("fn ran %d times, %d leases held", calls, b.c.held(s))
		}
	})
}

func TestHoldWantsOnePartition(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		w := b.join()
		if err := w.Hold(b.t.Context(), "orders", untilDone); err == nil {
			t.Error("Hold of a keyspace of 64 partitions: no error")
		}
	})
}

func TestTwoRunsShareASession(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.c.spaces = []string{"orders", "mails"}
		w := b.join()
		b.run(untilDone)
		s := b.c.only()
		second := make(chan error, 1)
		ctx, cancel := context.WithCancel(b.t.Context())
		defer cancel()
		go func() { second <- w.Run(ctx, "mails", untilDone) }()
		b.c.wait("the second keyspace", func() bool { return len(s.keyspaces) == 2 })
		if err := w.Run(b.t.Context(), "orders", untilDone); !errors.Is(err, ErrKeyspaceBusy) {
			t.Errorf("a third Run of the same keyspace = %v", err)
		}
		var refused *RefusedError
		if err := w.Run(b.t.Context(), "nothing", untilDone); !errors.As(err, &refused) {
			t.Errorf("Run of an unknown keyspace = %v", err)
		}
		b.c.grant(s, 5)
		b.seen.started(t, 1)
		if err := b.finish(); err != nil {
			t.Errorf("first Run = %v", err)
		}
		if err := <-second; err != nil {
			t.Errorf("second Run = %v", err)
		}
	})
}

func TestUnknownKeyspaceIsAnErrorNotARetry(t *testing.T) {
	inBubble(t, 10*time.Second, 3, func(b *bench) {
		w := b.join()
		err := w.Run(b.t.Context(), "odrers", untilDone)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Detail.GetReason() != leaseholdv1.ReasonNotFound {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestStopGraceAgainstTTL(t *testing.T) {
	inBubble(t, 3*time.Second, 1, func(b *bench) {
		w := b.join(func(c *Config) { c.StopGrace = 2 * time.Second })
		err := w.Run(b.t.Context(), "orders", untilDone)
		if err == nil {
			t.Fatal("StopGrace 2s with a TTL of 3s: no error")
		}
		for _, part := range []string{"StopGrace 2s", "TTL 3s"} {
			if !contains(err.Error(), part) {
				t.Errorf("error %q does not name %q", err, part)
			}
		}
	})
}
