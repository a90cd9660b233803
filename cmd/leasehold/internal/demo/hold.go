package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	// backAfter is when a process that has ended while the cluster is held is
	// started again: its partitions have found another owner by then.
	backAfter = ttl + 5*time.Second
	// heldPace is the time between two orders of the whole stream meanwhile.
	heldPace = 100 * time.Millisecond
)

// held is a process that is started again when it has ended.
type held struct {
	id      string
	process *cluster.Process
	start   func() (*cluster.Process, error)
	back    time.Duration // when it is started again; 0: it runs
	starts  int
	stopped bool
	record  *Recorder // of what people do to workers; nil for servers
}

// hold keeps the cluster up until ctx ends, with workers that carry a light
// stream of orders of its own (a Standing), and starts again what ends.
func (d *driver) hold(ctx context.Context, cfg Config) (err error) {
	stream := filepath.Join(d.Dir, "stream")
	if err := os.MkdirAll(filepath.Join(stream, "evidence"), 0o700); err != nil {
		return fmt.Errorf("create directory of the stream: %w", err)
	}
	record, err := NewRecorder(filepath.Join(stream, "evidence"), DriverProcess, DriverProcess, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, record.Close()) }()
	ids := heldWorkers(cfg)
	if err := d.lookout.showWorkers(ids); err != nil {
		return err
	}
	workers := make([]*held, len(ids))
	for i, id := range ids {
		workers[i] = &held{id: id, record: record, start: func() (*cluster.Process, error) { return d.startRelay(cfg, stream, id) }}
	}
	all := slices.Clone(workers)
	for _, s := range d.Cluster.Servers() {
		all = append(all, &held{id: s.ID, process: s.Process(), start: func() (*cluster.Process, error) {
			err := d.Cluster.Start(s)
			return s.Process(), err
		}})
	}
	for _, w := range workers {
		if err := w.restart(); err != nil {
			return err
		}
	}
	if err := d.awaitOwned(ctx); err != nil {
		return ended(ctx, err)
	}
	d.story.Step("%d workers carry a light stream of orders; all %d partitions are owned", len(workers), cfg.Partitions)
	d.story.Text(d.invitation(stream, workers))
	return errors.Join(d.keep(ctx, all), dismiss(workers))
}

// heldWorkers are those that the story leaves, for whom their partitions wait,
// and others up to the number at its start.
func heldWorkers(cfg Config) []string {
	var ids []string
	if !cfg.NoStory {
		storm := Storm(cfg.Seed, cfg.Workers)
		ids = slices.Clone(storm[len(storm)-1].Workers)
	}
	for _, id := range workerIDs(cfg.Workers) {
		if len(ids) < cfg.Workers && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// ended turns the error of a wait into none when ctx has ended: being stopped
// is how holding ends.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// startRelay starts a worker as people do.
func (d *driver) startRelay(cfg Config, stream, id string) (*cluster.Process, error) {
	args := []string{"demo", "relay", "--server", d.Cluster.Addrs(), "--id", id, "--dir", stream, "--metrics-addr", d.lookout.workers[id],
		"--partitions", fmt.Sprint(cfg.Partitions), "--pace", (heldPace * time.Duration(cfg.Partitions)).String()}
	if d.mode == Fenced {
		args = append(args, "--fenced")
	}
	return d.cfg.Group.Start(cluster.Spec{Name: id, Args: args, LogFile: filepath.Join(d.Dir, id+".log")})
}

// awaitOwned asks the servers until each partition has an owner.
func (d *driver) awaitOwned(ctx context.Context) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return cluster.Persist(ctx, func(ctx context.Context) error {
		st, err := d.Client.Cluster().GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
		if err != nil {
			return err
		}
		for _, k := range st.GetKeyspaces() {
			if k.GetName() == Keyspace && k.GetOwned() == k.GetPartitions() {
				return nil
			}
		}
		return errors.New("not all partitions are owned")
	})
}

// keep starts again what ends, until ctx does, and writes down what people do to
// the workers: without it the audit would take a killed one for a second owner.
func (d *driver) keep(ctx context.Context, all []*held) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, h := range all {
			switch {
			case h.back == 0 && h.over():
				h.note(KindDead)
				h.back = Now() + backAfter
				d.story.Note("%s has ended (%v) and is started again in %v", h.id, h.process.Err(), backAfter)
			case h.back != 0 && Now() >= h.back:
				if err := h.restart(); err != nil {
					return err
				}
				d.story.Note("%s is started again, pid %d", h.id, h.process.Pid())
			case h.back == 0:
				h.look()
			}
		}
	}
}

