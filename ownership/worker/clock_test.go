package worker

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

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
