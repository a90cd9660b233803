package clientgo

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// Config of Elect.
type Config struct {
	Lock *Lock
	// As in client-go: LeaseDuration in whole seconds, above RenewDeadline, which is above
	// 1.2 times RetryPeriod.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Lead is the work of a leader. Its context ends when the leadership is lost or that of
	// Elect ends; when it returns, the leadership is given up. Required.
	Lead func(ctx context.Context, token uint64)
	// Stopped is called after Lead has returned, once for each call of Lead. It may be nil.
	Stopped func()
}

// Elect stands for election once: it waits, leads once, and returns nil when that is over or
// ctx has ended before. An error says that the Config is wrong, or that the leadership could
// not be given up and has to run out.
func Elect(ctx context.Context, cfg Config) error {
	// The elector's own context: it must go on renewing until the work has returned.
	standing, stepDown := context.WithCancel(context.WithoutCancel(ctx))
	defer stepDown()
	t := &term{cfg: cfg, ctx: ctx, done: make(chan struct{})}
	cfg.Lock.forget()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: cfg.Lock, LeaseDuration: cfg.LeaseDuration, RenewDeadline: cfg.RenewDeadline, RetryPeriod: cfg.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				t.lead(leading)
				stepDown()
			},
			OnStoppedLeading: func() {}, // it is called without the other, too
		},
		// Not ReleaseOnCancel: that gives up while the work still runs.
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		if t.giveUp() {
			stepDown()
		}
	})()
	elector.Run(standing)
	t.end()
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.RenewDeadline)
	defer cancel()
	return cfg.Lock.release(giving)
}

// RunForever is Elect again and again until ctx ends, like RunOrDie in a loop. failed hears
// of errors.
func RunForever(ctx context.Context, cfg Config, failed func(error)) {
	for ctx.Err() == nil {
		if err := Elect(ctx, cfg); err != nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(cfg.RetryPeriod):
		}
	}
}

// term is the work of one candidature.
type term struct {
	cfg  Config
	ctx  context.Context // of Elect
	done chan struct{}   // closed when Lead has returned

	mu            sync.Mutex
	started, over bool
}

// lead calls the work, unless it is too late. client-go calls this in a goroutine, which may
// get its turn when the leadership is gone already.
func (t *term) lead(leading context.Context) {
	t.mu.Lock()
	if t.over || t.ctx.Err() != nil {
		t.over = true
		t.mu.Unlock()
		return
	}
	t.started = true
	t.mu.Unlock()
	defer close(t.done)
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	defer context.AfterFunc(leading, cancel)()
	t.cfg.Lead(ctx, t.cfg.Lock.Token())
}

// giveUp is called when ctx ends; true: no work was begun and none will be.
func (t *term) giveUp() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = !t.started
	return t.over
}

// end waits for the work, however long it takes, and tells that it has stopped.
func (t *term) end() {
	t.mu.Lock()
	t.over = true
	started := t.started
	t.mu.Unlock()
	if !started {
		return
	}
	<-t.done
	if t.cfg.Stopped != nil {
		t.cfg.Stopped()
	}
}