func (h *held) over() bool {
	select {
	case <-h.process.Done():
		return true
	default:
		return false
	}
}

// look notices that a process was stopped or continued.
func (h *held) look() {
	stopped, err := h.process.Stopped()
	if err != nil || stopped == h.stopped { // an error: it is ending
		return
	}
	h.stopped = stopped
	if stopped {
		h.note(KindStop)
	} else {
		h.note(KindContinue)
	}
}

// note writes a record about a worker's process under its name in the evidence.
func (h *held) note(kind Kind) {
	if h.record != nil {
		h.record.Write(Record{Kind: kind, Process: fmt.Sprintf("%s.%d", h.id, h.starts), Worker: h.id})
	}
}

func (h *held) restart() (err error) {
	h.back, h.stopped = 0, false
	h.starts++
	h.process, err = h.start()
	return err
}

// dismiss ends the workers in order; who has been stopped by hand cannot, and
// is killed when the group closes.
func dismiss(workers []*held) error {
	var errs []error
	for _, w := range workers {
		if err := w.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	enough := time.NewTimer(patience / 3)
	defer enough.Stop()
	for _, w := range workers {
		select {
		case <-w.process.Done():
		case <-enough.C:
			return errors.Join(errs...)
		}
	}
	return errors.Join(errs...)
}

// console is the address of a server's pages.
func console(s *cluster.Server) string { return "http://" + s.HTTPAddr + "/ui/" }

// announce tells, before the story, where to look at it.
func (d *driver) announce() {
	d.story.Text(fmt.Sprintf(`
  Watch it:   %s
  with Prometheus, in another terminal:
              %s

`, console(d.Cluster.Servers()[0]), d.lookout.command()))
}

// invitation says what there is to see and to do.
func (d *driver) invitation(stream string, workers []*held) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("")
	for i, s := range d.Cluster.Servers() {
		say("  %-10s  %s  %s  pid %d", []string{"console", "", ""}[i], console(s), s.ID, s.Process().Pid())
	}
	say("  %-10s  export LEASEHOLD_SERVER=%s", "commands", d.Cluster.Addrs())
	say("  %-10s  %s", "files", d.Dir)
	for i, w := range workers {
		say("  %-10s  http://%s/metrics  %s  pid %d", []string{"workers", ""}[min(i, 1)], d.lookout.workers[w.id], w.id, w.process.Pid())
	}
	say("")
	say("Prometheus (Debian: apt-get install prometheus), in another terminal:")
	say("")
	say("  %s", d.lookout.command())
	say("")
	say("  http://%s/targets  all are up", d.lookout.listen)
	say("  http://%s/alerts   the rules that come with Leasehold", d.lookout.listen)
	say("  http://%s/graph    %s", d.lookout.listen, strings.Join(queries, "\n"+strings.Repeat(" ", len("  http:///graph    ")+len(d.lookout.listen))))
	say("")
	say("Make trouble and look what happens; what has ended is back after %v:", backAfter)
	say("")
	first, last := workers[0], workers[len(workers)-1]
	say("  kill -9 %d; leasehold events -f", first.process.Pid())
	say("  kill -STOP %d; sleep 5; kill -CONT %d", last.process.Pid(), last.process.Pid())
	say("  leasehold workers drain %s", last.id)
	say("  leasehold demo audit --dir %s    # every order once, in sequence?", stream)
	say("")
	say("All of it ends with Ctrl-C.")
	return b.String()
}

// queries are what to begin with.
var queries = []string{
	"max by (state) (leasehold_partitions)",
	"sum by (reason) (increase(leasehold_partition_moves_total[1m]))",
	"leasehold_worker_partitions_held",
}
