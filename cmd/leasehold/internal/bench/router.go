package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/router"
)

// RouterConfig sizes `bench router`.
type RouterConfig struct {
	Routers    int
	Moves      int // at least so many
	Workers    int
	Partitions uint32
	AnyServer  bool // not all at the leader
}

// RouterTimes measures how soon a move is visible to routers: the time from
// the leader's proposal of the grant, which is before the log has it, until a
// router's table shows the new owner, for each move and each router. The moves
// are those of bench handoff. It starts its own servers always: theirs and the
// routers' clock are the same one. Event times are in milliseconds, so up to
// one of those is counted too much.
func RouterTimes(ctx context.Context, cfg Config, c RouterConfig) (result OperationsResult, err error) {
	if cfg.Servers != "" {
		return result, errors.New("measure routers: the clock of other servers is another one, leave --server out")
	}
	b, err := lay(ctx, cfg)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	space := b.name("router")
	if err := b.create(ctx, space, c.Partitions, sessionTTL, Takeover(false), time.Second); err != nil {
		return result, err
	}
	grants := &grants{}
	follower, err := cluster.NewFollower(ctx, b.client, space, grants.hear)
	if err != nil {
		return result, err
	}
	following, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() { stop(); running.Wait() }()
	running.Go(func() { follower.Run(following) })

	f := newFleet(b, c.Partitions)
	r := &rounds{bed: b, fleet: f, alive: map[string]*cluster.Process{}, config: workerConfig{Keyspace: space, Measured: space}}
	for range c.Workers {
		if err := r.add(ctx); err != nil {
			return result, err
		}
	}
	if err := f.waitOwned(ctx); err != nil {
		return result, err
	}
	b.cfg.Progress("starting %d routers", c.Routers)
	watchers := make([]*watcher, c.Routers)
	for i := range watchers {
		w := &watcher{changed: make(chan struct{}, 1)}
		w.router, err = router.New(router.Config{Servers: b.addrs, TLS: b.tls, Credential: b.credential, Keyspaces: []string{space}, AnyServer: c.AnyServer, OnChange: w.hear})
		if err != nil {
			return result, err
		}
		running.Go(func() { _ = w.router.Run(following) }) // returns nil only
		watchers[i] = w
	}
	for _, w := range watchers {
		if err := waitReady(ctx, w.router); err != nil {
			return result, err
		}
	}
	if err := follower.CatchUp(ctx); err != nil {
		return result, err
	}
	grants.take() // those before the routers
	var took []time.Duration
	moves := 0
	began := time.Now()
	for n := 0; moves < c.Moves; n++ {
		if err := r.round(ctx, n, f.owners()); err != nil {
			return result, err
		}
		if err := follower.CatchUp(ctx); err != nil {
			return result, err
		}
		moved := grants.take()
		moves += len(moved)
		for _, w := range watchers {
			times, err := w.times(ctx, moved)
			if err != nil {
				return result, err
			}
			took = append(took, times...)
		}
		b.cfg.Progress("%d of %d moves", moves, c.Moves)
	}
	return operations("router", false, took, time.Since(began)), nil
}

func waitReady(ctx context.Context, r *router.Router) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return r.WaitReady(ctx)
}

// granted is a grant that the servers have logged.
type granted struct {
	partition uint32
	token     uint64
	at        time.Duration // boot clock: proposed
}

// grants are those that the follower has heard of.
type grants struct {
	mu   sync.Mutex // guards what follows
	seen []granted
}

func (g *grants) hear(e *leaseholdv1.Event) {
	if e.GetKind() != "grant" {
		return
	}
	at := bootclock.Boot().Now() - time.Since(e.GetTime().AsTime())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, granted{e.GetPartition(), e.GetToken(), at})
}

func (g *grants) take() []granted {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := g.seen
	g.seen = nil
	return seen
}

// watcher is one router and what its table showed when.
type watcher struct {
	router  *router.Router
	changed chan struct{} // capacity 1

	mu    sync.Mutex // guards shown
	shown map[uint32][]granted
}

// hear is called when the table shows something new.
func (w *watcher) hear(at router.Route) {
	now := bootclock.Boot().Now()
	if at.Owner == "" {
		return
	}
	w.mu.Lock()
	if w.shown == nil {
		w.shown = map[uint32][]granted{}
	}
	w.shown[at.Partition] = append(w.shown[at.Partition], granted{at.Partition, at.Token, now})
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// times waits until the table has shown all grants, and returns how long each
// took. A grant that a later one has overtaken was visible with that one.
func (w *watcher) times(ctx context.Context, all []granted) ([]time.Duration, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	var took []time.Duration
	for _, g := range all {
		for {
			at, ok := w.first(g)
			if ok {
				took = append(took, max(0, at-g.at))
				break
			}
			select {
			case <-w.changed:
			case <-ctx.Done():
				return nil, fmt.Errorf("wait until a router shows token %d of partition %d: %w", g.token, g.partition, context.Cause(ctx))
			}
		}
	}
	return took, nil
}

// first is when the table showed a grant, or one after it, for the first time.
func (w *watcher) first(g granted) (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.shown[g.partition] {
		if s.token >= g.token {
			return s.at, true
		}
	}
	return 0, false
}
