package raftstore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// fsm adapts the state to Raft. Its methods are called by one goroutine of
// Raft's, Persist by another.
type fsm struct{ s *Store }

var _ raft.BatchingFSM = (*fsm)(nil)

// errStateStopped answers entries after one that could not be applied.
var errStateStopped = errors.New("state machine has stopped")

// Apply is never used: Raft prefers ApplyBatch.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies entries in order. An entry that cannot be decoded, or
// holds a command that this version does not know, stops the state for good:
// going on without it would let this server differ from the others.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	if f.s.leading.Load() != 0 {
		f.s.transport.news.committed()
	}
	before := f.s.appliedIndex.Load()
	for i, l := range logs {
		answers[i] = f.applyOne(l)
	}
	f.s.applied.wake(f.s.seenIndex.Load())
	if f.s.appliedIndex.Load() != before {
		if err := f.s.learnCluster(); err != nil {
			f.s.halt(err)
		}
		f.s.changed.notify()
	}
	return answers
}

func (f *fsm) applyOne(l *raft.Log) any {
	s := f.s
	if s.stopped.Load() {
		return errStateStopped
	}
	if l.Type == raft.LogConfiguration {
		s.members.apply(l.Index, raft.DecodeConfiguration(l.Data))
	}
	if l.Type != raft.LogCommand || len(l.Data) == 0 {
		raise(&s.seenIndex, l.Index)
		return &applied{index: l.Index, term: l.Term}
	}
	b, err := state.DecodeBatch(l.Data)
	if err != nil {
		if e := s.needs(l.Index, err); e != nil {
			s.halt(e)
			return errStateStopped
		}
		s.halt(&StorageError{Op: "apply entry", Path: fmt.Sprintf("%s (index %d, term %d)", s.files.path("log"), l.Index, l.Term), Err: err})
		return errStateStopped
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if done, _ := s.state.Applied(); l.Index <= done {
		return &applied{index: l.Index, term: l.Term, results: make([]state.Result, len(b.Commands))}
	}
	began := time.Now()
	defer func() { s.cfg.Metrics.ApplySeconds(time.Since(began).Seconds()) }()
	from := s.state.Revision()
	results := s.state.Apply(l.Index, l.Term, b)
	if e := s.needsLevel(l.Index, s.state.Feature()); e != nil {
		s.halt(e) // it is the first entry above, and nothing of it is stored
		return errStateStopped
	}
	if s.cfg.OnApply != nil {
		s.cfg.OnApply(s.state, from, s.state.Revision(), l.Index)
	}
	s.seenIndex.Store(l.Index)
	s.appliedIndex.Store(l.Index)
	return &applied{results: results, index: l.Index, term: l.Term}
}

// Snapshot captures the state; applies wait meanwhile.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.s.stopped.Load() {
		return nil, errStateStopped
	}
	f.s.mu.RLock()
	defer f.s.mu.RUnlock()
	return &snapshot{p: f.s.state.Snapshot(), metrics: f.s.cfg.Metrics}, nil
}

// Restore replaces the state by one that the leader sent.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	st, err := state.Restore(bufio.NewReaderSize(r, 1<<20))
	if err == nil {
		if e := f.s.needsLevel(0, st.Feature()); e != nil {
			err = e
		}
	} else if e := f.s.needs(0, err); e != nil {
		err = e
	} else {
		err = &StorageError{Op: "restore snapshot", Path: f.s.files.path("snapshots"), Err: err}
	}
	if err != nil {
		f.s.halt(err)
		return err
	}
	f.s.install(st)
	raise(&f.s.seenIndex, f.s.files.snaps.newest().index) // the last entry may have been none of the state's
	f.s.snapshotMembers()
	if err := f.s.learnCluster(); err != nil {
		f.s.halt(err)
		return err
	}
	f.s.applied.wake(f.s.seenIndex.Load())
	f.s.changed.notify()
	return nil
}

// halt stops the state for good, and Run with err.
func (s *Store) halt(err error) {
	s.stopped.Store(true)
	s.fail(err)
}

// install makes st the state.
func (s *Store) install(st *state.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = st
	index, _ := st.Applied()
	s.appliedIndex.Store(index)
	s.seenIndex.Store(max(index, s.seenIndex.Load()))
}

// snapshot is a captured state on its way to disk.
type snapshot struct {
	p       *state.Snapshot
	metrics Observer
}

// Persist writes the snapshot; a failure leaves the older ones as they are.
func (p *snapshot) Persist(sink raft.SnapshotSink) error {
	start := time.Now()
	w := bufio.NewWriterSize(sink, 1<<20)
	err := p.p.Write(w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		p.metrics.SnapshotFailed()
		return fmt.Errorf("write snapshot: %w", errors.Join(err, sink.Cancel()))
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("close snapshot: %w", err)
	}
	p.metrics.SnapshotSeconds(time.Since(start).Seconds())
	return nil
}

// Release has nothing to give back.
func (p *snapshot) Release() {}
