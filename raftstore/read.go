package raftstore

import (
	"context"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// View calls fn with the state as it is on this server, which may lag behind
// the leader's. fn runs under the read lock: it must not block, call the Store
// or keep pointers into the state.
func (s *Store) View(fn func(*state.State)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(s.state)
}

// Read is View with everything in it that any server had acknowledged before
// Read was called. All readers that wait share one barrier in the log. Only the
// leader can; others return a *NotLeaderError.
func (s *Store) Read(ctx context.Context, fn func(*state.State)) error {
	p, err := s.proposer.joinBarrier()
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.err != nil {
		// A read has no outcome that could be unknown.
		return &NotLeaderError{LeaderID: s.proposer.leader()}
	}
	s.View(fn)
	return nil
}

// joinBarrier returns a barrier that has not been built into an entry yet.
func (q *proposer) joinBarrier() (*proposal, error) {
	q.mu.Lock()
	p := q.reading
	if p != nil {
		q.mu.Unlock()
		return p, nil
	}
	if q.phase == phaseClosed {
		q.mu.Unlock()
		return nil, q.refusal()
	}
	p, _ = newProposal(nil, 0)
	q.reading = p
	q.queues[laneUrgent] = append(q.queues[laneUrgent], p)
	q.mu.Unlock()
	q.signal()
	return p, nil
}
