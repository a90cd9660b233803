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
		srv, err := findVoter(r.GetConfiguration().Configuration(), to[0])
		if err != nil {
			return err
		}
		f = r.LeadershipTransferToServer(srv.ID, srv.Address)
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

// findVoter finds whom to hand the leadership to. A peer without a store is
// meant by its id alone.
func findVoter(conf raft.Configuration, to Peer) (raft.Server, error) {
	for _, srv := range conf.Servers {
		if p := peerOf(srv); p.ID == to.ID && (to.Store == "" || to.Store == p.Store) && srv.Suffrage == raft.Voter {
			return srv, nil
		}
	}
	return raft.Server{}, &PeerError{Op: "transfer to", Peer: to, Reason: "it is not a voter of this group"}
}

// otherVoters counts the voters beside this server.
func (s *Store) otherVoters(r *raft.Raft) int {
	n := 0
	for _, srv := range r.GetConfiguration().Configuration().Servers {
		if srv.Suffrage == raft.Voter && srv.ID != s.self.raftID() {
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
