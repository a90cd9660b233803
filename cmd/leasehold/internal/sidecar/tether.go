package sidecar

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// outcome is how the work on a lease ended.
type outcome struct {
	exit    Exit
	started bool
	asked   bool  // to finish
	lost    error // why the lease ended before the command did
}

// tend runs a command under a lease and returns when nothing of it is left. An
// error says that it could not be started.
func (s *sidecar) tend(ctx context.Context, l *worker.Lease, spec *Spec) (o outcome, err error) {
	until, ok := s.deadline.ahead(ctx, l.Draining())
	if !ok {
		return o, nil // asked to go before it began
	}
	// The limit that holds now is kept until the command is known here: should
	// the lease end meanwhile, nothing may move it.
	c, err := s.hands.start(spec, true, until)
	if err != nil {
		return o, err
	}
	o.started = true
	t := &tether{s: s, child: c}
	s.watch(l, func() { t.lose() })
	defer s.unwatch(l)
	if ctx.Err() == nil {
		t.live()
	}
	l.Ready()
	draining, over := l.Draining(), ctx.Done()
	var overdue <-chan time.Time
	helped := false
	for {
		select {
		case <-c.done:
			o.exit = c.exit
			return o, nil
		case <-draining:
			draining = nil
			o.asked = true
			c.signal(syscall.SIGTERM)
			overdue = time.After(t.within(s.drainBy(l)) + s.slack())
		case <-over:
			over = nil
			o.lost = context.Cause(ctx)
			c.signal(syscall.SIGTERM)
			overdue = time.After(t.lose() + s.slack())
		case <-overdue:
			overdue = s.overdue(c, &helped)
		}
	}
}

// overdue is called when a command should be dead and is not known to be. The
// keeper may only be slow: at first its work is done for it, and only when it
// stays silent it counts as failed.
func (s *sidecar) overdue(c *child, helped *bool) <-chan time.Time {
	if *helped {
		s.hands.fail(fmt.Errorf("%w: it has not told the end of a command", errKeeper))
		return nil
	}
	*helped = true
	below := descendants(s.hands.scan.fresh(), c.pid)
	killGroup(c.pid)
	killAll(below)
	return time.After(buriedWithin)
}

// tether ties the life of a command to one lease.
type tether struct {
	s     *sidecar
	child *child

	mu sync.Mutex
	by time.Duration // 0: no limit but the session's
}

// live lets the command live as long as the session does.
func (t *tether) live() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == 0 {
		t.child.hold(true, 0)
	}
}

// within limits its life, and never moves a limit back. It returns what is left.
func (t *tether) within(by time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == 0 || by < t.by {
		t.by = max(by, 1)
		t.child.hold(true, t.by)
	}
	return t.by - t.s.clock.Now()
}

// lose is the limit of a lease whose context has ended.
func (t *tether) lose() time.Duration { return t.within(t.s.clock.Now() + t.s.killAfter()) }
