package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// lookAgain is how soon a new job, or a tick that could not be posted, is
// looked at.
const lookAgain = time.Second

// runner fires the jobs of the partitions that this worker owns.
type runner struct {
	store  *store
	client *http.Client
	grace  time.Duration // how late a tick may be decided before it counts as missed
	keep   time.Duration // how long ticks stay known
	log    *slog.Logger
}

// handle is the worker.Handler. Deciding and posting have a goroutine each, so
// that a slow target makes no tick late. Both go on through errors of database
// and targets: another worker would meet the same ones.
func (r *runner) handle(ctx context.Context, l *worker.Lease) error {
	first, last := l.Range()
	in := share{signed(first), signed(last)}
	decided := make(chan struct{}, 1)
	decided <- struct{}{} // the predecessor's ticks
	l.Ready()

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return r.loop(ctx, l, nil, func() (time.Duration, error) {
			wait, err := r.store.wait(ctx, in)
			if err != nil || wait > 0 {
				return min(wait, lookAgain), err
			}
			n, err := r.decide(ctx, l.Stamp(), in)
			if n > 0 {
				select {
				case decided <- struct{}{}:
				default:
				}
			}
			return 0, err
		})
	})
	g.Go(func() error {
		return r.loop(ctx, l, decided, func() (time.Duration, error) {
			more, err := r.dispatch(ctx, l.Stamp(), in)
			if more && err == nil {
				return 0, nil
			}
			return lookAgain, err
		})
	})
	return g.Wait()
}

// loop calls step, with the pauses that it asks for, until the partition is to
// be handed over (nil), is somebody else's (the context's cause), or the guard
// has said so. A signal, if there is one, cuts a pause short.
func (r *runner) loop(ctx context.Context, l *worker.Lease, signal <-chan struct{}, step func() (time.Duration, error)) error {
	for {
		pause, err := step()
		switch {
		case errors.Is(err, fence.ErrStale): // there is a newer owner: nothing may be done here any more
			r.log.Warn("refused", "partition", l.Partition(), "token", l.Token(), "cause", err)
			return err
		case err != nil && ctx.Err() == nil:
			r.log.Warn("trying again", "partition", l.Partition(), "in", lookAgain, "cause", err)
			pause = lookAgain
		}
		timer := time.NewTimer(pause)
		select {
		case <-l.Draining():
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-signal:
			timer.Stop()
		case <-timer.C:
		}
	}
}
