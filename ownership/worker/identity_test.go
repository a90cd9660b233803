package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
)

// O-16: superseded means out, for good.
func TestSupersededWorkerDoesNotRejoin(t *testing.T) {
	for reason, want := range map[string]error{
		leaseholdv1.ReasonSuperseded: ErrSuperseded,
		leaseholdv1.ReasonEvicted:    ErrEvicted,
	} {
		t.Run(reason, func(t *testing.T) {
			inBubble(t, 10*time.Second, 1, func(b *bench) {
				b.join()
				b.run(func(ctx context.Context, l *Lease) error {
					<-ctx.Done()
					pass(100 * time.Millisecond)
					return nil
				})
				s := b.c.only()
				b.c.grant(s, 1, 2)
				b.seen.started(t, 2)
				b.c.bar(s, reason)
				if err := <-b.done; !errors.Is(err, want) {
					t.Errorf("Run = %v, want %v", err, want)
				}
				for _, x := range b.seen.ended(t, 2) {
					if x.cause != want {
						t.Errorf("context ended with %v", x.cause)
					}
				}
				b.c.wait("the strict leases to be given back", func() bool { return len(s.held) == 0 })
				pass(time.Minute)
				if b.c.opens != 1 {
					t.Errorf("opened %d sessions", b.c.opens)
				}
				b.stop()
			})
		})
	}
}

// O-16: a session that was barred while the stream was broken is told so on
// the next one, and its leases go back through it.
func TestBarredWhileAway(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		b.run(untilDone)
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		b.c.mu.Lock()
		s.barred = leaseholdv1.ReasonSuperseded
		close(s.out)
		s.out = nil
		b.c.mu.Unlock()
		if err := <-b.done; !errors.Is(err, ErrSuperseded) {
			t.Errorf("Run = %v", err)
		}
		b.c.wait("the lease to be given back", func() bool { return len(s.held) == 0 })
		b.stop()
	})
}

func TestWorkerIDInUseNamesTheOther(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.c.open = func(o *leaseholdv1.OpenSession) error {
			return leaseholdv1.StatusError(codes.AlreadyExists, &leaseholdv1.ErrorDetail{
				Reason: leaseholdv1.ReasonWorkerIDInUse, Owner: "10.1.1.1:999", Value: o.GetWorkerId(), RetryAfterMs: 1000})
		}
		w := b.join()
		err := w.Run(b.t.Context(), "orders", untilDone)
		if !errors.Is(err, ErrWorkerIDInUse) || !contains(err.Error(), "10.1.1.1:999") || !contains(err.Error(), "w1") {
			t.Errorf("Run = %v", err)
		}
		if b.c.opens != 2 {
			t.Errorf("asked %d times, want twice: the process before may just be going", b.c.opens)
		}
	})
}

// A cluster that refuses every session it is asked for is asked again and
// again, but not as fast as it answers.
func TestRefusedSessionsAreNotAHotLoop(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.c.open = func(*leaseholdv1.OpenSession) error {
			return refusedWith(codes.NotFound, leaseholdv1.ReasonExpired, "")
		}
		b.join()
		b.run(untilDone)
		pass(10 * time.Second)
		b.c.mu.Lock()
		if b.c.opens < 10 || b.c.opens > 60 {
			t.Errorf("%d tries in 10 s", b.c.opens)
		}
		b.c.mu.Unlock()
		if err := b.finish(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want the end of its context", err)
		}
	})
}

// A worker that is told to leave while its session is being opened closes the
// session that the servers have opened meanwhile.
func TestLeaveWhileTheSessionIsBeingOpened(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		b.c.openLag = 2 * time.Second
		b.run(untilDone)
		s := b.c.only()
		pass(500 * time.Millisecond) // the answer is on its way
		b.stop()
		<-b.done
		b.c.mu.Lock()
		defer b.c.mu.Unlock()
		if !s.leaving || !s.deadline.IsZero() {
			t.Error("the session was left to its TTL")
		}
	})
}
