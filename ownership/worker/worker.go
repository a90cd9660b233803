package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Handler does the work of one partition while its lease lasts. It runs in a
// goroutine of its own, one per partition and process.
//
// ctx and all that is derived from it carry the lease: [FromContext],
// fence.FromContext and fence.TTLFromContext find it, with the TTL as it was
// when the handler started.
//
// nil after Draining hands the partition over; nil before gives it back to be
// placed anew; an error or panic counts against the partition, and after some
// of them it is quarantined. Two errors do not count, wrapped or not: what
// [Lease.Check] has said (ErrExpired, ErrUnconfirmed and the like), and a
// fence.ErrStale under the lease's own token, because both say that the lease
// is lost and nothing about the partition. Once ctx is done the handler should
// return at once, with anything.
type Handler func(ctx context.Context, l *Lease) error

// Worker is a program's membership in the cluster: one session, shared by all
// its Runs. Its methods are safe for concurrent use.
type Worker struct {
	cfg     Config
	servers *directory

	mu     sync.Mutex
	engine *engine // from the first Run on
	runs   int
	held   bool // a Hold excludes everything else
	closed bool
}

// Option of a Run or Hold.
type Option func(*run)

// Claim makes the library claim each partition's token at the resource, in
// batches, before its handler starts. Use it whenever the resource has a guard:
// without it, an old owner can still write until the new one's first write. A
// refused claim gives the partition back and never starts the handler; other
// errors are tried again while the lease lasts.
func Claim(g fence.Guard) Option { return func(r *run) { r.guard = g } }

// run is one Run or Hold.
type run struct {
	keyspace string
	handler  Handler
	guard    fence.Guard
	hold     bool
	base     context.Context // values of Run's context, without its end
	claimer  *claimer        // nil without a guard
	space    *space          // the loop's own; nil until joined

	over chan struct{} // closed when this Run has ended before the worker
	err  error         // then: why
}

// end ends the Run alone.
func (r *run) end(err error) {
	r.err = err
	close(r.over)
}

// Join finds the cluster through any of cfg.Servers and returns when one has
// answered, or with ctx's error. Servers that do not know who this is, or do not
// let it in, are an error at once, which matches ErrDenied. It opens no session yet and leaves nothing
// running or connected: the first Run does.
func Join(ctx context.Context, cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkName("ID", cfg.ID); err != nil {
		return nil, fmt.Errorf("worker configuration: %w (from the host name)", err)
	}
	w := &Worker{cfg: cfg, servers: newDirectory(cfg)}
	if err := w.reach(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// reach waits until a server answers. Workers are often started before the
// servers are, so only ctx ends it, and servers that are there and do not let
// the worker in, or are not those that it trusts.
func (w *Worker) reach(ctx context.Context) error {
	cl, err := w.servers.open()
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	defer cl.Close()
	began := time.Now()
	said := began
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		addrs, err := cl.Servers(ctx)
		if err == nil {
			w.servers.learn(addrs)
			return nil
		}
		if d := cl.Refusal(err); d != nil {
			return refusal("join cluster", d)
		}
		var unreachable *client.UnreachableError
		if errors.As(err, &unreachable) && unreachable.Distrust().Certain() {
			return fmt.Errorf("join cluster: %w", err)
		}
		if now := time.Now(); now.Sub(said) >= complainEvery {
			said = now
			w.cfg.Logger.Warn("no server answers yet", "worker", w.cfg.ID, "since", now.Sub(began), "cause", err)
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("join cluster: %w: %w", context.Cause(ctx), err)
		}
	}
}

// ID is the worker id, as configured or from the host name.
func (w *Worker) ID() string { return w.cfg.ID }

// Fencing counts the decisions of a guard for `leasehold workers ls` and for
// Config.Metrics. Give it to the guard that checks the handlers' writes. Without
// it the library counts claims only; with it, the guard is left to count them.
func (w *Worker) Fencing() fence.Counter {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.engineLocked()
	e.guardCounts.Store(true)
	return counter{w.cfg.Metrics, &e.core.fencing}
}

// Run takes part in a keyspace: it calls h for each partition that is granted,
// until ctx is done, Leave is called or the session is superseded or evicted.
//
// When ctx is done the worker leaves as for a restart under the same id: every
// lease of every Run is drained, keep-alives go on until the last handler has
// returned, the session is closed. Run then returns nil, or an error that
// matches ErrHandlersRunning if handlers outlived Config.ShutdownTimeout.
//
// Other errors: ErrSuperseded, ErrEvicted, ErrWorkerIDInUse, *RefusedError for
// a keyspace that does not exist, ErrDenied for a certificate or credential that
// does not count or was revoked, ErrKeyspaceBusy. A session that has expired
// is none of them: Run opens another.
func (w *Worker) Run(ctx context.Context, keyspace string, h Handler, opts ...Option) error {
	return w.run(ctx, &run{keyspace: keyspace, handler: h}, opts)
}

// Hold waits for the only partition of a keyspace, calls fn once while it is
// held, and leaves for good. It returns fn's error. Run and Hold exclude each
// other on one worker.
func (w *Worker) Hold(ctx context.Context, keyspace string, fn Handler, opts ...Option) error {
	if fn == nil {
		return errors.New("hold keyspace: no function given")
	}
	var once sync.Once
	outcome := make(chan error, 1)
	r := &run{keyspace: keyspace, hold: true, handler: func(ctx context.Context, l *Lease) (err error) {
		// The worker leaves before the partition can come back to it. Should it
		// come back all the same, it is given away again.
		var lost error
		once.Do(func() {
			result := errNotReturned
			defer func() {
				lost = result
				outcome <- result
				w.leave(false, w.cfg.ShutdownTimeout)
			}()
			result = fn(ctx, l)
		})
		if errors.Is(lost, fence.ErrStale) {
			return lost // the token that the resource has seen must reach the servers
		}
		return nil
	}}
	err := w.run(ctx, r, opts)
	select {
	case result := <-outcome:
		if err == nil {
			return result
		}
		return errors.Join(result, err)
	default:
		return err
	}
}

// Leave ends the worker for good: nothing is kept for its return. All leases
// are drained, and every Run returns nil. When ctx is done first, the contexts
// that are left end with ErrShutdown; then Leave returns ctx's error. A handler
// must not call it: it would wait for itself.
func (w *Worker) Leave(ctx context.Context) error {
	w.mu.Lock()
	e := w.engine
	w.closed = true
	running := w.runs > 0
	w.mu.Unlock()
	if !running {
		return nil
	}
	w.leave(false, w.cfg.ShutdownTimeout)
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
	}
	e.post(func(now reading) { e.core.abort(ErrShutdown, now) })
	<-e.done
	return fmt.Errorf("leave: %w", context.Cause(ctx))
}

