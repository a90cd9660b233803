package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// floor is one running part of the server. Floors start bottom-up and stop
// top-down: what serves stops before what it stands on.
type floor struct {
	name string
	// run works until its context ends, and returns when all that it started
	// has returned.
	run func(context.Context) error
	// stop, if set, is called before the context ends, for a gentle end within
	// the bound of its own context.
	stop func(context.Context)
}

// errStopped is the cause of a floor's context when the server stops.
var errStopped = errors.New("server stops")

// runFloors starts floors in order and stops them in reverse when ctx ends or
// when one of them returns. The first error that was not asked for is
// returned, with the name of the floor.
func runFloors(ctx context.Context, log *slog.Logger, grace time.Duration, floors []floor) error {
	type ended struct {
		at  int
		err error
	}
	cancels := make([]context.CancelCauseFunc, len(floors))
	done := make([]chan struct{}, len(floors))
	ends := make(chan ended, len(floors))
	for i, f := range floors {
		// Not derived from ctx: a floor ends when its turn has come, not at once.
		fctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		cancels[i], done[i] = cancel, make(chan struct{})
		go func() {
			err := f.run(fctx)
			close(done[i])
			ends <- ended{i, err}
		}()
	}
	var first error
	select {
	case <-ctx.Done():
	case e := <-ends:
		if first = e.err; first == nil {
			first = errors.New("ended by itself")
		}
		first = fmt.Errorf("%s: %w", floors[e.at].name, first)
		log.Error("part of the server failed, stopping", "part", floors[e.at].name, "error", first)
	}
	bound, cancelBound := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancelBound()
	for i := len(floors) - 1; i >= 0; i-- {
		if floors[i].stop != nil {
			floors[i].stop(bound)
		}
		cancels[i](errStopped)
		<-done[i]
	}
	return first
}
