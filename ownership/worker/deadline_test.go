package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// O-07: one failed renewal during an election is not the end.
func TestElectionStopsNoOwner(t *testing.T) {
	inBubble(t, 10*time.Second, 3, func(b *bench) {
		b.join()
		b.run(untilDone)
		b.c.grant(b.c.only(), 1)
		b.seen.started(t, 1)
		pass(7 * time.Second)
		b.c.mu.Lock()
		b.c.leader = -1
		b.c.mu.Unlock()
		b.c.servers[0].Stop()
		pass(2 * time.Second)
		b.c.mu.Lock()
		b.c.leader = 1
		b.c.mu.Unlock()
		pass(time.Minute)
		if starts, ends, _ := b.seen.counts(); starts != 1 || ends != 0 || len(b.c.sessions) != 1 {
			t.Errorf("%d starts, %d ends, %d sessions; want 1, 0, 1", starts, ends, len(b.c.sessions))
		}
		if err := b.finish(); err != nil {
			t.Error(err)
		}
	})
}

// O-08: the deadline counts from the send of what was acknowledged, however
// late the acknowledgement comes.
func TestDeadlineCountsFromTheSend(t *testing.T) {
	for _, lag := range []time.Duration{time.Second, 4 * time.Second} {
		inBubble(t, 5*time.Second, 1, func(b *bench) {
			b.join()
			b.run(untilDone)
			b.c.grant(b.c.only(), 1)
			b.seen.started(t, 1)
			pass(10 * time.Second)
			b.c.net.lag(b.c.addrs[0], lag)
			pass(3 * time.Second)
			b.c.net.swallow(b.c.addrs[0])
			x := b.seen.ended(t, 1)[0]
			if x.cause != ErrExpired {
				t.Errorf("ended with %v", x.cause)
			}
			if by := b.seen.lastAck() + 5*time.Second - 250*time.Millisecond; x.at > by+20*time.Millisecond {
				t.Errorf("lag %v: context lived until %v; the last acknowledged keep-alive was sent at %v, so its end is %v", lag, x.at, b.seen.lastAck(), by)
			}
			b.stop()
			<-b.done
		})
	}
}

// O-08: a grant that arrives when its session's time has run out is not held.
func TestGrantAfterTheDeadlineIsNotHeld(t *testing.T) {
	inBubble(t, 5*time.Second, 1, func(b *bench) {
		b.join()
		b.c.keepAlive = func(*leaseholdv1.KeepAliveRequest) error { return status.Error(codes.Unavailable, "gone") }
		b.c.openLag = 6 * time.Second
		b.run(func(ctx context.Context, l *Lease) error {
			t.Error("a handler started under a session whose time had run out")
			return nil
		})
		s := b.c.only()
		s.deadline = time.Now().Add(time.Hour) // whatever the servers think
		b.c.grant(s, 1)
		pass(20 * time.Second)
		if starts, _, _ := b.seen.counts(); starts != 0 {
			t.Errorf("%d handlers started", starts)
		}
		b.stop()
		<-b.done
	})
}

// O-12: an answer that nobody understands is "not confirmed", neither yes nor no.
func TestUnknownErrorsAreRetriedUntilTheDeadline(t *testing.T) {
	for name, answer := range map[string]error{
		"unknown code":    status.Error(codes.Unknown, "no leader"),
		"html":            status.Error(codes.Internal, "<html>500 Internal Server Error</html>"),
		"bare not found":  status.Error(codes.NotFound, "session not found"),
		"unknown outcome": refusedWith(codes.Unknown, leaseholdv1.ReasonUnknownOutcome, ""),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 10*time.Second, 3, func(b *bench) {
				b.join()
				b.run(untilDone)
				b.c.grant(b.c.only(), 1)
				b.seen.started(t, 1)
				pass(5 * time.Second)
				var failing atomic.Bool
				failing.Store(true)
				b.c.mu.Lock()
				b.c.keepAlive = func(*leaseholdv1.KeepAliveRequest) error {
					if failing.Load() {
						return answer
					}
					return nil
				}
				b.c.mu.Unlock()
				pass(6 * time.Second)
				failing.Store(false)
				pass(30 * time.Second)
				if _, ends, _ := b.seen.counts(); ends != 0 {
					t.Fatalf("%d contexts ended although a retry was confirmed in time", ends)
				}
				failing.Store(true)
				x := b.seen.ended(t, 1)[0]
				if d := x.at - b.seen.lastAck(); x.cause != ErrExpired || d < 9*time.Second || d > 9500*time.Millisecond {
					t.Errorf("ended %v after the last acknowledged send with %v", d, x.cause)
				}
				b.stop()
				<-b.done
			})
		})
	}
}

