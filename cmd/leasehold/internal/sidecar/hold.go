package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/worker"
)

const (
	// ownerPoll is how often Hold without waiting looks who holds the partition.
	ownerPoll = 200 * time.Millisecond
	// grantWithin is how long a partition that nobody holds may take to come.
	grantWithin = 10 * time.Second
)

// NotHeldError says that Hold did not get its turn.
type NotHeldError struct {
	Keyspace string
	Owner    string // "" if unknown
	Wait     time.Duration
}

// Error names the keyspace, the owner and the wait.
func (e *NotHeldError) Error() string {
	switch {
	case e.Owner != "":
		return fmt.Sprintf("keyspace %q is held by %s, and --wait is %v", e.Keyspace, e.Owner, e.Wait)
	case e.Wait > 0:
		return fmt.Sprintf("keyspace %q was not granted within --wait %v", e.Keyspace, e.Wait)
	}
	return fmt.Sprintf("keyspace %q is held by nobody and was not granted within %v", e.Keyspace, grantWithin)
}

// Hold waits for the only partition of a keyspace, runs the command once, and
// releases. It returns the command's exit code; CodeLostLease when the lease was
// lost before the command had ended, or the command was killed because it did
// not finish when it was asked to; *NotHeldError when the turn did not come.
func Hold(ctx context.Context, cfg Config) (code int, err error) {
	s, err := newSidecar(cfg)
	if err != nil {
		return codeOf(err), err
	}
	if cfg.Wait == 0 { // nothing need be started if somebody has it
		if owner, err := cfg.Owner(ctx); err != nil {
			return codeOf(err), err
		} else if owner != "" {
			return codeFailed, &NotHeldError{Keyspace: cfg.Keyspace.Name, Owner: owner}
		}
	}
	return s.run(ctx, s.hold)
}

func (s *sidecar) hold(ctx context.Context) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	var turn atomic.Int32 // 1: it has come, 2: given up
	watched := make(chan error, 1)
	go func() {
		late := s.awaitTurn(waiting)
		if late != nil && turn.CompareAndSwap(0, 2) {
			cancel(late)
		}
		watched <- late
	}()
	outcomes := make(chan outcome, 1)
	s.begin()
	err := s.worker.Hold(ctx, s.cfg.Keyspace.Name, func(lctx context.Context, l *worker.Lease) error {
		if !turn.CompareAndSwap(0, 1) {
			return nil
		}
		stopWaiting()
		spec := *s.spec
		spec.Env = withEnv(s.spec.Env, s.leaseEnv(l, s.ttl(lctx))...)
		spec.Stdin = true
		if s.cfg.Prefix {
			spec.Lines, spec.Prefix = true, fmt.Sprintf("[%s] ", l.Keyspace())
		}
		o, err := s.tend(lctx, l, &spec)
		outcomes <- o
		return err
	})
	cancel(nil)
	late := <-watched
	var o outcome
	select {
	case o = <-outcomes:
	default: // its turn has not come, or the command outlived everything
	}
	switch {
	case turn.Load() == 2:
		return codeFailed, late
	case turn.Load() == 0:
		if err == nil {
			err = context.Cause(ctx)
		}
		return codeOf(err), err
	case !o.started:
		var start *StartError
		if errors.As(err, &start) {
			return start.Code, err
		}
		return CodeLostLease, errors.Join(errors.New("the lease ended before the command had begun"), err)
	case o.lost != nil && !errors.Is(o.lost, worker.ErrShutdown):
		return CodeLostLease, fmt.Errorf("the lease of %q was lost: %w", s.cfg.Keyspace.Name, o.lost)
	case o.exit.Killed:
		return CodeLostLease, fmt.Errorf("the command was killed: the time of its lease on %q was over", s.cfg.Keyspace.Name)
	}
	if err != nil {
		s.log.Warn("after the command had ended", "cause", err)
	}
	return o.exit.Code, nil
}

// awaitTurn returns an error when the turn has not come in time, nil when ctx is
// done.
func (s *sidecar) awaitTurn(ctx context.Context) error {
	wait := s.cfg.Wait
	if wait < 0 {
		<-ctx.Done()
		return nil
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
			owner, _ := s.cfg.Owner(ctx)
			return &NotHeldError{Keyspace: s.cfg.Keyspace.Name, Owner: owner, Wait: wait}
		case <-ctx.Done():
			return nil
		}
	}
	tick := time.NewTicker(ownerPoll)
	defer tick.Stop()
	for began := s.clock.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		owner, err := s.cfg.Owner(ctx)
		if err == nil && owner != "" && owner != s.worker.ID() || s.clock.Now()-began > grantWithin {
			return &NotHeldError{Keyspace: s.cfg.Keyspace.Name, Owner: owner}
		}
	}
}
