package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
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
	inBubble(t, 5*time.Second, 1, func(b *bench) {
		b.join()
		b.run(untilDone)
		b.c.grant(b.c.only(), 1)
		b.seen.started(t, 1)
		pass(10 * time.Second)
		b.c.net.lag(b.c.addrs[0], 4*time.Second)
		pass(3 * time.Second)
		b.c.net.swallow(b.c.addrs[0])
		x := b.seen.ended(t, 1)[0]
		if x.cause != ErrExpired {
			t.Errorf("ended with %v", x.cause)
		}
		if by := b.seen.lastAck() + 5*time.Second - 250*time.Millisecond; x.at > by+20*time.Millisecond {
			t.Errorf("context lived until %v; the last acknowledged keep-alive was sent at %v, so its end is %v", x.at, b.seen.lastAck(), by)
		}
		b.stop()
		<-b.done
	})
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

// O-14: cut off from the servers, the worker stops by itself, and comes back
// with nothing.
func TestCutOffWorkerStopsAndStartsFromNothing(t *testing.T) {
	inBubble(t, 10*time.Second, 3, func(b *bench) {
		b.join()
		b.run(untilDone)
		s := b.c.only()
		b.c.grant(s, 1, 2)
		b.seen.started(t, 2)
		pass(5 * time.Second)
		b.c.net.swallow(b.c.addrs...)
		for _, x := range b.seen.ended(t, 2) {
			if d := x.at - b.seen.lastAck(); x.cause != ErrExpired || d > 9500*time.Millisecond+time.Millisecond {
				t.Errorf("context ended %v after the last acknowledged send, with %v", d, x.cause)
			}
			if err := x.l.Check(); !errors.Is(err, ErrExpired) {
				t.Errorf("Check = %v", err)
			}
		}
		pass(20 * time.Second)
		b.c.net.heal(b.c.addrs...)
		var again *peerSession
		b.c.wait("a new session", func() bool {
			for _, x := range b.c.sessions {
				if x != s && x.out != nil {
					again = x
				}
			}
			return again != nil
		})
		pass(5 * time.Second)
		if starts, _, _ := b.seen.counts(); starts != 2 {
			t.Errorf("%d handlers started: an old lease was taken up again", starts)
		}
		b.c.grant(again, 1)
		b.seen.started(t, 3)
		b.finish()
	})
}

// After a cut shorter than the servers' TTL the session lives; what ended by
// the local deadline is given back and not run again.
func TestWhatEndedIsGivenBack(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join(func(c *Config) { c.StopGrace = 3 * time.Second })
		b.run(untilDone)
		s := b.c.only()
		tokens := b.c.grant(s, 1, 2)
		b.seen.started(t, 2)
		pass(5 * time.Second)
		b.c.net.swallow(b.c.addrs...)
		b.seen.ended(t, 2)
		b.c.net.heal(b.c.addrs...)
		b.c.wait("the leases to be given back", func() bool { return len(s.held) == 0 })
		for _, r := range b.c.releases {
			if r.GetCause() != leaseholdv1.ReleaseCause_RELEASE_CAUSE_ENDED {
				t.Errorf("released %v", r)
			}
		}
		if again := b.c.only(); again != s {
			t.Error("the session was given up although it was alive")
		}
		next := b.c.grant(s, 1)
		b.seen.started(t, 3)
		if next[0] <= tokens[1] {
			t.Errorf("token %d after %d", next[0], tokens[1])
		}
		b.finish()
	})
}

// O-15: an idle worker on a half-open connection loses its lease in time.
func TestLossIsNoticedWithoutTraffic(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		b.run(func(ctx context.Context, l *Lease) error { <-ctx.Done(); return nil })
		b.c.grant(b.c.only(), 1)
		b.seen.started(t, 1)
		b.c.net.swallow(b.c.addrs[0])
		if x := b.seen.ended(t, 1)[0]; x.cause != ErrExpired || x.at > b.seen.lastAckOr(0)+9501*time.Millisecond {
			t.Errorf("ended at %v with %v", x.at, x.cause)
		}
		b.stop()
		<-b.done
	})
}

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

