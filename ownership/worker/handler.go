package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// exitLostLease is the exit status of ExitOnOverrun, the one that
// `leasehold run` uses for a lost lease.
const exitLostLease = 75

// PanicError is what a handler's panic becomes. It counts like an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error shows the value, not the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// errNotReturned stands for a handler that ended its goroutine without returning.
var errNotReturned = errors.New("handler ended its goroutine without returning")

// start makes the context of a lease and runs its handler.
func (e *engine) start(l *Lease, at time.Duration) {
	r := e.core.runs[l.space.name]
	if r == nil { // its Run ended in the same step
		e.core.returned(l, result{}, reading{boot: at})
		return
	}
	ctx, cancel := context.WithCancelCause(&leaseContext{fence.NewContext(r.base, l.Stamp(), l.TTL()), l})
	l.ctx, l.cancel = ctx, cancel
	e.metrics.CallbackStarted()
	e.foreign.Add(1)
	go e.handle(l, r.handler, at)
}

// handle is the goroutine of one handler.
func (e *engine) handle(l *Lease, h Handler, at time.Duration) {
	defer e.foreign.Done()
	if f := e.observer.ContextStart; f != nil {
		f(l, at)
	}
	err := call(l, h)
	l.cancel(ErrReturned)
	l.cause.CompareAndSwap(nil, &ErrReturned)
	if f := e.observer.HandlerReturn; f != nil {
		f(l, err, e.tenure.clock.Now())
	}
	e.metrics.CallbackReturned()
	r := resultOf(l, err)
	e.post(func(now reading) {
		if !l.slot.live {
			e.metrics.Stopped(now.boot - l.slot.endedAt)
		}
		e.metrics.Returned(r.label(l.slot.live))
		e.core.returned(l, r, now)
	})
}

// call runs the handler and turns a panic into an error.
func call(l *Lease, h Handler) (err error) {
	err = errNotReturned
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	err = h(l.ctx, l)
	return err
}

// end cancels the context of a lease that the core has ended.
func (e *engine) end(x ended) {
	l, cause := x.lease, x.lease.slot.cause
	l.cancel(cause)
	at := x.at
	if !errors.Is(cause, ErrReturned) {
		at = e.tenure.clock.Now() // the context was live until here
		e.metrics.Lost(lostLabel(cause))
		*e.core.lost.of(lostLabel(cause))++
	}
	e.notes.ended(l, cause, at)
}

// overrun tells of a handler that outlived its context.
func (e *engine) overrun(x overrun) {
	e.metrics.Overrun()
	l, f := x.lease, e.cfg.OnOverrun
	if f == nil {
		e.notes.say(logLine{slog.LevelError, "handler has not returned since its context ended", []any{
			"keyspace", l.space.name, "partition", l.partition, "token", uint64(l.token),
			"cause", l.slot.cause, "since", x.since}})
		return
	}
	e.foreign.Go(func() { f(l, x.since) })
}

// ExitOnOverrun is a Config.OnOverrun for resources without a guard: it ends
// the process with status 75, because a handler that works on without a lease
// is worse than none.
func ExitOnOverrun(l *Lease, since time.Duration) {
	fmt.Fprintf(os.Stderr, "leasehold: handler of %s/%d, token %d, has not returned %v after its lease ended: exiting\n",
		l.Keyspace(), l.Partition(), l.Token(), since.Round(time.Millisecond))
	os.Exit(exitLostLease)
}

// outcome is the word for a failed keep-alive in the metrics.
func outcome(d *leaseholdv1.ErrorDetail, err error) string {
	switch verdictOf(d) {
	case verdictGone:
		return "unknown_session"
	case verdictSuperseded, verdictEvicted:
		return "barred"
	}
	switch status.Code(err) {
	case codes.Unavailable:
		return "unavailable"
	case codes.DeadlineExceeded, codes.Canceled:
		return "timeout"
	}
	return "error"
}
