package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	keyspace = "orders"
	servers  = 3
	// ttl is the shortest that the servers' election timeout allows.
	ttl = 6 * cluster.ElectionTimeout
	// restartGrace is how long a restarting worker's partitions wait for it.
	restartGrace = 20 * time.Second
	// patience bounds every wait for something that should take seconds.
	patience = 30 * time.Second
)

// driver runs one mode: its own cluster, ledger, workers and storm.
type driver struct {
	cfg   Config
	mode  Mode
	dir   string
	story *Timeline

	group   *cluster.Group
	cluster *cluster.Cluster
	client  *client.Client
	ledger  *Ledger
	record  *Recorder
	board   *Board
	fleet   *fleet
	follow  *cluster.Follower
	source  Source
}

// runMode starts everything, makes the storm and judges what is left. An
// error means that there is no verdict. All that was started has ended when
// it returns, whichever way.
func runMode(ctx context.Context, cfg Config, mode Mode, dir string, story *Timeline) (result ModeResult, err error) {
	d := &driver{cfg: cfg, mode: mode, dir: dir, story: story}
	if err := os.MkdirAll(d.path("evidence"), 0o700); err != nil {
		return result, fmt.Errorf("create directory: %w", err)
	}
	if d.group, err = cluster.NewGroup(); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, d.group.Close()) }()
	if err := d.startServers(ctx); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, d.client.Close(), d.cluster.Close()) }()
	if d.ledger, err = OpenLedger(ctx, d.path("ledger.db"), !cfg.NoGuard); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, d.ledger.Close()) }()
	if d.record, err = NewRecorder(d.path("evidence"), DriverProcess, DriverProcess, nil); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, d.record.Close()) }()
	if err := d.startWorkers(ctx); err != nil {
		return result, err
	}
	following, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); d.follow.Run(following) }()
	defer func() { stop(); <-done }()

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

func (d *driver) path(name string) string { return filepath.Join(d.dir, name) }

// within bounds a wait.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
}

// startServers starts three servers and creates the keyspace.
func (d *driver) startServers(ctx context.Context) (err error) {
	ctx, cancel := within(ctx)
	defer cancel()
	began := now()
	if d.cluster, err = cluster.Start(d.group, d.dir, servers); err != nil {
		return err
	}
	if err := d.cluster.WaitReady(ctx); err != nil {
		return errors.Join(err, d.cluster.Close())
	}
	leader, err := d.cluster.Leader(ctx)
	if err == nil {
		d.client, err = client.Dial(ctx, client.Config{Servers: d.cluster.Addrs()})
	}
	if err != nil {
		return errors.Join(err, d.cluster.Close())
	}
	takeover := leaseholdv1.Takeover_TAKEOVER_STRICT
	if d.mode == Fenced {
		takeover = leaseholdv1.Takeover_TAKEOVER_FENCED
	}
	grace := restartGrace.Milliseconds()
	_, err = d.client.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{
		Name: keyspace, Partitions: d.cfg.Partitions, TtlMs: ttl.Milliseconds(), Takeover: takeover, RestartGraceMs: &grace,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("create keyspace: %w", err), d.client.Close(), d.cluster.Close())
	}
	d.story.Step("%d servers on %s, %s leads, after %s; keyspace %s: %d partitions, TTL %v, takeover %s",
		servers, d.cluster.Addrs(), leader.ID, rounded(now()-began), keyspace, d.cfg.Partitions, ttl, d.mode)
	return nil
}

// startWorkers starts the first workers and waits until they run everything.
func (d *driver) startWorkers(ctx context.Context) (err error) {
	ctx, cancel := within(ctx)
	defer cancel()
	if d.follow, err = cluster.NewFollower(ctx, d.client, keyspace, func(e *leaseholdv1.Event) { copyEvent(d.record, e) }); err != nil {
		return err
	}
	began := now()
	d.source = Source{Seed: d.cfg.Seed, Partitions: d.cfg.Partitions, Start: began, Pace: pace(d.cfg.Partitions)}
	d.board = newBoard(d.cfg.Partitions)
	d.fleet = newFleet(d.group, d.dir, d.board, d.record, WorkerConfig{
		Servers: d.cluster.Addrs(), Keyspace: keyspace, Evidence: d.path("evidence"), Ledger: d.path("ledger.db"),
		Guarded: !d.cfg.NoGuard, Source: d.source,
	})
	for _, id := range workerIDs(d.cfg.Workers) {
		if _, err := d.fleet.start(id); err != nil {
			return err
		}
	}
	if err := d.board.Wait(ctx, func(v *view) bool { return v.owned(d.fleet.processes()) }); err != nil {
		return fmt.Errorf("wait until all partitions run: %w", err)
	}
	d.story.Note("%d workers run all %d partitions after %s; %s", d.cfg.Workers, d.cfg.Partitions, rounded(now()-began), d.holdings())
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
	last := d.source.Arrived(now()) + 1
	d.story.Step("the stream ends with order %d of each partition", last)
	if err := d.fleet.all(fmt.Sprintf("%s %d", sayLast, last)); err != nil {
		return 0, err
	}
	// Should orders stay away, the audit says which: that is a verdict.
	waiting, enough := context.WithTimeoutCause(ctx, patience/2, fmt.Errorf("not within %v", patience/2))
	defer enough()
	if err := d.ledger.WaitFor(waiting, d.cfg.Partitions, last); err != nil {
		if ctx.Err() != nil {
			return 0, err
		}
		d.story.Bad("%v", err)
	}
	if err := d.follow.CatchUp(ctx); err != nil {
		return 0, err
	}
	return last, d.fleet.terminateAll(ctx)
}

// judge reads ledger and evidence back from disk.
func (d *driver) judge(ctx context.Context, last int64) (ModeResult, error) {
	audit, err := d.ledger.Audit(ctx, &d.source, last)
	if err != nil {
		return ModeResult{}, err
	}
	evidence, err := ReadEvidence(d.path("evidence"))
	if err != nil {
		return ModeResult{}, err
	}
	all := tenures(evidence, Deadlines{TTL: ttl}, now())
	return judge(d.mode, ttl, &d.source, audit, countOverlaps(all), measure(evidence, all)), nil
}
