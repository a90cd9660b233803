package worker

import (
	"context"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Handler does the work of one partition while its lease lasts. It runs in a
// goroutine of its own, one per partition and process.
//
// nil after Draining hands the partition over; nil before gives it back to be
// placed anew; an error or panic counts against the partition, and after some
// of them it is quarantined. Once ctx is done it should return at once, with
// anything.
type Handler func(ctx context.Context, l *Lease) error

// Worker is a program's membership in the cluster: one session, shared by all
// its Runs.
type Worker struct{ space *space }

// Option of a Run.
type Option func(*run)

type run struct{ guard fence.Guard }
type slot struct{}

// Claim makes the library claim each partition's token at the resource, in
// batches, before its handler starts. Use it whenever the resource has a guard:
// without it, an old owner can still write until the new one's first write. A
// refused claim gives the partition back and never starts the handler; other
// errors are tried again while the lease lasts.
func Claim(g fence.Guard) Option { return func(r *run) { r.guard = g } }

// Join finds the cluster through any of cfg.Servers and returns when one has
// answered, or with ctx's error. It opens no session yet and starts no
// goroutine: the first Run does. Who calls neither Run nor Hold calls Leave.
func Join(ctx context.Context, cfg Config) (*Worker, error) { panic("being written") }

// ID is the worker id, as configured or from the host name.
func (w *Worker) ID() string { panic("being written") }

// Run takes part in a keyspace: it calls h for each partition that is granted,
// until ctx is done, Leave is called or the session is superseded or evicted.
//
// When ctx is done the worker leaves as for a restart under the same id: every
// lease of every Run is drained, keep-alives go on until the last handler has
// returned, the session is closed. Run then returns nil, or an error that
// matches ErrHandlersRunning if handlers outlived Config.ShutdownTimeout.
//
// Other errors: ErrSuperseded, ErrEvicted, ErrWorkerIDInUse, a keyspace that is
// unknown or already run. A session that expired is none: Run opens another.
func (w *Worker) Run(ctx context.Context, keyspace string, h Handler, opts ...Option) error {
	panic("being written")
}

// Hold waits for the only partition of a keyspace, calls fn once while it is
// held, and leaves. It returns fn's error. Run and Hold exclude each other on
// one worker.
func (w *Worker) Hold(ctx context.Context, keyspace string, fn Handler, opts ...Option) error {
	panic("being written")
}

// Leave ends the worker for good: nothing is kept for its return. All leases
// are drained, and every Run returns nil. When ctx is done first, the contexts
// that are left end with ErrShutdown.
func (w *Worker) Leave(ctx context.Context) error { panic("being written") }

// ExitOnOverrun is a Config.OnOverrun for resources without a guard: it ends
// the process with status 75, because a handler that works on without a lease
// is worse than none.
func ExitOnOverrun(l *Lease, since time.Duration) { panic("being written") }
