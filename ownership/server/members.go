package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

const (
	// changeTimeout bounds one change of the configuration.
	changeTimeout = 5 * time.Second
	// changeRetry is the pause after a change that failed, deniedRetry that
	// after an empty server that turned out not to be one.
	changeRetry = time.Second
	deniedRetry = 10 * time.Second
)

// leadMembers keeps the configuration of the Raft group up while this server
// leads: the planner decides, this does.
func (s *Server) leadMembers(ctx context.Context) error {
	p := newPlanner(s.cfg.ElectionTimeout)
	clock := s.cfg.hooks.bootClock()
	tick := time.NewTicker(min(watchInterval, s.cfg.ElectionTimeout) * time.Duration(max(s.cfg.hooks.pace, 1)))
	defer tick.Stop()
	defer s.setNotes(nil)
	denied := map[storeKey]time.Duration{} // until when
	var retry time.Duration
	said := ""
	for {
		l := s.look(clock.Now(), denied)
		c, ok := p.plan(l)
		s.setNotes(p.notes(l))
		if ok && l.at >= retry {
			err := s.apply(ctx, c)
			var no *deniedError
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.As(err, &no):
				denied[keyOf(c.peer)] = clock.Now() + deniedRetry
			case err != nil:
				retry = clock.Now() + changeRetry
			default:
				s.log.Info("server of the group changed", "change", string(c.op), "server", c.peer.ID, "store", c.peer.Store,
					"addr", c.peer.RaftAddr, "reason", c.reason)
			}
			if err != nil && err.Error() != said {
				said = err.Error()
				s.log.Warn("server of the group was not changed, trying again", "change", string(c.op), "server", c.peer.ID,
					"store", c.peer.Store, "reason", c.reason, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look is what the leader sees now.
func (s *Server) look(now time.Duration, denied map[storeKey]time.Duration) look {
	st := s.store.Status()
	l := look{at: now, self: s.store.Self(), peers: st.Peers, seen: map[string]raftstore.Peer{}, lastIndex: st.LastIndex}
	for _, m := range s.gossip.Members() {
		if m.Meta.Role != gossip.RoleServer || m.Status != gossip.Alive || m.Meta.ID == s.id {
			continue
		}
		peer := raftstore.Peer{ID: m.Meta.ID, Store: m.Meta.Store, RaftAddr: m.Meta.RaftAddr}
		if now >= denied[keyOf(peer)] {
			l.seen[peer.ID] = peer
		}
	}
	return l
}

func (s *Server) apply(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	switch c.op {
	case opAdd:
		if err := s.confirmEmpty(ctx, c.peer); err != nil {
			return err
		}
		return s.store.AddPeer(ctx, c.peer)
	case opMove:
		return s.store.MovePeer(ctx, c.peer)
	case opPromote:
		return s.store.PromotePeer(ctx, c.peer)
	}
	return s.store.RemovePeer(ctx, c.peer)
}

// deniedError says why a server is not let in by itself.
type deniedError struct{ why string }

func (e *deniedError) Error() string { return e.why }

// confirmEmpty asks a server that is to be let in beside its former self. One
// with data has been removed, or belongs elsewhere: an operator has to say what
// shall become of it.
func (s *Server) confirmEmpty(ctx context.Context, peer raftstore.Peer) error {
	m, ok := s.gossip.Member(gossip.Name(gossip.RoleServer, peer.ID))
	if !ok {
		return errors.New("gossip has lost it")
	}
	st, err := s.ask(ctx, m.Meta.GRPCAddr)
	switch {
	case err != nil:
		return fmt.Errorf("ask it at %s: %w", m.Meta.GRPCAddr, err)
	case st.GetServerId() != peer.ID || st.GetStoreId() != peer.Store:
		return fmt.Errorf("at %s is server %s with data directory %s", m.Meta.GRPCAddr, st.GetServerId(), st.GetStoreId())
	case st.GetHasState():
		return &deniedError{fmt.Sprintf("its data directory %s is not empty and does not belong to this group any more: empty it, or remove the server", peer.Store)}
	}
	return nil
}

func (s *Server) setNotes(notes map[storeKey]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = notes
}

// Note says what is being done with a server of the group; the leader knows.
func (s *Server) Note(p raftstore.Peer) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notes[keyOf(p)]
}

// resolve tells where a server is now: gossip knows it before Raft's
// configuration does.
func (s *Server) resolve(p raftstore.Peer) (addr string, ok bool) {
	m, ok := s.gossip.Member(gossip.Name(gossip.RoleServer, p.ID))
	if !ok || !m.Up() || m.Meta.Store != p.Store || m.Meta.RaftAddr == "" {
		return "", false
	}
	return m.Meta.RaftAddr, true
}
