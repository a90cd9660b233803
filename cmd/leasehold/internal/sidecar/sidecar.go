package sidecar

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// sidecar is one Run or Hold.
type sidecar struct {
	cfg      Config
	grace    time.Duration
	spec     *Spec
	clock    bootclock.Clock
	log      *slog.Logger
	hands    *hands
	deadline *deadline
	worker   *worker.Worker

	mu     sync.Mutex
	onLoss map[*worker.Lease]func() // called when the context of a lease has ended
}

// Run makes a worker of a command until ctx is done, and returns the exit code
// of the sidecar: in per-worker mode the command's own, else 0, and CodeLostLease
// when the leases were taken away for good. err says why if the code does not.
func Run(ctx context.Context, cfg Config) (code int, err error) {
	s, err := newSidecar(cfg)
	if err != nil {
		return codeOf(err), err
	}
	if cfg.Mode == PerWorker {
		return s.run(ctx, s.runShared)
	}
	return s.run(ctx, s.runPartitions)
}

// newSidecar validates and starts nothing.
func newSidecar(cfg Config) (*sidecar, error) {
	spec, err := cfg.spec()
	if err != nil {
		return nil, err
	}
	grace, err := cfg.grace()
	if err != nil {
		return nil, &ConfigError{err}
	}
	s := &sidecar{
		cfg:    cfg,
		grace:  grace,
		spec:   spec,
		clock:  bootclock.Boot(),
		log:    cfg.Worker.Logger,
		onLoss: make(map[*worker.Lease]func()),
	}
	c := &s.cfg.Worker
	c.Clock, c.StopGrace = s.clock, grace
	c.Observer = &worker.Observer{
		// Both are called in order by one goroutine: what a lost lease allows is
		// settled before a new session can prolong it.
		ContextEnd:     func(l *worker.Lease, _ error, _ time.Duration) { s.lost(l) },
		KeepAliveAcked: func(sent time.Duration) { s.deadline.proven(sent) },
	}
	c.OnOverrun = s.overrun
	if err := c.Validate(); err != nil {
		return nil, &ConfigError{err}
	}
	return s, nil
}

// run starts the keeper, joins the cluster and does the work.
func (s *sidecar) run(ctx context.Context, work func(context.Context) (int, error)) (int, error) {
	h, err := hire(s.cfg.Executable, s.stdin(), s.cfg.Stdout, s.cfg.Stderr, s.log)
	if err != nil {
		return codeOf(err), err
	}
	defer h.dismiss()
	s.hands = h
	s.deadline = newDeadline(s.clock, s.cfg.Keyspace.TTL, func(until time.Duration) {
		h.out.put(request{Op: opUntil, Until: until})
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-h.dead:
			cancel(h.failure())
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-watched }()
	if s.worker, err = worker.Join(ctx, s.cfg.Worker); err != nil {
		return codeOf(err), err
	}
	code, err := work(ctx)
	if failure := h.failure(); failure != nil {
		return codeFailed, failure
	}
	return code, err
}

// stdin is what the only command of a sidecar may read: a terminal it may not,
// because it is not in its foreground group.
func (s *sidecar) stdin() io.Reader {
	if f, ok := s.cfg.Stdin.(*os.File); ok && f != nil {
		return f
	}
	return nil // what is no file would need somebody to copy it
}

const codeFailed = 1

// codeOf is the exit code that an error stands for; codeFailed if it has none
// of its own.
func codeOf(err error) int {
	var start *StartError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &start):
		return start.Code
	case errors.Is(err, worker.ErrSuperseded), errors.Is(err, worker.ErrEvicted), errors.Is(err, worker.ErrExpired):
		return CodeLostLease
	}
	return codeFailed
}

// begin is called right before the worker's first Run. Its session is asked for
// after this reading, so the servers count its TTL from later.
func (s *sidecar) begin() { s.deadline.proven(s.clock.Now()) }

// lost is told of a context that has ended.
func (s *sidecar) lost(l *worker.Lease) {
	s.mu.Lock()
	f := s.onLoss[l]
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

func (s *sidecar) watch(l *worker.Lease, f func()) {
	s.mu.Lock()
	s.onLoss[l] = f
	s.mu.Unlock()
}

func (s *sidecar) unwatch(l *worker.Lease) {
	s.mu.Lock()
	delete(s.onLoss, l)
	s.mu.Unlock()
}

// overrun is what must not happen: a command that outlived its lease.
func (s *sidecar) overrun(l *worker.Lease, since time.Duration) {
	s.log.Error("a command has outlived its lease", "keyspace", l.Keyspace(), "partition", l.Partition(),
		"token", uint64(l.Token()), "since", since)
}

// killAfter is how long after the end of a lease its command is killed.
func (s *sidecar) killAfter() time.Duration { return s.grace / 2 }

// slack is how long after that the keeper may take. Then the sidecar kills.
func (s *sidecar) slack() time.Duration { return s.grace/2 + marginOf(s.cfg.Keyspace.TTL)/2 }

// drainBy is when a command is killed that was asked to finish: a little before
// the lease ends, so that it still ends by a release.
func (s *sidecar) drainBy(l *worker.Lease) time.Duration {
	budget := max(time.Until(l.DrainBy()), 0)
	return s.clock.Now() + budget - min(budget/4, 200*time.Millisecond)
}

// ttl is the session's, which an operator may have changed since the start.
func (s *sidecar) ttl(ctx context.Context) time.Duration {
	if ttl := fence.TTLFromContext(ctx); ttl > 0 {
		s.deadline.setTTL(ttl)
		return ttl
	}
	return s.cfg.Keyspace.TTL
}
