package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// HandoffConfig sizes `bench handoff`.
type HandoffConfig struct {
	Handoffs   int // at least so many
	Workers    int
	Partitions uint32
	Strict     bool
}

// Handoff measures the time from the drain of a partition until the next
// handler runs, when the old one returns at once. Workers are drained by an
// operator's call and leave by themselves, in turns.
//
// With own servers it counts from the leader's proposal of the drain, which
// is before it is sent. Other servers have another clock: then it counts from
// when the old handler heard of it.
func Handoff(ctx context.Context, cfg Config, h HandoffConfig) (result OperationsResult, err error) {
	b, err := lay(ctx, cfg)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	space := b.name("handoff")
	if err := b.create(ctx, space, h.Partitions, sessionTTL, Takeover(h.Strict), time.Second); err != nil {
		return result, err
	}
	drains := &drains{}
	follower, err := cluster.NewFollower(ctx, b.client, space, drains.hear)
	if err != nil {
		return result, err
	}
	following, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); follower.Run(following) }()
	defer func() { stop(); <-done }()

	f := newFleet(b, h.Partitions)
	r := &rounds{bed: b, fleet: f, alive: map[string]*cluster.Process{}, config: workerConfig{Keyspace: space, Measured: space}}
	for range h.Workers {
		if err := r.add(ctx); err != nil {
			return result, err
		}
	}
	if err := f.waitOwned(ctx); err != nil {
		return result, err
	}
	var took []time.Duration
	began := time.Now()
	for n := 0; len(took) < h.Handoffs; n++ {
		before := f.owners()
		if err := r.round(ctx, n, before); err != nil {
			return result, err
		}
		if err := follower.CatchUp(ctx); err != nil {
			return result, err
		}
		took = append(took, f.handoffs(drains.take(), b.cluster != nil)...)
		b.cfg.Progress("%d of %d handoffs", len(took), h.Handoffs)
	}
	return operations("handoff", h.Strict, took, time.Since(began)), nil
}

// drains are the drains that the servers have logged, by token.
type drains struct {
	mu sync.Mutex // guards at
	at map[uint64]time.Duration
}

func (d *drains) hear(e *leaseholdv1.Event) {
	if e.GetKind() != "drain" {
		return
	}
	at := bootclock.Boot().Now() - time.Since(e.GetTime().AsTime())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil {
		d.at = map[uint64]time.Duration{}
	}
	if _, again := d.at[e.GetToken()]; !again { // a drain may change its target
		d.at[e.GetToken()] = at
	}
}

func (d *drains) take() map[uint64]time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.at
	d.at = nil
	return at
}

// handoffs pairs each drain with what ran next, also where a partition has
// moved more than once since it was last looked at.
func (f *fleet) handoffs(logged map[uint64]time.Duration, own bool) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.Copy(f.logged, logged)
	from := f.logged
	if !own {
		from = f.drained
	}
	var took []time.Duration
	for p, starts := range f.starts {
		// Processes tell at their own pace.
		slices.SortFunc(starts, func(a, b start) int { return cmp.Compare(a.token, b.token) })
		for i, s := range starts[1:] {
			if at, ok := from[starts[i].token]; ok {
				took = append(took, s.at-at)
			}
		}
		f.starts[p] = starts[len(starts)-1:]
	}
	return took
}

// rounds moves everything away from one worker after the other.
type rounds struct {
	bed    *bed
	fleet  *fleet
	config workerConfig
	alive  map[string]*cluster.Process
	order  []string // of the alive, oldest first
	added  int
}

// add starts one more worker, under a new id: those that come back too often
// are left alone for a while.
func (r *rounds) add(ctx context.Context) error {
	r.added++
	id := r.bed.id(r.added)
	r.config.Workers = []string{id}
	p, err := r.fleet.start(r.config)
	if err != nil {
		return err
	}
	r.alive[id] = p
	r.order = append(r.order, id)
	return r.fleet.waitOpen(ctx, r.config.Workers)
}

// round empties the oldest worker: by a drain in even rounds, and by its own
// leave, which a new one makes up for, in odd ones.
func (r *rounds) round(ctx context.Context, n int, before []owner) error {
	id := r.order[0]
	p := r.alive[id]
	empty := func() bool {
		for part, o := range before {
			if o.process == p && r.fleet.running[part].process == p {
				return false
			}
		}
		return true
	}
	if n%2 == 0 {
		if _, err := r.bed.client.Workers().DrainWorker(ctx, &leaseholdv1.DrainWorkerRequest{Id: id}); err != nil {
			return fmt.Errorf("drain %s: %w", id, err)
		}
		if err := r.fleet.wait(ctx, id+" is drained", empty); err != nil {
			return err
		}
		if _, err := r.bed.client.Workers().UndrainWorker(ctx, &leaseholdv1.UndrainWorkerRequest{Id: id}); err != nil {
			return fmt.Errorf("undrain %s: %w", id, err)
		}
		r.order = append(r.order[1:], id)
		return nil
	}
	if err := r.add(ctx); err != nil {
		return err
	}
	if err := p.Send(sayLeave + " " + id); err != nil {
		return err
	}
	if err := r.fleet.wait(ctx, id+" has left", func() bool { return r.fleet.left[id] && empty() }); err != nil {
		return err
	}
	r.order = r.order[1:]
	delete(r.alive, id)
	p.CloseInput()
	return nil
}
