package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

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
