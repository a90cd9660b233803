// Package chaos makes trouble for a cluster of real processes while an order
// stream runs, and judges what is left. Servers and workers are those of the
// demo, on its stage; each has a network of its own where this machine allows
// it, so that it can be cut off.
//
// Promise: what is done, to whom and for how long follows from the seed (Plan
// is pure); the verdict comes from the ledger and the evidence on disk (Judge
// is pure too), and Recheck gives it again from a directory that was kept.
// When Run has returned, no process, namespace or rule of it is left.
//
// Not promised: the same run from the same seed. Processes and the kernel have
// their own time; who leads when a fault comes is not planned.
//
// Goroutines: the runner is one, one more asks the servers who leads, one
// follows the cluster's events; package cluster has two per process. All end
// before Run returns.
package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/faults"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Config of a run. Env, NoGuard, Network and Plan may be left out.
type Config struct {
	Dir        string   // where everything is kept; it must be empty
	Executable string   // built with -tags chaos, unless Plan needs nothing of it
	Env        []string // of every process, beside what it needs
	Mode       demo.Mode
	Seed       int64
	Duration   time.Duration // of the trouble; start and end come on top
	Workers    int           // at least 3
	Partitions uint32
	NoGuard    bool     // neither claim nor guard: must end in a damaged ledger
	Network    *Network // nil: all on loopback, and nobody is cut off
	Plan       []Step   // nil: that of the seed
	Log        io.Writer
}

const (
	servers = 3
	// ttl is the shortest that the servers' election timeout allows.
	ttl = 6 * cluster.ElectionTimeout
	// recoverWithin is the bound for everything to be owned and written to after
	// the last heal; a TTL comes on top.
	recoverWithin = 10 * time.Second
	// balanceWithin is the bound for the partitions to be spread evenly at the
	// end of a long run.
	balanceWithin = 3 * time.Minute
	longRun       = 2 * time.Minute
	// patience bounds what must come in the end for the run to go on.
	patience = 90 * time.Second
	// pace is the time between two orders of a partition.
	pace = 100 * time.Millisecond
)

// Run makes the trouble and returns the verdict. An error says that there is
// none.
func Run(ctx context.Context, cfg Config) (v Verdict, err error) {
	r := &runner{cfg: cfg, story: demo.NewTimeline(cfg.Log, false), kinds: map[Fault]int{}, wrong: map[string]bool{}}
	if cfg.Network == nil {
		r.story.Note("no network of our own: nobody is cut off in this run")
	}
	if err := r.open(ctx); err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.startWorkers(ctx); err != nil {
		return v, err
	}
	r.watchThese()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); r.watchLeaders(watching) }()
	err = r.trouble(ctx)
	if err == nil {
		err = r.finish(ctx)
	}
	stop()
	<-watched
	if err != nil {
		return v, err
	}
	if err := writeRun(cfg.Dir, r.summary()); err != nil {
		return v, err
	}
	return Recheck(ctx, cfg.Dir)
}

// runner is the driver of one run. Its methods are called by one goroutine.
type runner struct {
	*demo.Stage
	cfg   Config
	story *demo.Timeline
	kinds map[Fault]int   // done
	wrong map[string]bool // processes whose faults file says something
	began time.Duration   // of the trouble
	ended time.Duration
	last  int64 // order of each partition
	next  int   // number of the last server id given out

	watch struct {
		sync.Mutex
		servers []leaseholdv1.ClusterServiceClient // whom watchLeaders asks
	}
}

// open starts the servers.
func (r *runner) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no cluster within %v", patience))
	defer cancel()
	specs := make([]cluster.ServerSpec, servers)
	for i := range specs {
		spec, err := r.newServer()
		if err != nil {
			return err
		}
		specs[i] = spec
	}
	stage, err := demo.OpenStage(ctx, demo.StageConfig{
		Dir: r.cfg.Dir, Group: cluster.NewGroupOf(r.cfg.Executable), Servers: specs, Mode: r.cfg.Mode, Partitions: r.cfg.Partitions, TTL: ttl,
		Seed: r.cfg.Seed, Pace: pace, Guarded: !r.cfg.NoGuard,
	})
	r.Stage = stage
	if err == nil && r.cfg.Plan == nil {
		err = r.hasFaults(specs[0].ID)
	}
	return err
}

// hasFaults makes sure that servers do have the faults they are given: a
// binary of another kind would ignore them, and nothing would be tested.
func (r *runner) hasFaults(id string) error {
	log, err := os.ReadFile(filepath.Join(r.cfg.Dir, id+".log"))
	if err != nil {
		return fmt.Errorf("read log of %s: %w", id, errors.Join(err, r.Close()))
	}
	if !bytes.Contains(log, []byte(faults.Announced)) {
		return errors.Join(fmt.Errorf("%s has no faults: build it with -tags chaos", r.cfg.Executable), r.Close())
	}
	return nil
}

