package raftstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// AddPeer takes p into the group as a non-voter, which receives the log but
// counts for nothing. The leader does it. If p is there already, with the same
// store, it does nothing.
func (s *Store) AddPeer(ctx context.Context, p Peer) error {
	return s.changePeer(ctx, "add", p, func(c *change) error {
		switch {
		case p.ID == "" || p.Store == "" || p.RaftAddr == "":
			return c.refuse("id, store and address must be known")
		case c.found:
			return nil
		}
		if refused := s.transport.meet(p); refused != nil {
			return c.refuse(refused.Error())
		}
		c.future = func() raft.IndexFuture { return c.r.AddNonvoter(p.raftID(), p.raftAddress(), c.prev, 0) }
		return nil
	})
}

// PromotePeer makes a non-voter that has caught up a voter. Promoted earlier, a
// server that cannot answer would count for the quorum, and could cost it. If p
// votes already it does nothing.
func (s *Store) PromotePeer(ctx context.Context, p Peer) error {
	return s.changePeer(ctx, "promote", p, func(c *change) error {
		switch {
		case !c.found:
			return c.refuse(notAPeer)
		case c.server.Suffrage == raft.Voter:
			return nil
		}
		s.hear(ctx, c.conf)
		if behind := s.behind(c.r, c.server.ID); behind != "" {
			return c.refuse(behind)
		}
		if lost := s.quorumLost(c.conf, c.server.ID, ""); lost != "" {
			return c.refuse(lost)
		}
		c.future = func() raft.IndexFuture { return c.r.AddVoter(c.server.ID, c.server.Address, c.prev, 0) }
		return nil
	})
}

// RemovePeer takes exactly that server, id and store, out of the group. The
// leader does not remove itself: it must hand the leadership on first.
func (s *Store) RemovePeer(ctx context.Context, p Peer) error { return s.removePeer(ctx, p, false) }

// ForceRemovePeer is RemovePeer also when the voters that are left and answer
// are no majority. Then nothing is decided until enough of them are back, not
// even this.
func (s *Store) ForceRemovePeer(ctx context.Context, p Peer) error { return s.removePeer(ctx, p, true) }

func (s *Store) removePeer(ctx context.Context, p Peer, force bool) error {
	return s.changePeer(ctx, "remove", p, func(c *change) error {
		switch {
		case !c.found:
			return c.refuse(notAPeer)
		case c.server.ID == s.self.raftID():
			return c.refuse("it is the leader: transfer first, then ask the next leader to remove it")
		}
		s.hear(ctx, c.conf)
		if lost := s.quorumLost(c.conf, "", c.server.ID); lost != "" && !force && c.server.Suffrage == raft.Voter {
			return c.refuse(lost)
		}
		c.future = func() raft.IndexFuture { return c.r.RemoveServer(c.server.ID, c.prev, 0) }
		return nil
	})
}

// MovePeer writes another address for a server, which stays what it is.
func (s *Store) MovePeer(ctx context.Context, p Peer) error {
	return s.changePeer(ctx, "move", p, func(c *change) error {
		switch {
		case !c.found:
			return c.refuse(notAPeer)
		case p.RaftAddr == "":
			return c.refuse("the new address must be known")
		case c.server.Address == p.raftAddress():
			return nil
		}
		// For a server that is there, Raft takes from this only the address. (As
		// leader it does so without a lock: see .ci/race.suppressions.)
		c.future = func() raft.IndexFuture { return c.r.AddNonvoter(c.server.ID, p.raftAddress(), c.prev, 0) }
		return nil
	})
}

const notAPeer = "the group has no such server with that data directory"

// change is a change of the configuration that is being looked at.
type change struct {
	r      *raft.Raft
	conf   raft.Configuration
	prev   uint64 // index of conf, which must still be the latest
	server raft.Server
	found  bool // server is in conf
	refuse func(reason string) error
	future func() raft.IndexFuture // nil: nothing to do
}

