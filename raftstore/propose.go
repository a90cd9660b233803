package raftstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	// maxEntry bounds the encoding of a log entry with several commands, in
	// bytes: what is urgent waits for those in flight. A command that is larger,
	// up to state.MaxCommandBytes, is an entry of its own, and only one such is
	// in flight at a time.
	maxEntry = 256 << 10
	// entryHead is more than the encoding of a batch without commands needs,
	// commandHead more than a command can grow by between measuring and
	// building (request id, elapsed).
	entryHead   = 64
	commandHead = 24
	// How many entries may be in flight. Two keep the leader's disk and the
	// followers' busy at once; more only make the batches smaller. One slot is
	// always free of plain proposals.
	plainSlots  = 2
	urgentSlots = 3
)

// lane orders proposals that wait.
type lane int

const (
	laneStart  lane = iota // the first of a term; the others wait for them
	laneUrgent             // keep-alives, expiry
	lanePlain
	lanes
)

// phase is what the proposer accepts.
type phase int

const (
	phaseClosed   phase = iota // nothing
	phaseStarting              // queues everything, builds laneStart only
	phaseOpen
)

// proposal is a group of commands with one outcome. It has no commands when
// only its place in the log matters: the barrier at the start of a term.
type proposal struct {
	cmds    []state.Command
	sizes   []int // of each command
	size    int   // of all
	single  [1]int
	request uint64

	// Guarded by proposer.mu until done is closed.
	taken      int // commands that are in an entry
	left       int // commands without an outcome
	notWritten int
	unknown    error
	abandoned  bool // its caller has gone; build no more of it
	results    []state.Result
	index      uint64 // and term of the last entry
	term       uint64
	err        error

	done chan struct{}   // closed with the outcome
	then func(*proposal) // or nil; called with the outcome, must not block
}

// units is how many outcomes a proposal of n commands waits for.
func units(n int) int { return max(n, 1) }

// Propose writes cmds to the log as one group and returns what the state said
// about each, in order. Proposals of other callers share the log entry. A
// refusal by the state is in its Result, not in the error, but for that of a
// command which needs a higher feature level: it is not written at all.
//
// Only the leader can: others return a *NotLeaderError and have written
// nothing. ErrUnknownOutcome, also when ctx ends while the group is in flight,
// means that it may yet be carried out. The commands must not be changed after.
func (s *Store) Propose(ctx context.Context, cmds ...state.Command) ([]state.Result, error) {
	return s.propose(ctx, lanePlain, 0, cmds)
}

// ProposeUrgent is Propose ahead of everything that waits in Propose. It is
// for the few small things that others wait for: sessions, releases, handoffs.
func (s *Store) ProposeUrgent(ctx context.Context, cmds ...state.Command) ([]state.Result, error) {
	return s.propose(ctx, laneUrgent, 0, cmds)
}

// ProposeRetry is Propose under a random request id, never 0. After
// ErrUnknownOutcome it may be called again with the same id and commands, on
// whichever server leads then: what has been carried out already is refused
// with state.ReasonUnknownOutcome instead of being done twice.
func (s *Store) ProposeRetry(ctx context.Context, requestID uint64, cmds ...state.Command) ([]state.Result, error) {
	return s.propose(ctx, lanePlain, requestID, cmds)
}

func (s *Store) propose(ctx context.Context, l lane, request uint64, cmds []state.Command) ([]state.Result, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	p, err := newProposal(cmds, request)
	if err != nil {
		return nil, err
	}
	if err := s.permit(cmds); err != nil {
		return nil, err
	}
	if err := s.proposer.submit(p, l); err != nil {
		return nil, err
	}
	if err := s.proposer.wait(ctx, p); err != nil {
		return nil, err
	}
	return p.results, p.err
}

// permit refuses a command that not every server of the group may know: in the
// log it would stop those. The state refuses it as well, when it is too late.
func (s *Store) permit(cmds []state.Command) (err error) {
	for _, c := range cmds {
		if err != nil || state.Needs(c) < state.FeatureAccess {
			continue
		}
		s.View(func(st *state.State) { err = st.Permits(c) })
	}
	if err != nil && !s.IsLeader() {
		return s.proposer.refusal() // the leader may know more
	}
	return err
}

