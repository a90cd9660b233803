package server

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

const (
	// featureInterval is how often the leader looks whether all servers know
	// more than the log uses.
	featureInterval = time.Second
	// eagerInterval is how often it does at the beginning of its term, for
	// eagerTime, while the log uses less than it knows itself: a cluster that has
	// just been formed is at the level of its servers as soon as gossip has told
	// the leader who they are.
	eagerInterval = 20 * time.Millisecond
	eagerTime     = 10 * time.Second
)

// raiseFeatures is a duty of the leader: when every server of the group knows a
// higher level of what may be in the log, that level begins. A server that
// nothing is known of holds it back, also one that is down: it could not read
// what it would find when it comes back.
func (s *Server) raiseFeatures(ctx context.Context, l *raftstore.Lead) error {
	pace := time.Duration(max(s.cfg.hooks.pace, 1))
	begun := time.Now()
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wait.C:
		}
		now := state.Feature(0)
		l.View(func(st *state.State) { now = st.Feature() })
		level := commonFeature(s.store.Status().Peers, s.knownFeature)
		next := featureInterval
		if now < s.maxFeature() && time.Since(begun) < eagerTime*pace {
			next = eagerInterval
		}
		wait.Reset(next * pace)
		if level <= now {
			continue
		}
		results, err := l.Propose(ctx, &state.RaiseFeature{Level: level})
		if err == nil {
			err = results[0].Err
		}
		if err != nil {
			return fmt.Errorf("raise the feature level to %d: %w", level, err)
		}
		s.log.Info("all servers know more: feature level raised", "from", uint32(now), "to", uint32(level))
	}
}

// commonFeature is the highest level that all peers know, 0 when that of one
// of them is not known.
func commonFeature(peers []raftstore.PeerStatus, known func(raftstore.Peer) state.Feature) state.Feature {
	var common state.Feature
	for i, p := range peers {
		level := known(p.Peer)
		if i == 0 || level < common {
			common = level
		}
	}
	return common
}

// knownFeature is what a server says of itself in gossip. Another data
// directory under its id is another server, and says nothing about this one.
func (s *Server) knownFeature(p raftstore.Peer) state.Feature {
	if p.ID == s.id {
		return s.maxFeature()
	}
	m, ok := s.gossip.Member(gossip.Name(gossip.RoleServer, p.ID))
	if !ok || !m.Up() || m.Meta.Store != p.Store {
		return 0
	}
	return state.Feature(m.Meta.Feature)
}

// maxFeature is the highest level that this server knows.
func (s *Server) maxFeature() state.Feature {
	if s.cfg.hooks.feature != 0 {
		return s.cfg.hooks.feature
	}
	return state.MaxFeature
}
