package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
)

const (
	servers = 3
	// ttl is the shortest that the servers' election timeout allows.
	ttl = 6 * cluster.ElectionTimeout
	// patience bounds every wait for something that should take seconds.
	patience = 30 * time.Second
)

// driver runs one mode: its own stage, workers and storm.
type driver struct {
	*Stage
	mode  Mode
	story *Timeline
	// lookout is where to watch from; nil unless the cluster is held.
	lookout *lookout
}

// runMode starts everything, makes the storm and judges what is left. An
// error means that there is no verdict. All that was started has ended when
// it returns, whichever way.
func runMode(ctx context.Context, cfg Config, mode Mode, dir string, story *Timeline) (result ModeResult, err error) {
	d := &driver{mode: mode, story: story}
	if err := d.open(ctx, cfg, dir); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if !cfg.NoStory {
		if result, err = d.play(ctx, cfg); err != nil {
			return result, err
		}
		d.story.tell(result)
	}
	if cfg.Hold {
		err = d.hold(ctx, cfg)
	}
	return result, err
}

// play is the story with its verdict.
func (d *driver) play(ctx context.Context, cfg Config) (result ModeResult, err error) {
	if err := d.startWorkers(ctx, cfg.Workers); err != nil {
		return result, err
	}
	for _, s := range Storm(cfg.Seed, cfg.Workers) {
		if err := d.step(ctx, s); err != nil {
			return result, fmt.Errorf("%s: %w", s.Action, err)
		}
	}
	last, err := d.finish(ctx)
	if err != nil {
		return result, err
	}
	return d.judge(ctx, last)
}

// within bounds a wait.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
}

// open starts the servers.
func (d *driver) open(ctx context.Context, cfg Config, dir string) error {
	ctx, cancel := within(ctx)
	defer cancel()
	group, err := cluster.NewGroup()
	if err != nil {
		return err
	}
	began := Now()
	d.Stage, err = OpenStage(ctx, StageConfig{
		Dir: dir, Group: group, Servers: cluster.Specs(servers), Mode: d.mode, Partitions: cfg.Partitions, TTL: ttl,
		Seed: cfg.Seed, Pace: pace(cfg.Partitions), Guarded: !cfg.NoGuard,
	})
	if err != nil {
		return err
	}
	leader, err := d.Cluster.Leader(ctx)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	if cfg.Hold {
		if err := d.openLookout(cfg); err != nil {
			return errors.Join(err, d.Close())
		}
	}
	d.story.Step("%d servers on %s, %s leads, after %s; keyspace %s: %d partitions, TTL %v, takeover %s",
		servers, d.Cluster.Addrs(), leader.ID, rounded(Now()-began), Keyspace, cfg.Partitions, ttl, d.mode)
	if cfg.Hold && !cfg.NoStory {
		d.announce()
	}
	return nil
}

// openLookout has the story's workers show themselves, the newcomer too.
func (d *driver) openLookout(cfg Config) (err error) {
	ids := workerIDs(cfg.Workers + 1)
	if d.lookout, err = newLookout(d.path("prometheus"), ids); err != nil {
		return err
	}
	return errors.Join(d.lookout.showServers(d.Cluster.Servers()), d.lookout.showWorkers(ids))
}

// startWorkers starts the first workers and waits until they run everything.
func (d *driver) startWorkers(ctx context.Context, workers int) error {
	ctx, cancel := within(ctx)
	defer cancel()
	if err := d.Begin(ctx); err != nil {
		return err
	}
	began := Now()
	if d.lookout != nil {
		d.Fleet.shown = d.lookout.workers
	}
	for _, id := range workerIDs(workers) {
		if _, err := d.Fleet.Start(id); err != nil {
			return err
		}
	}
	if err := d.Board.Wait(ctx, func(v *View) bool { return v.Owned(d.Fleet.Processes()) }); err != nil {
		return fmt.Errorf("wait until all partitions run: %w", err)
	}
	d.story.Note("%d workers run all %d partitions after %s; %s", workers, d.Source.Partitions, rounded(Now()-began), d.holdings())
	return nil
}

// pace keeps the ledger at about 600 orders a second, however many partitions
// share it: it has one writer at a time.
func pace(partitions uint32) time.Duration {
	return max(5*time.Millisecond, time.Duration(partitions)*1600*time.Microsecond)
}

// finish ends the stream, waits until the ledger has all of it and stops the
// workers. It returns the last order's number.
func (d *driver) finish(ctx context.Context) (int64, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	last, err := d.EndOrders()
	if err != nil {
		return 0, err
	}
	d.story.Step("the stream ends with order %d of each partition", last)
	// Should orders stay away, the audit says which: that is a verdict.
	waiting, enough := context.WithTimeoutCause(ctx, patience/2, fmt.Errorf("not within %v", patience/2))
	defer enough()
	if err := d.Ledger.WaitFor(waiting, d.Source.Partitions, last); err != nil {
		if ctx.Err() != nil {
			return 0, err
		}
		d.story.Bad("%v", err)
	}
	if err := d.CatchUp(ctx); err != nil {
		return 0, err
	}
	return last, d.Fleet.TerminateAll(ctx)
}

// judge reads ledger and evidence back from disk.
func (d *driver) judge(ctx context.Context, last int64) (ModeResult, error) {
	audit, err := d.Ledger.Audit(ctx, &d.Source, last)
	if err != nil {
		return ModeResult{}, err
	}
	evidence, err := d.Evidence()
	if err != nil {
		return ModeResult{}, err
	}
	all := Tenures(evidence, Deadlines{TTL: ttl}, Now())
	return judge(d.mode, ttl, &d.Source, audit, CountOverlaps(all), Measure(evidence, all)), nil
}