// large reports whether a command of that size needs an entry of its own.
func large(size int) bool { return size > maxEntry-entryHead }

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// newProposal measures the commands, so that the builder can fill entries
// without encoding twice in its own goroutine.
func newProposal(cmds []state.Command, request uint64) (*proposal, error) {
	p := &proposal{
		cmds:    cmds,
		request: request,
		left:    units(len(cmds)),
		done:    make(chan struct{}),
	}
	if len(cmds) == 0 {
		return p, nil
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if p.sizes = p.single[:]; len(cmds) > 1 {
		p.sizes = make([]int, len(cmds))
	}
	one := state.Batch{}
	for i := range cmds {
		one.Commands = cmds[i : i+1]
		b, err := state.AppendBatch((*buf)[:0], &one)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", cmds[i], err)
		}
		*buf = b
		n := len(b) + commandHead
		if len(b) > state.MaxCommandBytes {
			return nil, &TooLongError{Command: fmt.Sprintf("%T", cmds[i]), Size: len(b), Limit: state.MaxCommandBytes}
		}
		p.sizes[i] = n
		p.size += n
	}
	return p, nil
}

// proposer queues proposals and is told their outcomes; build.go makes
// entries of them.
type proposer struct {
	mu       sync.Mutex
	phase    phase
	leader   func() string // id of the leader, for errors
	queues   [lanes][]*proposal
	inflight int
	large    bool // a large command is in flight
	passed   lane // with one that was passed over, because the entry had begun already; laneStart: none
	stopped  bool

	wake chan struct{} // capacity 1: there may be something to build
}

func newProposer(leader func() string) *proposer {
	return &proposer{leader: leader, wake: make(chan struct{}, 1)}
}

func (q *proposer) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *proposer) submit(p *proposal, l lane) error {
	q.mu.Lock()
	if q.phase == phaseClosed {
		q.mu.Unlock()
		return q.refusal()
	}
	q.queues[l] = append(q.queues[l], p)
	q.mu.Unlock()
	q.signal()
	return nil
}

// wait returns nil when p has its outcome.
func (q *proposer) wait(ctx context.Context, p *proposal) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-p.done:
		return nil
	default:
	}
	p.abandoned = true
	if p.taken == 0 {
		return fmt.Errorf("propose: %w", context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, context.Cause(ctx))
}

// setPhase opens the proposer for a term, step by step.
func (q *proposer) setPhase(ph phase) {
	q.mu.Lock()
	q.phase = ph
	q.mu.Unlock()
	q.signal()
}

// close refuses what waits and everything after; entries in flight keep their
// own outcome.
func (q *proposer) close(stop bool) {
	err := &NotLeaderError{LeaderID: q.leader()}
	q.mu.Lock()
	q.phase = phaseClosed
	q.stopped = q.stopped || stop
	var finished []*proposal
	for l := range q.queues {
		for _, p := range q.queues[l] {
			if q.settleLocked(p, units(len(p.cmds))-p.taken, err, nil) {
				finished = append(finished, p)
			}
		}
		q.queues[l] = nil
	}
	q.mu.Unlock()
	finish(finished)
}

// settleLocked notes the outcome of n units of p and reports whether it was
// the last.
func (q *proposer) settleLocked(p *proposal, n int, notWritten, unknown error) bool {
	if n == 0 || p.left == 0 {
		return false
	}
	p.left -= n
	switch {
	case notWritten != nil:
		p.notWritten += n
		p.err = notWritten
	case unknown != nil:
		p.unknown = unknown
	}
	if p.left > 0 {
		return false
	}
	switch {
	case p.unknown != nil:
		p.err = p.unknown
	case p.notWritten > 0 && p.notWritten < units(len(p.cmds)):
		p.err = fmt.Errorf("%w: %d of %d commands were not written", ErrUnknownOutcome, p.notWritten, len(p.cmds))
	}
	if p.err != nil {
		p.results = nil
	}
	return true
}

func finish(ps []*proposal) {
	for _, p := range ps {
		close(p.done)
		if p.then != nil {
			p.then(p)
		}
	}
}

// accepts reports whether submit would take a proposal now.
func (q *proposer) accepts() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.phase != phaseClosed
}

// refusal is the error of a closed proposer.
func (q *proposer) refusal() error {
	q.mu.Lock()
	stopped := q.stopped
	q.mu.Unlock()
	if stopped {
		return ErrStopped
	}
	return &NotLeaderError{LeaderID: q.leader()}
}
