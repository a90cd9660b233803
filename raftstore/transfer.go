package raftstore

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"
)

// TransferLeadership hands the leadership to the server that is furthest on,
// or, given a peer, to that one, and returns when this server leads no more.
// Proposals are refused meanwhile, for at most one election timeout.
func (s *Store) TransferLeadership(ctx context.Context, to ...Peer) error {
	r := s.running()
	if r == nil {
		return ErrStopped
	}
	if r.State() != raft.Leader {
		return &NotLeaderError{LeaderID: s.leaderID()}
	}
	var f raft.Future
	if len(to) > 0 {
		f = r.LeadershipTransferToServer(raft.ServerID(to[0].ID), raft.ServerAddress(to[0].RaftAddr))
	} else {
		f = r.LeadershipTransfer()
	}
	done := make(chan error, 1) // Raft bounds it by an election timeout
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("transfer leadership: %w", err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// otherVoters counts the voters beside this server.
func (s *Store) otherVoters(r *raft.Raft) int {
	n := 0
	for _, srv := range r.GetConfiguration().Configuration().Servers {
		if srv.Suffrage == raft.Voter && string(srv.ID) != s.id {
			n++
		}
	}
	return n
}

// resign hands the leadership on before a clean stop, so that the others need
// not wait for an election timeout.
func (s *Store) resign(r *raft.Raft) {
	if r.State() != raft.Leader || s.otherVoters(r) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*s.cfg.ElectionTimeout)
	defer cancel()
	if err := s.TransferLeadership(ctx); err != nil {
		s.log.Info("stopping without handing over the leadership", "cause", err)
	}
}
