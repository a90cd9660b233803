package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Code far below a handler, and the guard of a claim, find what they need in
// their context.
func TestContextsCarryStampAndTTL(t *testing.T) {
	inBubble(t, 7*time.Second, 1, func(b *bench) {
		b.join()
		guard := guardFunc(func(ctx context.Context, stamps []fence.Stamp) error {
			if ttl := fence.TTLFromContext(ctx); ttl != 7*time.Second {
				t.Errorf("the claim's context has TTL %v", ttl)
			}
			if s, _ := fence.FromContext(ctx); s != (fence.Stamp{}) {
				t.Errorf("the claim's context has the stamp %v, and it is about many", s)
			}
			return nil
		})
		b.run(func(ctx context.Context, l *Lease) error {
			below, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			want := fence.Stamp{Keyspace: "orders", Partition: l.Partition(), Token: l.Token(), Owner: "w1"}
			for _, ctx := range []context.Context{ctx, below} {
				if s, ok := fence.FromContext(ctx); !ok || s != want {
					t.Errorf("the context carries %v, %v; want %v", s, ok, want)
				}
				if ttl := fence.TTLFromContext(ctx); ttl != 7*time.Second || l.TTL() != ttl {
					t.Errorf("TTL %v in the context, %v of the lease", ttl, l.TTL())
				}
				if s, ok := TokenFrom(ctx); !ok || s != want {
					t.Errorf("TokenFrom = %v, %v", s, ok)
				}
			}
			return untilDone(ctx, l)
		}, Claim(guard))
		b.c.grant(b.c.only(), 1, 2)
		b.seen.started(t, 2)
		b.finish()
	})
}

// Deadline is when the context ends, and moves on with each acknowledgement.
func TestDeadlineIsWhenTheContextEnds(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		b.run(untilDone)
		b.c.grant(b.c.only(), 1)
		b.seen.started(t, 1)
		l := b.seen.starts[0].l
		first, ok := l.Deadline()
		if !ok || first != b.seen.starts[0].at+9500*time.Millisecond {
			t.Errorf("deadline %v, %v after the session was opened at %v", first, ok, b.seen.starts[0].at)
		}
		pass(3 * time.Second)
		second, _ := l.Deadline()
		if second != b.seen.lastAck()+9500*time.Millisecond || second <= first {
			t.Errorf("deadline %v after a keep-alive sent at %v was acknowledged", second, b.seen.lastAck())
		}
		b.c.net.swallow(b.c.addrs...)
		x := b.seen.ended(t, 1)[0]
		if d := x.at - second; d < 0 || d > 5*time.Millisecond {
			t.Errorf("the context ended %v after the deadline that was told", d)
		}
		if _, ok := l.Deadline(); ok {
			t.Error("an ended lease has a deadline")
		}
		b.stop()
		<-b.done
	})
}

// The loop is late: the handler sees in Check that the deadline has passed, and
// returns before its context has ended. That is the end of the lease, no fault
// of the partition, or a slow machine would have its partitions quarantined.
func TestHandlerThatSawTheEndFirstHasNotFailed(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		clock := &skewed{Clock: bootclock.Monotonic()}
		b.join(func(c *Config) { c.Clock = clock })
		b.run(func(ctx context.Context, l *Lease) error {
			pass(2600 * time.Millisecond) // right after a keep-alive: the loop sleeps
			clock.ahead.Add(int64(9800 * time.Millisecond))
			err := l.Check()
			if !errors.Is(err, ErrExpired) || ctx.Err() != nil {
				t.Errorf("Check = %v, context %v: the test is about the moment between the two", err, ctx.Err())
			}
			return fmt.Errorf("write order: %w", err)
		})
		s := b.c.only()
		b.c.grant(s, 1)
		x := b.seen.ended(t, 1)[0]
		if !errors.Is(x.cause, ErrExpired) {
			t.Errorf("the end was told as %v", x.cause)
		}
		b.c.wait("a release", func() bool { return len(b.c.releases) == 1 })
		if r := b.c.releases[0]; r.GetCause() != leaseholdv1.ReleaseCause_RELEASE_CAUSE_ENDED || r.GetError() != "" {
			t.Errorf("released with %v %q", r.GetCause(), r.GetError())
		}
		b.finish()
		if b.log.has("handler failed") {
			t.Error("the log says that the handler failed")
		}
	})
}

