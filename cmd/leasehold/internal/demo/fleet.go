package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
)

// fleet is the driver's hold on its worker processes. It is used by the
// driver's goroutine alone; boards and recorders have their own locks.
type fleet struct {
	group  *cluster.Group
	dir    string // logs
	board  *Board
	record *Recorder
	base   WorkerConfig // of every worker, but for its id and process
	starts map[string]int
	alive  map[string]*member
}

// member is a worker process.
type member struct {
	id      string
	process *cluster.Process // its Name is that of the evidence: w2.1
}

func newFleet(g *cluster.Group, dir string, board *Board, record *Recorder, base WorkerConfig) *fleet {
	return &fleet{group: g, dir: dir, board: board, record: record, base: base, starts: map[string]int{}, alive: map[string]*member{}}
}

// start starts a worker; a second start of the same id is another process.
func (f *fleet) start(id string) (*member, error) {
	f.starts[id]++
	cfg := f.base
	cfg.ID, cfg.Process = id, fmt.Sprintf("%s.%d", id, f.starts[id])
	raw, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("encode worker configuration: %w", err)
	}
	p, err := f.group.Start(cluster.Spec{
		Name: cfg.Process, Args: []string{WorkerCommand, string(raw)},
		LogFile: filepath.Join(f.dir, cfg.Process+".log"),
		Line: func(line []byte) {
			var r Record
			if json.Unmarshal(line, &r) == nil {
				f.board.Put(r)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	m := &member{id: id, process: p}
	f.alive[id] = m
	return m, nil
}

// WorkerCommand is the hidden command under which the binary is a worker of
// the demo.
const WorkerCommand = "demo-worker"

// ids of the processes that run, sorted.
func (f *fleet) processes() []string {
	var names []string
	for _, m := range f.alive {
		names = append(names, m.process.Name)
	}
	slices.Sort(names)
	return names
}

// owned waits until the members run all partitions, evenly if asked, and
// nothing has moved for a moment.
func (f *fleet) owned(ctx context.Context, even bool, quiet time.Duration) error {
	names := f.processes()
	err := f.board.Wait(ctx, func(v *view) bool {
		return v.owned(names) && (!even || v.even(names)) && v.quiet(quiet)
	})
	if err != nil {
		return fmt.Errorf("wait until %s run all partitions: %w", strings.Join(names, ", "), err)
	}
	return nil
}

// all says a word to every member that runs.
func (f *fleet) all(word string) error {
	var errs []error
	for _, m := range f.alive {
		errs = append(errs, m.process.Send(word))
	}
	return errors.Join(errs...)
}

// ended waits for the end of a member and writes it down.
func (f *fleet) ended(ctx context.Context, m *member) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", m.process.Name, context.Cause(ctx))
	case <-m.process.Done():
	}
	f.record.Write(Record{Kind: KindDead, Process: m.process.Name, Worker: m.id})
	f.board.Dead(m.process.Name)
	delete(f.alive, m.id)
	return nil
}

// mark writes down that something is about to be done to a member, and when.
func (f *fleet) mark(kind Kind, m *member) time.Duration {
	at := now()
	f.record.Write(Record{At: at, Kind: kind, Process: m.process.Name, Worker: m.id})
	return at
}

// kill ends a member with SIGKILL.
func (f *fleet) kill(ctx context.Context, m *member) (at time.Duration, err error) {
	at = f.mark(KindKill, m)
	if err := m.process.Signal(os.Kill); err != nil {
		return at, err
	}
	return at, f.ended(ctx, m)
}

// terminate sends SIGTERM and waits for the end.
func (f *fleet) terminate(ctx context.Context, m *member) error {
	if err := m.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return f.ended(ctx, m)
}

// terminateAll stops all members at once.
func (f *fleet) terminateAll(ctx context.Context) error {
	var errs []error
	members := make([]*member, 0, len(f.alive))
	for _, m := range f.alive {
		members = append(members, m)
		errs = append(errs, m.process.Signal(syscall.SIGTERM))
	}
	for _, m := range members {
		errs = append(errs, f.ended(ctx, m))
	}
	return errors.Join(errs...)
}
