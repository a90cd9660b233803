package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// stopWait is how long the command of per-worker mode may take to end when it
// holds nothing any more.
const stopWait = 5 * time.Second

// shared is per-worker mode: one command, the leases it has been told of, and
// until when the command may live because of them.
//
// A strict lease that was drained or lost is over only when the command has
// confirmed it by a release. If it does not in time it is killed: it may be at
// work on what will soon be somebody else's.
type shared struct {
	*sidecar
	child *child
	feed  *feed

	mu     sync.Mutex
	held   map[uint32]*holding
	cutOff bool // the command was killed while it held something
}

// State of a holding.
const (
	stateHeld     = "held"
	stateDraining = "draining"
	stateEnded    = "ended" // lost, and not confirmed yet
)

// holding is a lease that the command has been told of.
type holding struct {
	lease    *worker.Lease
	state    string
	ready    bool
	by       time.Duration // the command is killed then unless it has confirmed; 0: no limit but the session's
	released chan error    // the command's release, once: nil or why it failed
	told     bool          // the command may know of it
	over     bool          // released
}

// reportedError is a release that names a failure. It counts against the
// partition.
type reportedError struct{ reason string }

// Error repeats the reason.
func (e *reportedError) Error() string { return "command reports: " + e.reason }

// runShared runs one command for all partitions.
func (s *sidecar) runShared(ctx context.Context) (int, error) {
	sh := &shared{sidecar: s, feed: newFeed(), held: make(map[uint32]*holding)}
	api, err := sh.serve()
	if err != nil {
		return codeFailed, err
	}
	defer api.close()
	s.hands.out.put(request{Op: opSetup, Dir: api.dir})

	spec := *s.spec
	spec.Env = withEnv(s.spec.Env, append(s.spaceEnv(s.cfg.Keyspace.TTL), envSocket+"="+api.socket)...)
	spec.Stdin = true
	if s.cfg.Prefix {
		spec.Lines, spec.Prefix = true, fmt.Sprintf("[%s] ", s.cfg.Keyspace.Name)
	}
	if sh.child, err = s.hands.start(&spec, false, 0); err != nil {
		return codeOf(err), err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched, endedItself := make(chan struct{}), false
	go func() { // the child's end ends the Run, and the Run's is the child's
		defer close(watched)
		select {
		case <-sh.child.done:
			endedItself = true
		case <-ctx.Done():
			sh.child.signal(syscall.SIGTERM)
		}
		cancel()
	}()
	s.begin()
	err = s.worker.Run(ctx, s.cfg.Keyspace.Name, sh.handle)
	cancel()
	<-watched
	if endedItself && errors.Is(err, context.Canceled) {
		err = nil // the command was quicker than the session
	}
	sh.child.hold(false, s.clock.Now()+stopWait)
	overdue, helped := time.After(stopWait+s.slack()), false
	for {
		select {
		case <-sh.child.done:
			return sh.code(err)
		case <-overdue:
			overdue = s.overdue(sh.child, &helped)
		}
	}
}

// code is the exit code after the command has ended.
func (sh *shared) code(err error) (int, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch e := sh.child.exit; {
	case err != nil:
		return codeOf(err), err
	case sh.cutOff:
		return CodeLostLease, errors.New("the command was killed: it had not released in time a lease that was drained or lost")
	case e.Killed:
		return e.Code, fmt.Errorf("the command was killed: it had not ended %v after SIGTERM", stopWait)
	default:
		return e.Code, nil
	}
}

// handle is the life of one lease. Its return releases the partition.
func (sh *shared) handle(ctx context.Context, l *worker.Lease) error {
	sh.ttl(ctx)
	if _, ok := sh.deadline.ahead(ctx, l.Draining()); !ok {
		return context.Cause(ctx)
	}
	h := &holding{lease: l, state: stateHeld, released: make(chan error, 1)}
	sh.watch(l, func() { sh.lose(h) })
	defer sh.unwatch(l)
	// The keeper must know that the command works under a lease before the
	// command can know it.
	taken := sh.take(h)
	defer sh.drop(h)
	if _, err := taken(); err != nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	sh.tell(h, "granted", sh.view)
	return sh.follow(ctx, h)
}

// follow waits for the end of a lease that the command knows of.
func (sh *shared) follow(ctx context.Context, h *holding) error {
	draining, over := h.lease.Draining(), ctx.Done()
	var overdue <-chan time.Time
	helped := false
	for {
		select {
		case err := <-h.released:
			sh.tell(h, "ended", func(h *holding) any { return sh.endView(h, "released") })
			return err
		case <-sh.child.done:
			if sh.child.exit.Killed {
				sh.mu.Lock()
				sh.cutOff = true
				sh.mu.Unlock()
			}
			return nil
		case <-draining:
			draining = nil
			if by := sh.drainBy(h.lease); !sh.cfg.Keyspace.Fenced {
				overdue = time.After(sh.within(h, by) + sh.slack())
			}
			sh.mu.Lock()
			h.state = stateDraining
			sh.mu.Unlock()
			sh.tell(h, "draining", sh.view)
		case <-over:
			over, draining = nil, nil
			if !sh.cfg.Keyspace.Fenced {
				overdue = time.After(sh.lose(h) + sh.slack())
			}
			sh.mu.Lock()
			h.state = stateEnded
			sh.mu.Unlock()
			sh.tell(h, "ended", func(h *holding) any { return sh.endView(h, causeWord(context.Cause(ctx))) })
			if sh.cfg.Keyspace.Fenced {
				return context.Cause(ctx)
			}
		case <-overdue:
			overdue = sh.overdue(sh.child, &helped)
		}
	}
}

// take notes a lease and has the keeper know.
func (sh *shared) take(h *holding) (taken func() (report, error)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.held[h.lease.Partition()] = h
	return sh.holdLocked()
}

func (sh *shared) drop(h *holding) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p := h.lease.Partition(); sh.held[p] == h {
		delete(sh.held, p)
	}
	sh.holdLocked()
}