// What a handler returns while its lease lives, and how the lease goes back.
func TestErrorsAboutTheLeaseDoNotCountAgainstThePartition(t *testing.T) {
	const failed, ended, yield, refused = "FAILED", "ENDED", "YIELD", "CLAIM_REFUSED"
	stale := func(token, current fence.Token) error {
		return &fence.StaleError{Stamp: fence.Stamp{Token: token}, Current: current, Reason: fence.ReasonStale}
	}
	for name, c := range map[string]struct {
		err  error
		want string
		told error // by ContextEnd
	}{
		"nothing":                  {nil, yield, ErrReturned},
		"own error":                {errors.New("no disk"), failed, ErrReturned},
		"expired, wrapped":         {fmt.Errorf("write: %w", ErrExpired), ended, ErrExpired},
		"expired, joined":          {errors.Join(errors.New("no disk"), ErrExpired), ended, ErrExpired},
		"revoked":                  {ErrRevoked, ended, ErrRevoked},
		"drain timeout":            {ErrDrainTimeout, ended, ErrDrainTimeout},
		"superseded":               {ErrSuperseded, ended, ErrSuperseded},
		"evicted":                  {ErrEvicted, ended, ErrEvicted},
		"shutdown":                 {ErrShutdown, ended, ErrShutdown},
		"unconfirmed":              {fmt.Errorf("write: %w", ErrUnconfirmed), yield, ErrReturned},
		"fenced":                   {fmt.Errorf("write: %w", stale(20, 33)), refused, ErrRevoked},
		"fenced, without a token":  {fmt.Errorf("409 from the store: %w", fence.ErrStale), refused, ErrRevoked},
		"stale by another token":   {fmt.Errorf("write: %w", stale(19, 20)), failed, ErrReturned},
		"panic with an end's name": {&PanicError{Value: ErrExpired}, failed, ErrReturned},
		"goroutine ended":          {errNotReturned, failed, ErrReturned},
		"context cancelled itself": {context.Canceled, failed, ErrReturned},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHand(strict, nil)
			h.grant(1, 20)
			l := h.started[0]
			h.c.returned(l, resultOf(l, c.err), h.now())
			h.step()
			if got := fmt.Sprint(h.releases()); got != "[1:20:"+c.want+"]" {
				t.Errorf("released %s, want %s", got, c.want)
			}
			if got := h.ended[l]; got != c.told {
				t.Errorf("told as %v, want %v", got, c.told)
			}
		})
	}
}

// A keep-alive is acknowledged between the handler's Check and the loop's look
// at its return: the lease lives again, and the return is still no failure.
func TestRevivedLeaseOfAHandlerThatGaveUp(t *testing.T) {
	h := newHand(strict, nil)
	h.grant(1, 20)
	h.advance(2500 * time.Millisecond) // a keep-alive goes out
	l := h.started[0]
	h.clock = h.c.session.until
	err := l.Check()
	s := &h.c.session
	h.c.streamAnswered()
	h.c.acked(&leaseholdv1.KeepAliveResponse{SessionId: s.id, Seq: s.seq, TtlMs: 10_000}, h.now())
	if err == nil || l.Check() != nil {
		t.Fatalf("Check = %v, then %v", err, l.Check())
	}
	h.c.returned(l, resultOf(l, err), h.now())
	h.step()
	if got := fmt.Sprint(h.releases()); got != "[1:20:ENDED]" {
		t.Errorf("released %s", got)
	}
}

