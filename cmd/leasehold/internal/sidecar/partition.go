package sidecar

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// partitions is per-partition mode.
type partitions struct {
	*sidecar
	backoff *backoff
}

// runPartitions runs one command for each partition.
func (s *sidecar) runPartitions(ctx context.Context) (int, error) {
	p := &partitions{s, newBackoff()}
	s.begin()
	err := s.worker.Run(ctx, s.cfg.Keyspace.Name, p.handle)
	return codeOf(err), err
}

// ExitError says that a command ended by itself and not well. It counts against
// its partition.
type ExitError struct{ Exit Exit }

// Error names the code or the signal.
func (e *ExitError) Error() string {
	if e.Exit.Signal != 0 {
		return fmt.Sprintf("command ended by signal %d (%v)", e.Exit.Signal, syscall.Signal(e.Exit.Signal))
	}
	return fmt.Sprintf("command exited with %d", e.Exit.Code)
}

// handle is the life of one lease. Its return releases the partition.
func (p *partitions) handle(ctx context.Context, l *worker.Lease) error {
	if !p.pause(ctx, l) {
		return context.Cause(ctx)
	}
	spec := *p.spec
	spec.Env = withEnv(p.spec.Env, p.leaseEnv(l, p.ttl(ctx))...)
	spec.Lines = true
	if p.cfg.Prefix {
		spec.Prefix = fmt.Sprintf("[%s/%d] ", l.Keyspace(), l.Partition())
	}
	started := p.clock.Now()
	o, err := p.tend(ctx, l, &spec)
	var start *StartError
	switch {
	case errors.As(err, &start) && start.Code != CodeLostLease:
		p.backoff.ended(l.Partition(), true, started, p.clock.Now())
		return err
	case err != nil, o.lost != nil:
		return context.Cause(ctx)
	case !o.started:
		return context.Cause(ctx)
	case o.asked:
		if o.exit.Killed {
			p.log.Warn("command was killed: it had not finished in the time to drain", "keyspace", l.Keyspace(), "partition", l.Partition(), "token", uint64(l.Token()))
		} else if o.exit.Code != 0 && o.exit.Signal != int(syscall.SIGTERM) && o.exit.Code != 128+int(syscall.SIGTERM) {
			p.log.Warn("command did not finish well when asked to", "keyspace", l.Keyspace(), "partition", l.Partition(), "token", uint64(l.Token()), "code", o.exit.Code)
		}
		p.backoff.forget(l.Partition())
		return nil
	case o.exit.Killed:
		// The keeper was first: this process had been stopped past its deadline.
		return worker.ErrExpired
	}
	failed := o.exit.Code != 0
	p.backoff.ended(l.Partition(), failed, started, p.clock.Now())
	if failed {
		return &ExitError{o.exit}
	}
	return nil
}

// pause waits until the command of a partition may start again. The lease is
// held meanwhile, and not ready; it is given back when it is wanted. To refuse
// it instead would have the servers grant it in a circle.
func (p *partitions) pause(ctx context.Context, l *worker.Lease) bool {
	wait := p.backoff.notUntil(l.Partition()) - p.clock.Now()
	if wait <= 0 {
		return ctx.Err() == nil
	}
	p.log.Info("waiting before the command is started again", "keyspace", l.Keyspace(), "partition", l.Partition(), "token", uint64(l.Token()), "for", wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.Draining():
	case <-ctx.Done():
	}
	return false
}
