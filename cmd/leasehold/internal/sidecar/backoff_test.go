package sidecar

import (
	"testing"
	"time"
)

// newFixedBackoff has no jitter.
func newFixedBackoff() *backoff {
	b := newBackoff()
	b.jitter = func(time.Duration) time.Duration { return 0 }
	return b
}

func TestBackoffGrowsToItsCapAndForgetsAfterAGoodRun(t *testing.T) {
	b, now := newFixedBackoff(), time.Hour
	fail := func(ran time.Duration) time.Duration {
		started := now
		now += ran
		b.ended(7, true, started, now)
		wait := b.notUntil(7) - now
		now += wait
		return wait
	}
	for i, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
		16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		if got := fail(10 * time.Millisecond); got != want {
			t.Errorf("failure %d: waits %v, want %v", i+1, got, want)
		}
	}
	for range 100 { // no overflow on the way to for ever
		if got := fail(0); got != maxBackoff {
			t.Fatalf("waits %v after many failures", got)
		}
	}
	if got := fail(goodRun); got != minBackoff {
		t.Errorf("waits %v after a good run, want %v", got, minBackoff)
	}
	if got := b.notUntil(8); got != 0 {
		t.Errorf("another partition waits until %v", got)
	}
}

func TestBackoffOfACommandThatEndsWell(t *testing.T) {
	b := newFixedBackoff()
	b.ended(1, true, 0, 0)
	b.ended(1, true, 0, 0)
	b.ended(1, false, 10*time.Second, 10*time.Second+time.Millisecond)
	if got := b.notUntil(1); got != 11*time.Second {
		t.Errorf("starts again at %v, want a second after its last start", got)
	}
	b.ended(1, true, 20*time.Second, 20*time.Second)
	if got := b.notUntil(1); got != 20*time.Second+minBackoff {
		t.Errorf("a success in between was not counted: next start at %v", got)
	}
	b.forget(1)
	if got := b.notUntil(1); got != 0 {
		t.Errorf("a partition that was handed over waits until %v", got)
	}
}

func TestBackoffJitterStaysInItsBounds(t *testing.T) {
	b := newBackoff()
	for range 1000 {
		b.forget(0)
		b.ended(0, true, 0, 0)
		if got := b.notUntil(0); got < minBackoff*3/4 || got > minBackoff {
			t.Fatalf("waits %v", got)
		}
	}
}