// The resource has seen a higher token than the servers have ever granted, as
// after a cluster was wiped. The handler's refusal reaches the servers before
// the lease goes back, so that the next grant is above it.
func TestFencedHandlerReportsWhatTheResourceHasSeen(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		guard := fence.NewMemory(nil)
		high := fence.Stamp{Keyspace: "orders", Partition: 1, Token: 999_999, Owner: "w9"}
		if err := guard.Claim(b.t.Context(), []fence.Stamp{high}); err != nil {
			t.Fatal(err)
		}
		first := true
		b.run(func(ctx context.Context, l *Lease) error {
			if !first {
				return untilDone(ctx, l)
			}
			first = false
			if err := guard.Do(l.Stamp(), func() error { return nil }); err != nil {
				return fmt.Errorf("insert order: %w", err)
			}
			return nil
		})
		s := b.c.only()
		b.c.grant(s, 1)
		b.c.wait("the lease back", func() bool {
			if len(b.c.releases) == 1 && len(b.c.reports) == 0 {
				t.Error("the lease went back before the token was reported")
			}
			return len(b.c.releases) == 1
		})
		if len(b.c.reports) != 1 || b.c.reports[0] != 999_999 {
			t.Errorf("reported %v", b.c.reports)
		}
		if r := b.c.releases[0]; r.GetCause() != leaseholdv1.ReleaseCause_RELEASE_CAUSE_CLAIM_REFUSED {
			t.Errorf("released with %v", r.GetCause())
		}
		b.c.grant(s, 1) // it is not refused: nothing is wrong with the partition
		b.seen.started(t, 2)
		b.finish()
		if !b.log.has("WARN fenced") || !b.log.has("current=999999") || b.log.has("handler failed") {
			t.Errorf("log: %q", b.log.lines)
		}
	})
}

// O-73: the resource has the very token with another owner. That cannot be, so
// it is an incident.
func TestTokenOfAnotherOwnerIsAnIncident(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		guard := fence.NewMemory(nil)
		b.run(func(ctx context.Context, l *Lease) error {
			forged := l.Stamp()
			forged.Owner = "w9"
			if err := guard.Claim(ctx, []fence.Stamp{forged}); err != nil {
				t.Error(err)
			}
			return guard.Do(l.Stamp(), func() error { return nil })
		})
		b.c.grant(b.c.only(), 1)
		b.c.wait("the lease back", func() bool { return len(b.c.releases) == 1 })
		if r := b.c.releases[0]; r.GetCause() != leaseholdv1.ReleaseCause_RELEASE_CAUSE_CLAIM_REFUSED || len(b.c.reports) != 0 {
			t.Errorf("released with %v, reported %v", r.GetCause(), b.c.reports)
		}
		b.finish()
		if !b.log.has("ERROR fenced") || b.log.has("handler failed") {
			t.Errorf("log: %q", b.log.lines)
		}
	})
}

// A zombie whose write bounces after its context has ended is told of in the
// log, and nothing else comes of it.
func TestFencedAfterTheEnd(t *testing.T) {
	h := newHand(fenced, nil)
	h.grant(1, 20)
	l := h.started[0]
	h.c.changes(&leaseholdv1.LeaseChanges{Index: 9, Revoked: []*leaseholdv1.Leases{
		{KeyspaceId: 1, Partitions: []uint32{1}, Tokens: []uint64{20}}}}, h.now())
	h.step()
	h.c.returned(l, resultOf(l, &fence.StaleError{Stamp: l.Stamp(), Current: 21, Reason: fence.ReasonStale}), h.now())
	if n := len(h.c.out.logs); n != 1 || h.c.out.logs[0].msg[:6] != "fenced" {
		t.Errorf("logged %v", h.c.out.logs)
	}
	h.step()
	for _, m := range h.sent {
		if m.GetReportToken() != nil {
			t.Error("reported a token that the servers have granted themselves")
		}
	}
}

// Hold returns its function's error; what the resource has seen still reaches
// the servers.
func TestFencedHoldReportsToo(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.c.parts = 1
		b.join()
		done := make(chan error, 1)
		go func() {
			done <- b.w.Hold(b.t.Context(), "orders", func(ctx context.Context, l *Lease) error {
				return &fence.StaleError{Stamp: l.Stamp(), Current: 999_999, Reason: fence.ReasonStale}
			})
		}()
		b.c.grant(b.c.only(), 0)
		if err := <-done; !errors.Is(err, fence.ErrStale) {
			t.Errorf("Hold = %v", err)
		}
		if len(b.c.reports) != 1 || b.c.reports[0] != 999_999 {
			t.Errorf("reported %v", b.c.reports)
		}
	})
}