// newServer says how the next server is started, on a host of its own.
func (r *runner) newServer() (spec cluster.ServerSpec, err error) {
	r.next++
	spec.ID = fmt.Sprintf("s%d", r.next)
	spec.Host, spec.Wrap, spec.Env, err = r.place(spec.ID)
	return spec, err
}

// place makes what a process needs: a host, and the file of its faults.
func (r *runner) place(name string) (host string, wrap, env []string, err error) {
	file := r.faultsFile(name)
	if err := faults.Write(file, faults.Settings{}); err != nil {
		return "", nil, nil, err
	}
	env = append(slices.Clone(r.cfg.Env), faults.EnvVar+"="+file)
	if n := r.cfg.Network; n != nil {
		if host, err = n.Add(name); err != nil {
			return "", nil, nil, err
		}
		wrap = n.Wrap(name)
	}
	return host, wrap, env, nil
}

func (r *runner) faultsFile(name string) string { return filepath.Join(r.cfg.Dir, name+".faults") }

// startWorkers begins the stream and waits until workers run everything.
func (r *runner) startWorkers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer cancel()
	if err := r.Begin(ctx); err != nil {
		return err
	}
	type placed struct{ wrap, env []string }
	places := map[string]placed{}
	for i := range r.cfg.Workers {
		id := fmt.Sprintf("w%d", i+1)
		_, wrap, env, err := r.place(id)
		if err != nil {
			return err
		}
		places[id] = placed{wrap, env}
	}
	r.Fleet.Adjust = func(id string, spec *cluster.Spec) { spec.Wrap, spec.Env = places[id].wrap, places[id].env }
	for _, id := range slices.Sorted(maps.Keys(places)) {
		if _, err := r.Fleet.Start(id); err != nil {
			return err
		}
	}
	if err := r.Board.Wait(ctx, func(v *demo.View) bool { return v.Owned(r.Fleet.Processes()) }); err != nil {
		return fmt.Errorf("wait until all partitions run: %w", err)
	}
	return nil
}

// trouble goes through the plan until the time is over.
func (r *runner) trouble(ctx context.Context) error {
	plan := r.cfg.Plan
	if plan == nil {
		var without []Fault
		if r.cfg.Network == nil {
			without = cuts
		}
		plan = Plan(r.cfg.Seed, int(r.cfg.Duration/time.Second)+1, without...)
	}
	r.began = demo.Now()
	for i, s := range plan {
		if r.cfg.Plan == nil && demo.Now()-r.began >= r.cfg.Duration {
			break
		}
		if err := r.step(ctx, i, s); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.Fault, err)
		}
	}
	r.ended = demo.Now()
	return nil
}

// step makes the trouble of one step, heals it and waits until all is well.
func (r *runner) step(ctx context.Context, i int, s Step) error {
	if err := sleep(ctx, s.Calm); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, fmt.Errorf("not within %v", 2*patience))
	defer cancel()
	r.story.Step("%d: %v", i, s)
	both := []Fault{s.Fault, s.With}
	if slices.Contains(serverFaults, s.With) {
		slices.Reverse(both) // what is done to a worker may take its time
	}
	var heals []func(context.Context) error
	for i, f := range both {
		if f == "" {
			continue
		}
		heal, err := r.inject(ctx, f, s.Pick>>(16*i))
		if err != nil {
			return err
		}
		heals = append(heals, heal)
	}
	if err := sleep(ctx, s.Hold); err != nil {
		return err
	}
	for _, heal := range heals {
		if err := heal(ctx); err != nil {
			return fmt.Errorf("heal: %w", err)
		}
	}
	r.watchThese()
	return r.recovered(ctx)
}

// inject makes one fault and returns what heals it. One that was refused is
// not counted.
func (r *runner) inject(ctx context.Context, f Fault, pick uint64) (heal func(context.Context) error, err error) {
	heal, err = r.do(ctx, f, pick)
	var not *notDone
	if errors.As(err, &not) {
		r.story.Note("%s: not done: %v", f, not)
		return func(context.Context) error { return nil }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	r.kinds[f]++
	r.Record.Write(demo.Record{Kind: kindFault, Cause: string(f)})
	return heal, nil
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// problem puts a broken promise that only the driver saw into the evidence.
func (r *runner) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.story.Bad("%s", text)
	r.Record.Write(demo.Record{Kind: kindProblem, Cause: text})
}

// Keep says where a run that failed is kept, and how to look at it again.
func Keep(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return fmt.Sprintf("ledger, evidence, logs and story are kept in %s; to judge them again:\n  go test ./cmd/leasehold -run TestChaosRecheck -chaos.recheck %s", dir, dir)
}
