package worker

import (
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

func TestPausesAreForgottenAfterTenMinutes(t *testing.T) {
	const start = 400 * time.Hour // a machine that has been up for a while
	var p pauses
	at := start
	look := func(late time.Duration) {
		p.promise(at)
		at += late
		p.look(at)
	}
	p.look(at) // nothing was promised: no pause
	look(20 * time.Millisecond)
	look(3 * time.Second)
	if got := p.max(); got != 3*time.Second {
		t.Fatalf("longest pause %v, want 3s", got)
	}
	p.promise(at + time.Second)
	at += 500 * time.Millisecond // woken before its time
	p.look(at)
	for at < start+9*time.Minute {
		at += time.Second
		look(time.Millisecond)
	}
	if got := p.max(); got != 3*time.Second {
		t.Errorf("longest pause after nine minutes %v, want 3s", got)
	}
	for at < start+11*time.Minute {
		at += time.Second
		look(time.Millisecond)
	}
	if got := p.max(); got != time.Millisecond {
		t.Errorf("longest pause after eleven minutes %v, want 1ms", got)
	}
	look(2 * time.Hour) // far beyond what is remembered
	if got := p.max(); got != 2*time.Hour {
		t.Errorf("longest pause after a long one: %v", got)
	}
}

// A stand-still below the TTL costs no lease, and the next keep-alive tells of
// it; a worker that was never stopped tells of none.
func TestKeepAlivesTellTheLongestPause(t *testing.T) {
	const ttl = 10 * time.Second
	inBubble(t, ttl, 1, func(b *bench) {
		clock := &skewed{Clock: bootclock.Monotonic()}
		b.join(func(c *Config) { c.Clock = clock })
		b.run(untilDone)
		b.c.grant(b.c.only(), 1)
		b.seen.started(t, 1)
		told := func() time.Duration {
			b.c.mu.Lock()
			defer b.c.mu.Unlock()
			return time.Duration(b.c.sees[len(b.c.sees)-1].GetLongestPauseMs()) * time.Millisecond
		}
		pass(3 * ttl)
		if got := told(); got > 10*time.Millisecond {
			t.Errorf("a worker that was never stopped tells of a pause of %v", got)
		}
		clock.ahead.Add(int64(4 * time.Second))
		pass(ttl)
		if got := told(); got < 3*time.Second || got > 4*time.Second {
			t.Errorf("told of a pause of %v, it was of 4 s less the time to the next look", got)
		}
		if _, ends, _ := b.seen.counts(); ends != 0 {
			t.Errorf("%d contexts ended", ends)
		}
		if err := b.finish(); err != nil {
			t.Fatal(err)
		}
	})
}
