package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
)

// killAll ends all servers at once, and starts them with other addresses after
// a while. It returns when one of them led again.
func (s *staged) killAll(away time.Duration) (led time.Duration) {
	s.t.Helper()
	killed := time.Now()
	for _, srv := range s.Cluster.Servers() {
		s.must(srv.Process().Signal(syscall.SIGKILL))
	}
	for _, srv := range s.Cluster.Servers() {
		<-srv.Process().Done()
		s.must(s.Cluster.Move(srv))
	}
	select { // the time they are away is what is tested
	case <-s.ctx.Done():
	case <-time.After(away - time.Since(killed)):
	}
	for _, srv := range s.Cluster.Servers() {
		s.must(s.Cluster.Start(srv))
	}
	started := demo.Now()
	_, err := s.Cluster.Leader(s.ctx)
	s.must(err)
	led = demo.Now()
	s.t.Logf("a leader %v after the start of all servers at new addresses", (led - started).Round(time.Millisecond))
	// The driver is not what is tested: it is told.
	s.must(s.Redial(s.ctx))
	return led
}

// All servers are killed and come back at other addresses before a TTL has
// passed. Workers know only the old ones.
func TestAllServersBackWithNewAddressesWithinTheTTL(t *testing.T) {
	t.Parallel()
	s := stage(t, 15*time.Second)
	led := s.killAll(3 * time.Second)
	s.must(s.Board.Wait(s.ctx, func(v *demo.View) bool { return v.Acked() > led }))
	t.Logf("a keep-alive is acknowledged %v after the leader was there", (demo.Now() - led).Round(time.Millisecond))
	s.must(s.Cluster.WaitReady(s.ctx))
	s.must(s.quiet(17 * time.Second)) // whoever lost anything would know by then
	s.Board.Look(func(v *demo.View) {
		for p, h := range v.Owners() {
			if b := s.before[p]; h.Process != b.Process || h.Token != b.Token {
				t.Errorf("orders/%d: %s with token %d, before it was %s with %d", p, h.Process, h.Token, b.Process, b.Token)
			}
		}
	})
	s.undisturbed(s.end())
}

// They come back after more than two TTLs: every context has ended, and all is
// granted again, with higher tokens.
func TestAllServersBackWithNewAddressesAfterTheTTL(t *testing.T) {
	t.Parallel()
	s := stage(t, 3*time.Second)
	led := s.killAll(7 * time.Second)
	s.must(s.Board.Wait(s.ctx, func(v *demo.View) bool {
		if !v.Owned(s.Fleet.Processes()) {
			return false
		}
		for p, h := range v.Owners() {
			if h.Token <= s.before[p].Token {
				return false
			}
		}
		return true
	}))
	var last time.Duration
	s.Board.Look(func(v *demo.View) {
		for _, h := range v.Owners() {
			last = max(last, h.Since)
		}
	})
	t.Logf("all are granted again, with higher tokens, %v after the leader was there", (last - led).Round(time.Millisecond))
	if last-led > noisy*2*time.Second {
		t.Errorf("it took %v after the leader was there, want 2s", last-led)
	}
	s.end()
}

// noisy forgives a machine that has other things to do, in bounds of time
// that are published.
const noisy = 4

// quiet waits for a while, in which the workers' evidence goes on.
func (s *staged) quiet(d time.Duration) error {
	until := demo.Now() + d
	return s.Board.Wait(s.ctx, func(*demo.View) bool { return demo.Now() >= until })
}
