package sidecar

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// The keeper's deadline counts from the send of what was acknowledged, and a
// command is not started under one that has passed.
func TestDeadlineCountsFromTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		d := newDeadline(bootclock.Monotonic(), 10*time.Second, func(at time.Duration) { told = append(told, at) })
		d.proven(0)
		if at, ok := d.ahead(t.Context(), nil); !ok || at != 9500*time.Millisecond {
			t.Fatalf("deadline %v, %v; want TTL less 5 %%", at, ok)
		}
		d.proven(2 * time.Second)
		d.proven(time.Second) // late and older: nothing moves back
		d.setTTL(10 * time.Second)
		if len(told) != 2 || told[1] != 11500*time.Millisecond {
			t.Fatalf("the keeper was told %v", told)
		}
		d.setTTL(2 * time.Second) // an operator's choice, for a new session
		if told[2] != 3750*time.Millisecond {
			t.Errorf("with a TTL of 2 s: %v, want 2 s + 2 s - 250 ms", told[2])
		}

		<-time.After(20 * time.Second)
		started := make(chan time.Duration)
		go func() {
			at, _ := d.ahead(t.Context(), nil)
			started <- at
		}()
		synctest.Wait()
		select {
		case at := <-started:
			t.Fatalf("a command starts under a deadline of %v at 20 s", at)
		default:
		}
		d.proven(19 * time.Second)
		if at := <-started; at != 20750*time.Millisecond {
			t.Errorf("starts with deadline %v", at)
		}
	})
}

func TestDeadlineIsNotWaitedForWhenAskedToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeadline(bootclock.Monotonic(), time.Second, func(time.Duration) {})
		<-time.After(time.Minute)
		stop := make(chan struct{})
		close(stop)
		if _, ok := d.ahead(t.Context(), stop); ok {
			t.Error("drained, and yet it starts")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, ok := d.ahead(ctx, nil); ok {
			t.Error("lost, and yet it starts")
		}
	})
}

func TestGraceFitsIntoTheTTL(t *testing.T) {
	for _, c := range []struct {
		ttl, asked, want time.Duration
	}{
		{10 * time.Second, 0, 1250 * time.Millisecond},
		{2 * time.Second, 0, 250 * time.Millisecond},
		{600 * time.Millisecond, 0, 50 * time.Millisecond},
		{550 * time.Millisecond, 0, -1},
		{10 * time.Second, 4500 * time.Millisecond, 4500 * time.Millisecond},
		{10 * time.Second, 4501 * time.Millisecond, -1},
		{10 * time.Second, -time.Second, -1},
		{10 * time.Second, time.Millisecond, time.Millisecond},
	} {
		cfg := Config{Keyspace: Keyspace{TTL: c.ttl}, StopGrace: c.asked}
		got, err := cfg.grace()
		if c.want < 0 && err == nil || c.want >= 0 && (err != nil || got != c.want) {
			t.Errorf("TTL %v, asked %v: %v, %v; want %v", c.ttl, c.asked, got, err, c.want)
		}
	}
}