// O-69: the stream's server hears nobody; another one carries the keep-alives,
// and the stream moves before half the TTL.
func TestPinnedToAnIsolatedServer(t *testing.T) {
	inBubble(t, 10*time.Second, 3, func(b *bench) {
		b.join()
		b.run(untilDone)
		b.c.grant(b.c.only(), 1)
		b.seen.started(t, 1)
		pass(5 * time.Second)
		b.c.mu.Lock()
		b.c.leader = 1
		b.c.mu.Unlock()
		cut := time.Now()
		b.c.net.swallow(b.c.addrs[0])
		for !b.log.has("session resumed") {
			if pass(50 * time.Millisecond); time.Since(cut) > 7*time.Second {
				t.Fatal("the stream has not moved within half the TTL of the first keep-alive without an answer")
			}
		}
		pass(2 * time.Minute)
		if _, ends, _ := b.seen.counts(); ends != 0 || len(b.c.sessions) != 1 {
			t.Errorf("%d contexts ended, %d sessions", ends, len(b.c.sessions))
		}
		b.finish()
	})
}

// No server takes the stream, but single calls get through: they keep the
// session, round through whoever answers.
func TestKeepAlivesGoRoundWithoutAStream(t *testing.T) {
	inBubble(t, 10*time.Second, 3, func(b *bench) {
		b.join()
		b.run(untilDone)
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		b.c.mu.Lock()
		b.c.noStream = true
		close(s.out)
		s.out = nil
		b.c.mu.Unlock()
		pass(time.Minute)
		if _, ends, _ := b.seen.counts(); ends != 0 {
			t.Errorf("%d contexts ended", ends)
		}
		if n := len(b.c.seen()); n > 60 {
			t.Errorf("%d keep-alives in a minute", n)
		}
		b.c.mu.Lock()
		b.c.noStream = false
		b.c.mu.Unlock()
		b.c.only()
		b.finish()
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

// skewed is a boot clock that a test can put forward, as a suspend does.
type skewed struct {
	bootclock.Clock
	ahead atomic.Int64
}

func (s *skewed) Now() time.Duration { return s.Clock.Now() + time.Duration(s.ahead.Load()) }

// O-88: the process got no CPU for most of the TTL. Late by less is no loss;
// late by more ends work by the local clock, whatever was on its way.
func TestStarvedWorkerJudgesByItsOwnClock(t *testing.T) {
	for _, late := range []struct {
		by   float64
		lost bool
	}{{0.6, false}, {1.5, true}} {
		inBubble(t, 10*time.Second, 1, func(b *bench) {
			clock := &skewed{Clock: bootclock.Monotonic()}
			b.join(func(c *Config) { c.Clock = clock })
			b.run(untilDone)
			b.c.grant(b.c.only(), 1)
			b.seen.started(t, 1)
			pass(2600 * time.Millisecond) // right after a keep-alive
			l := b.seen.starts[0].l
			clock.ahead.Add(int64(late.by * float64(10*time.Second)))
			if err := l.Check(); (err == nil) == late.lost && !errors.Is(err, ErrUnconfirmed) {
				t.Errorf("late by %v TTL: Check = %v before the loop woke", late.by, err)
			}
			pass(3 * time.Second)
			if _, ends, _ := b.seen.counts(); (ends > 0) != late.lost {
				t.Errorf("late by %v TTL: %d contexts ended", late.by, ends)
			}
			b.stop()
			<-b.done
		})
	}
}

// The wall clock jumps and the boot clock does not: the hypervisor paused the
// machine, or a time server stepped the clock. Until a keep-alive is confirmed
// nobody can tell.
func TestWallClockJumpMakesLeasesUnconfirmed(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		var ahead atomic.Int64
		b.w.mu.Lock()
		b.w.engineLocked().tenure.wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		b.w.mu.Unlock()
		b.run(untilDone)
		b.c.grant(b.c.only(), 1)
		b.seen.started(t, 1)
		l := b.seen.starts[0].l
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		ahead.Store(int64(30 * time.Second))
		if err := l.Check(); !errors.Is(err, ErrUnconfirmed) {
			t.Errorf("Check = %v, want ErrUnconfirmed", err)
		}
		pass(300 * time.Millisecond) // a poll and a round trip
		if err := l.Check(); err != nil {
			t.Errorf("Check = %v after a keep-alive was confirmed", err)
		}
		b.finish()
	})
}
