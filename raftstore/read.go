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
// Read was called. All readers that wait share one round of heartbeats
// (ReadIndex); nothing is written. Only the leader can; others return a
// *NotLeaderError.
func (s *Store) Read(ctx context.Context, fn func(*state.State)) error {
	index, err := s.ReadIndex(ctx)
	if err != nil {
		return err
	}
	if err := s.WaitApplied(ctx, index); err != nil {
		return err
	}
	s.View(fn)
	return nil
}