// leave begins the end, unless it has begun.
func (w *Worker) leave(restart bool, bound time.Duration) {
	w.mu.Lock()
	w.closed = true
	e := w.engine
	w.mu.Unlock()
	e.post(func(now reading) { e.core.leave(restart, bound, now) })
}

func (w *Worker) engineLocked() *engine {
	if w.engine == nil {
		w.engine = newEngine(w.cfg, w.servers)
	}
	return w.engine
}

// enter takes a Run in and starts the engine with the first one.
func (w *Worker) enter(r *run) (*engine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return nil, ErrShutdown
	case w.held:
		return nil, errors.New("a Hold runs on this worker: it needs a worker of its own")
	case r.hold && w.runs > 0:
		return nil, errors.New("other Runs use this worker: Hold needs a worker of its own")
	}
	e := w.engineLocked()
	w.held = r.hold
	w.runs++
	if r.guard != nil {
		r.claimer = newClaimer(r.guard)
		e.foreign.Go(func() { e.claim(r.claimer) })
	}
	e.post(func(now reading) { e.core.add(r) })
	if w.runs == 1 {
		go e.run()
	}
	return e, nil
}

func (w *Worker) run(ctx context.Context, r *run, opts []Option) error {
	if err := checkName("keyspace", r.keyspace); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if r.handler == nil {
		return fmt.Errorf("run keyspace %q: no handler given", r.keyspace)
	}
	for _, o := range opts {
		o(r)
	}
	r.base = context.WithoutCancel(ctx)
	r.over = make(chan struct{})
	e, err := w.enter(r)
	if err != nil {
		return fmt.Errorf("run keyspace %q: %w", r.keyspace, err)
	}
	select {
	case <-ctx.Done():
		w.leave(true, w.cfg.ShutdownTimeout)
	case <-r.over:
		return w.exit(e, r)
	case <-e.done:
	}
	<-e.done
	select {
	case <-r.over:
		return r.err
	default:
	}
	if errors.Is(e.err, errNoSession) {
		return fmt.Errorf("run keyspace %q: %w: %w", r.keyspace, e.err, cmpErr(context.Cause(ctx), ErrShutdown))
	}
	return e.err
}

// exit is the way out of a Run that ends alone. The last one waits for the
// worker, which ends with it.
func (w *Worker) exit(e *engine, r *run) error {
	w.mu.Lock()
	w.runs--
	last := w.runs == 0
	w.closed = w.closed || last
	w.mu.Unlock()
	if last {
		<-e.done
	}
	return r.err
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
