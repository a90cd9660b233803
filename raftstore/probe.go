package raftstore

import (
	"context"
	"fmt"
)

// Probe returns nil when Raft's main loop has answered: it turns. Whether this
// server leads does not matter, nor whether there is a leader. While the loop
// hangs, all callers wait for the same answer.
func (s *Store) Probe(ctx context.Context) error {
	r := s.running()
	if r == nil {
		return ErrStopped
	}
	s.probeMu.Lock()
	answered := s.probing
	if answered == nil {
		answered = make(chan struct{})
		s.probing = answered
		go func() {
			_ = r.VerifyLeader().Error() // whatever it says, it was the loop that said it
			s.probeMu.Lock()
			s.probing = nil
			s.probeMu.Unlock()
			close(answered)
		}()
	}
	s.probeMu.Unlock()
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("raft's main loop has not answered: %w", context.Cause(ctx))
	}
}