// within limits the life of the command unless it confirms the end of a lease.
func (sh *shared) within(h *holding, by time.Duration) time.Duration {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if h.by == 0 || by < h.by {
		h.by = max(by, 1)
		sh.holdLocked()
	}
	return h.by - sh.clock.Now()
}

// lose is the limit of a lease whose context has ended. In a fenced keyspace
// there is none: overlap is allowed, and the resource has the last word.
func (sh *shared) lose(h *holding) time.Duration {
	if sh.cfg.Keyspace.Fenced {
		return 0
	}
	return sh.within(h, sh.clock.Now()+sh.killAfter())
}

// holdLocked tells the keeper what all leases together allow.
func (sh *shared) holdLocked() (taken func() (report, error)) {
	var by time.Duration
	for _, h := range sh.held {
		if h.by != 0 && !h.over && (by == 0 || h.by < by) {
			by = h.by
		}
	}
	return sh.child.hold(len(sh.held) > 0, by)
}

// tell publishes what happened to a lease.
func (sh *shared) tell(h *holding, event string, view func(*holding) any) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h.told = true
	sh.feed.publish(event, view(h))
}

// find returns the lease that the command means, and why there is none.
func (sh *shared) find(partition uint32, token string) (*holding, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.held[partition]
	switch {
	case h == nil:
		return nil, errNotHeld
	case token != "" && token != h.lease.Token().String():
		return nil, fmt.Errorf("%w under that token: the current one is %v", errNotHeld, h.lease.Token())
	}
	return h, nil
}

var errNotHeld = errors.New("the partition is not held")

// check is Lease.Check for the command.
func (sh *shared) check(h *holding) error {
	sh.mu.Lock()
	over := h.over
	sh.mu.Unlock()
	if over {
		return errNotHeld
	}
	return h.lease.Check()
}

// release takes the command's word that it works on a partition no more. A
// failure counts against the partition.
func (sh *shared) release(h *holding, failed string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if h.over {
		return // said before
	}
	h.over = true
	var err error
	if failed != "" {
		err = &reportedError{failed}
	}
	h.released <- err
	sh.holdLocked()
}

// ready notes that the command has set up what a partition needs.
func (sh *shared) ready(h *holding) {
	sh.mu.Lock()
	h.ready = true
	sh.mu.Unlock()
	h.lease.Ready()
}

// causeWord is the cause of an end as a stable word.
func causeWord(cause error) string {
	for _, c := range []struct {
		is   error
		word string
	}{
		{worker.ErrExpired, "expired"}, {worker.ErrDrainTimeout, "drain_timeout"}, {worker.ErrSuperseded, "superseded"},
		{worker.ErrEvicted, "evicted"}, {worker.ErrShutdown, "shutdown"},
	} {
		if errors.Is(cause, c.is) {
			return c.word
		}
	}
	return "revoked"
}
