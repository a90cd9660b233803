package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// doWorker makes a fault of workers, and returns what heals it.
func (r *runner) doWorker(ctx context.Context, f Fault, pick uint64) (heal func(context.Context) error, err error) {
	ids := r.Fleet.IDs()
	id := ids[pick%uint64(len(ids))]
	other := ids[(pick+1)%uint64(len(ids))]
	m := r.Fleet.Member(id)
	switch f {
	case StopWorker:
		return nothing, r.zombie(ctx, m, pick)
	case PauseWorker:
		r.story.Note("SIGSTOP of %s", m.Process.Name)
		if _, err := r.Fleet.Stop(ctx, m, r.Ledger); err != nil {
			return nil, err
		}
		return func(context.Context) error { return r.Fleet.Continue(m) }, nil
	case KillWorker:
		return r.killWorkers(ctx, id)
	case KillTwoWorkers:
		return r.killWorkers(ctx, id, other)
	case RestartWorker:
		return nothing, r.restartWorkers(ctx, id)
	case RollWorkers:
		return nothing, r.restartWorkers(ctx, ids...)
	case LeaveWorker:
		r.story.Note("%s leaves", m.Process.Name)
		if err := r.Fleet.Leave(ctx, m); err != nil {
			return nil, err
		}
		return func(context.Context) error { _, err := r.Fleet.Start(id); return err }, nil
	case DrainWorker:
		r.story.Note("%s is drained", m.Process.Name)
		return r.drain(ctx, id)
	case CutWorker:
		return r.cutOff(id)
	case CutWorkerOneWay:
		return r.cutOneWay(id, pick)
	case WorkerClocks:
		return r.workerClocks(ids, pick)
	}
	return nil, fmt.Errorf("unknown fault %q", f)
}

// drain takes everything from a worker by the operator's verb, until it is
// undrained.
func (r *runner) drain(ctx context.Context, id string) (func(context.Context) error, error) {
	err := cluster.Persist(ctx, func(ctx context.Context) error {
		_, err := r.Client.Workers().DrainWorker(ctx, &leaseholdv1.DrainWorkerRequest{Id: id})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("drain %s: %w", id, err)
	}
	return func(ctx context.Context) error {
		return cluster.Persist(ctx, func(ctx context.Context) error {
			_, err := r.Client.Workers().UndrainWorker(ctx, &leaseholdv1.UndrainWorkerRequest{Id: id})
			return err
		})
	}, nil
}

// killWorkers ends workers with SIGKILL.
func (r *runner) killWorkers(ctx context.Context, ids ...string) (func(context.Context) error, error) {
	r.story.Note("kill -9 of %v", ids)
	for _, id := range ids {
		if _, err := r.Fleet.Kill(ctx, r.Fleet.Member(id)); err != nil {
			return nil, err
		}
	}
	return func(context.Context) error {
		var errs []error
		for _, id := range ids {
			_, err := r.Fleet.Start(id)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}, nil
}

// restartWorkers ends workers in order and starts them again, one by one.
func (r *runner) restartWorkers(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		if err := r.Fleet.Terminate(ctx, r.Fleet.Member(id)); err != nil {
			return err
		}
		m, err := r.Fleet.Start(id)
		if err != nil {
			return err
		}
		if err := r.Board.Wait(ctx, func(v *demo.View) bool { return v.Seen(m.Process.Name, demo.KindJoined) > 0 }); err != nil {
			return fmt.Errorf("wait until %s is back: %w", id, err)
		}
	}
	return nil
}

// zombie stops a worker between the look at a lease and the write under it,
// until the next owner of the partition has written, and lets it go on.
func (r *runner) zombie(ctx context.Context, m *demo.Member, pick uint64) error {
	var held []uint32
	r.Board.Look(func(v *demo.View) { held = v.HeldBy(m.Process.Name) })
	if len(held) == 0 {
		r.story.Note("%s holds nothing: it is only stopped", m.Process.Name)
		at, err := r.Fleet.Stop(ctx, m, r.Ledger)
		if err != nil {
			return err
		}
		if err := sleep(ctx, at+ttl-demo.Now()); err != nil {
			return err
		}
		return r.Fleet.Continue(m)
	}
	p := held[pick>>32%uint64(len(held))]
	arming, enough := context.WithTimeoutCause(ctx, 2*ttl, fmt.Errorf("not within %v", 2*ttl))
	defer enough()
	token, at, err := r.Fleet.Freeze(arming, m, p, r.Ledger)
	if err != nil && arming.Err() != nil && ctx.Err() == nil {
		r.story.Note("%s is not stopped, its partition has gone: %v", m.Process.Name, err)
		return r.Fleet.OpenGate(m, p)
	}
	if err != nil {
		return err
	}
	r.story.Note("SIGSTOP of %s: orders/%d is about to be written under token %d", m.Process.Name, p, token)
	waiting, enoughOfIt := context.WithTimeout(ctx, ttl+recoverWithin)
	defer enoughOfIt()
	err = r.Board.Wait(waiting, func(v *demo.View) bool { o := v.Owner(p); return o.Token > token && o.Wrote })
	if err != nil { // with another fault at the same time it may have to wait
		r.story.Note("nobody writes to orders/%d %v after its owner was stopped", p, (demo.Now() - at).Round(time.Millisecond))
	}
	if err := sleep(ctx, at+ttl+time.Second/2-demo.Now()); err != nil {
		return err
	}
	return r.Fleet.Thaw(m, p)
}
