package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
)

// Fleet is the driver's hold on its worker processes. It is used by the
// driver's goroutine alone; boards and recorders have their own locks.
type Fleet struct {
	// Adjust, when set, has the last word on how a worker is started.
	Adjust func(id string, spec *cluster.Spec)

	group  *cluster.Group
	dir    string // logs
	board  *Board
	record *Recorder
	base   WorkerConfig // of every worker, but for its id and process
	starts map[string]int
	alive  map[string]*Member
	shown  map[string]string // where workers show their metrics, by id; others do not
}

// Member is a worker process.
type Member struct {
	ID      string
	Process *cluster.Process // its Name is that of the evidence: w2.1
}

func newFleet(g *cluster.Group, dir string, board *Board, record *Recorder, base WorkerConfig) *Fleet {
	return &Fleet{group: g, dir: dir, board: board, record: record, base: base, starts: map[string]int{}, alive: map[string]*Member{}}
}

// Start starts a worker; a second start of the same id is another process.
func (f *Fleet) Start(id string) (*Member, error) {
	f.starts[id]++
	cfg := f.base
	cfg.ID, cfg.Process = id, fmt.Sprintf("%s.%d", id, f.starts[id])
	raw, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("encode worker configuration: %w", err)
	}
	spec := cluster.Spec{
		Name: cfg.Process, Args: []string{WorkerCommand, string(raw)},
		LogFile: filepath.Join(f.dir, cfg.Process+".log"),
		Line: func(line []byte) {
			var r Record
			if json.Unmarshal(line, &r) == nil {
				f.board.Put(r)
			}
		},
	}
	if addr := f.shown[id]; addr != "" {
		spec.Args = append(spec.Args, "--metrics-addr", addr)
	}
	if f.Adjust != nil {
		f.Adjust(id, &spec)
	}
	p, err := f.group.Start(spec)
	if err != nil {
		return nil, err
	}
	m := &Member{ID: id, Process: p}
	f.alive[id] = m
	return m, nil
}

// Member is the process of a worker id, nil when none runs.
func (f *Fleet) Member(id string) *Member { return f.alive[id] }

// IDs of the workers that run, sorted.
func (f *Fleet) IDs() []string { return slices.Sorted(maps.Keys(f.alive)) }

// Lost is a member that has ended by itself, nil if all run.
func (f *Fleet) Lost() *Member {
	for _, m := range f.alive {
		select {
		case <-m.Process.Done():
			return m
		default:
		}
	}
	return nil
}

// WorkerCommand is the hidden command under which the binary is a worker of
// the demo.
const WorkerCommand = "demo-worker"

// Processes are the names of those that run, sorted.
func (f *Fleet) Processes() []string {
	var names []string
	for _, m := range f.alive {
		names = append(names, m.Process.Name)
	}
	slices.Sort(names)
	return names
}

// Owned waits until the members run all partitions, evenly if asked, and
// nothing has moved for a moment.
func (f *Fleet) Owned(ctx context.Context, even bool, quiet time.Duration) error {
	names := f.Processes()
	err := f.board.Wait(ctx, func(v *View) bool {
		return v.Owned(names) && (!even || v.Even(names)) && v.Quiet(quiet)
	})
	if err != nil {
		return fmt.Errorf("wait until %s run all partitions: %w", strings.Join(names, ", "), err)
	}
	return nil
}

// Tell says a word to every member that runs.
func (f *Fleet) Tell(word string) error {
	var errs []error
	for _, m := range f.alive {
		errs = append(errs, m.Process.Send(word))
	}
	return errors.Join(errs...)
}

// Ended waits for the end of a member and writes it down.
func (f *Fleet) Ended(ctx context.Context, m *Member) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", m.Process.Name, context.Cause(ctx))
	case <-m.Process.Done():
	}
	f.record.Write(Record{Kind: KindDead, Process: m.Process.Name, Worker: m.ID})
	f.board.Dead(m.Process.Name)
	delete(f.alive, m.ID)
	return nil
}

// Mark writes down that something is about to be done to a member, and when.
func (f *Fleet) Mark(kind Kind, m *Member) time.Duration {
	at := Now()
	f.record.Write(Record{At: at, Kind: kind, Process: m.Process.Name, Worker: m.ID})
	return at
}

// Kill ends a member with SIGKILL.
func (f *Fleet) Kill(ctx context.Context, m *Member) (at time.Duration, err error) {
	at = f.Mark(KindKill, m)
	if err := m.Process.Signal(os.Kill); err != nil {
		return at, err
	}
	return at, f.Ended(ctx, m)
}

// Terminate sends SIGTERM and waits for the end.
func (f *Fleet) Terminate(ctx context.Context, m *Member) error {
	if err := m.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return f.Ended(ctx, m)
}

// Leave has a member hand over everything and end, and waits for its end.
func (f *Fleet) Leave(ctx context.Context, m *Member) error {
	if err := m.Process.Send(sayLeave); err != nil {
		return err
	}
	return f.Ended(ctx, m)
}

// Stop sends SIGSTOP while nobody is inside a transaction: a process that is
// stopped there would keep the ledger from all others. It returns when.
func (f *Fleet) Stop(ctx context.Context, m *Member, ledger *Ledger) (at time.Duration, err error) {
	unlock, err := ledger.Lock(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	at = f.Mark(KindStop, m)
	return at, m.Process.Stop(ctx)
}

// Freeze stops a member while its handler of a partition is between the look
// at its lease and its write. Thaw lets it go on.
func (f *Fleet) Freeze(ctx context.Context, m *Member, partition uint32, ledger *Ledger) (token uint64, at time.Duration, err error) {
	if err := m.Process.Send(fmt.Sprintf("%s %d", sayArm, partition)); err != nil {
		return 0, 0, err
	}
	err = f.board.Wait(ctx, func(v *View) bool { token = v.Gate(m.Process.Name, partition); return token != 0 })
	if err != nil {
		return 0, 0, fmt.Errorf("wait for the handler of orders/%d at the gate: %w", partition, err)
	}
	at, err = f.Stop(ctx, m, ledger)
	return token, at, err
}

// OpenGate lets the handler of a partition go on, and all that come after.
func (f *Fleet) OpenGate(m *Member, partition uint32) error {
	return m.Process.Send(fmt.Sprintf("%s %d", sayOpen, partition))
}

// Thaw opens the gate of a partition and continues its process.
func (f *Fleet) Thaw(m *Member, partition uint32) error {
	if err := f.OpenGate(m, partition); err != nil {
		return err
	}
	return f.Continue(m)
}

// Continue sends SIGCONT.
func (f *Fleet) Continue(m *Member) error {
	if err := m.Process.Continue(); err != nil {
		return err
	}
	f.Mark(KindContinue, m)
	return nil
}

// TerminateAll stops all members at once.
func (f *Fleet) TerminateAll(ctx context.Context) error {
	var errs []error
	members := make([]*Member, 0, len(f.alive))
	for _, m := range f.alive {
		members = append(members, m)
		errs = append(errs, m.Process.Signal(syscall.SIGTERM))
	}
	for _, m := range members {
		errs = append(errs, f.Ended(ctx, m))
	}
	return errors.Join(errs...)
}