// O-12: a definite refusal stops at once.
func TestDefiniteRefusalStopsAtOnce(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		b.run(untilDone)
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		b.c.mu.Lock()
		s.deadline = time.Now() // expired by the servers' clock
		b.c.mu.Unlock()
		pass(3 * time.Second) // one interval
		if x := b.seen.ended(t, 1)[0]; x.cause != ErrExpired {
			t.Errorf("ended with %v", x.cause)
		}
		if again := b.c.only(); again == s {
			t.Error("no new session")
		}
		b.finish()
	})
}

// O-18: an acknowledgement after the deadline brings no context back.
func TestLateRenewalResurrectsNothing(t *testing.T) {
	inBubble(t, 5*time.Second, 1, func(b *bench) {
		b.join()
		b.run(untilDone)
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		pass(4 * time.Second)
		b.c.net.lag(b.c.addrs[0], 4900*time.Millisecond)
		b.seen.ended(t, 1)
		b.c.net.lag(b.c.addrs[0], 0)
		pass(20 * time.Second)
		if starts, _, _ := b.seen.counts(); starts != 1 {
			t.Errorf("%d starts: the token was run again", starts)
		}
		if b.seen.starts[0].l.Check() == nil {
			t.Error("Check = nil for a lease that has ended")
		}
		if n := b.c.held(s); n != 0 && b.c.only() == s {
			t.Errorf("%d leases are still held at the servers", n)
		}
		b.finish()
	})
}

// O-20: the warning comes well before the end.
func TestOverdueRenewalIsSaidAtHalfTheTTL(t *testing.T) {
	inBubble(t, 6*time.Second, 1, func(b *bench) {
		b.join()
		b.run(untilDone)
		b.c.grant(b.c.only(), 1)
		b.seen.started(t, 1)
		pass(10 * time.Second)
		b.c.mu.Lock()
		b.c.keepAlive = func(*leaseholdv1.KeepAliveRequest) error { return status.Error(codes.Unavailable, "no") }
		b.c.mu.Unlock()
		last := b.seen.lastAck()
		clock := b.w.cfg.Clock
		for !b.log.has("renewal overdue") {
			if clock.Now() > last+3200*time.Millisecond {
				t.Fatal("no warning by half the TTL")
			}
			pass(50 * time.Millisecond)
		}
		if _, ends, _ := b.seen.counts(); ends != 0 {
			t.Error("the context ended before the warning")
		}
		if x := b.seen.ended(t, 1)[0]; x.at > b.seen.lastAck()+6*time.Second {
			t.Errorf("cancelled at %v, after the TTL", x.at)
		}
		b.stop()
		<-b.done
	})
}

// O-86: with nobody reading what the library tells, it renews at its rate.
func TestObserverThatNeverReturns(t *testing.T) {
	inBubble(t, time.Minute, 1, func(b *bench) {
		stuck := make(chan struct{})
		b.join(func(c *Config) {
			o := b.seen.observer()
			o.KeepAliveAcked = func(time.Duration) { <-stuck }
			c.Observer = o
		})
		b.run(untilDone)
		b.c.grant(b.c.only(), 1)
		b.seen.started(t, 1)
		pass(5 * time.Minute)
		if n := len(b.c.seen()); n < 16 || n > 24 {
			t.Errorf("%d keep-alives in 5 min at an interval of 15 s", n)
		}
		b.w.mu.Lock()
		notes := b.w.engine.notes
		b.w.mu.Unlock()
		notes.mu.Lock()
		if len(notes.calls) > 4 {
			t.Errorf("%d calls wait for the observer", len(notes.calls))
		}
		notes.mu.Unlock()
		b.c.net.swallow(b.c.addrs...)
		b.seen.wait(t, "the handler to hear of the loss", func() bool { return len(b.seen.returns) == 1 })
		if b.seen.returns[0].cause != ErrExpired {
			t.Errorf("handler returned %v", b.seen.returns[0].cause)
		}
		close(stuck)
		b.stop()
		<-b.done
	})
}