// changePeer makes one change at a time, each against the configuration that
// the decision was made on: Raft refuses it if there is a newer one.
func (s *Store) changePeer(ctx context.Context, op string, p Peer, decide func(*change) error) error {
	select {
	case s.changing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	release := func() { <-s.changing }
	r := s.running()
	if r == nil || !s.IsLeader() {
		release()
		if r == nil {
			return ErrStopped
		}
		return &NotLeaderError{LeaderID: s.leaderID()}
	}
	c := &change{r: r, refuse: func(reason string) error { return &PeerError{Op: op, Peer: p, Reason: reason} }}
	c.conf, c.prev = s.members.committed()
	i := slices.IndexFunc(c.conf.Servers, func(srv raft.Server) bool { return srv.ID == p.raftID() })
	if c.found = i >= 0; c.found {
		c.server = c.conf.Servers[i]
	}
	if err := decide(c); err != nil || c.future == nil {
		release()
		return err
	}
	done := make(chan error, 1)
	go func() { // ends with the change, with the leadership or with Raft
		defer release()
		done <- c.future().Error()
	}()
	select {
	case err := <-done:
		return s.changeError(op, p, err)
	case <-ctx.Done():
		return fmt.Errorf("%s server %s: %w: %w", op, p, ErrUnknownOutcome, context.Cause(ctx))
	}
}

func (s *Store) changeError(op string, p Peer, err error) error {
	switch {
	case err == nil:
		s.log.Info("servers of the group changed", "change", op, "server", p.ID, "store", p.Store, "addr", p.RaftAddr)
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return &NotLeaderError{LeaderID: s.leaderID()}
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%s server %s: %w: %w", op, p, ErrUnknownOutcome, err)
	default:
		return fmt.Errorf("%s server %s: %w", op, p, err)
	}
}

// hear gives the others the time to answer a leader that has just been elected,
// so that it does not take those for gone that it has not heard of yet.
func (s *Store) hear(ctx context.Context, conf raft.Configuration) {
	silent := func(srv raft.Server) bool {
		age, _ := s.transport.contact(srv.ID)
		return age < 0 && srv.ID != s.self.raftID()
	}
	end := time.Unix(0, s.office.Load()).Add(2 * s.cfg.ElectionTimeout)
	for time.Now().Before(end) && slices.ContainsFunc(conf.Servers, silent) {
		select {
		case <-time.After(s.cfg.ElectionTimeout / 10):
		case <-ctx.Done():
			return
		}
	}
}

// behind says what a server lacks for being promoted. It has caught up when it
// answers and has all but what may be on its way to it.
func (s *Store) behind(r *raft.Raft, id raft.ServerID) string {
	age, index := s.transport.contact(id)
	commit := r.CommitIndex()
	switch {
	case age < 0:
		return "it has not answered yet: check that it runs and can be reached"
	case age > s.cfg.ElectionTimeout:
		return fmt.Sprintf("it has not answered for %v", age.Round(time.Millisecond))
	case index+maxAppendEntries < commit:
		return fmt.Sprintf("it is %d log entries behind: wait until it has caught up", commit-index)
	}
	return ""
}

// quorumLost says that a change would leave too few voters in contact to commit
// anything, the change itself included.
func (s *Store) quorumLost(conf raft.Configuration, promoted, removed raft.ServerID) string {
	voters, present := 0, 0
	for _, srv := range conf.Servers {
		if srv.ID == removed || srv.Suffrage != raft.Voter && srv.ID != promoted {
			continue
		}
		voters++
		age, _ := s.transport.contact(srv.ID)
		if srv.ID == s.self.raftID() || age >= 0 && age <= 2*s.cfg.ElectionTimeout {
			present++
		}
	}
	if present > voters/2 {
		return ""
	}
	return fmt.Sprintf("only %d of the %d voters that would be left answer: that is no majority, bring others back first", present, voters)
}
