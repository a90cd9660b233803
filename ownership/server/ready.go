package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// A follower that has just started, or was cut off, knows its own log only, not
// how far the group has come meanwhile. So it asks the leader once, and is ready
// when it has applied what the leader had then: an orchestrator that waits for
// readiness never takes the next server down while this one is behind.

// catchUp is what a follower knows of that.
type catchUp struct {
	target uint64 // the leader's applied index when it was asked; 0: not asked
	done   bool
	text   string // why not, for people
}

// cutOff is how many election timeouts without a word from a leader make a
// follower ask anew.
const cutOff = 4

// step moves the catch-up on, given how far this server is. ask finds out how
// far the leader is, or why that is not known.
func (c catchUp) step(leads, inTouch bool, applied uint64, ask func() (uint64, string)) catchUp {
	switch {
	case leads:
		return catchUp{done: true}
	case !inTouch:
		return catchUp{}
	case c.done:
		return c
	}
	if c.target == 0 {
		if c.target, c.text = ask(); c.target == 0 {
			return c
		}
	}
	c.done = applied >= c.target
	c.text = fmt.Sprintf("entry %d of %d", applied, c.target)
	return c
}

// follow keeps up whether this server has caught up with its leader.
func (s *Server) follow(ctx context.Context) {
	st := s.store.Status()
	inTouch := st.LeaderID != "" && st.LastContact >= 0 && st.LastContact <= cutOff*s.cfg.ElectionTimeout
	s.mu.Lock()
	c := s.catching
	s.mu.Unlock()
	c = c.step(s.store.IsLeader(), inTouch, st.AppliedIndex, func() (uint64, string) { return s.leaderIndex(ctx, st.LeaderID) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catching = c
}

// leaderIndex asks the leader how far it is.
func (s *Server) leaderIndex(ctx context.Context, leader string) (uint64, string) {
	ctx, cancel := context.WithTimeout(ctx, max(2*s.cfg.ElectionTimeout, time.Second))
	defer cancel()
	addr := s.api.ServerAddr(leader)
	if addr == "" {
		return 0, "where it is reached is not known yet"
	}
	st, err := s.ask(ctx, addr)
	switch {
	case err != nil:
		return 0, "it does not answer at " + addr
	case st.GetServerId() != leader || st.GetLeaderId() != leader:
		return 0, "it does not lead any more"
	}
	return max(st.GetAppliedIndex(), 1), ""
}

// NotReady says what keeps this server from serving, beyond what the API sees
// of its store; "" if nothing does.
func (s *Server) NotReady() string {
	s.mu.Lock()
	stopping, waiting, catching := s.stopping, s.formation.waiting, s.catching
	s.mu.Unlock()
	st := s.store.Status()
	switch {
	case stopping:
		return "stopping"
	case !s.store.HasState():
		return waiting
	case st.Removed:
		return fmt.Sprintf("this server was removed from the cluster: to bring it back, stop it, empty its data directory, start it, and: leasehold raft add %s", s.id)
	case st.LeaderID == "" && st.Refused != "":
		return "refused by the other servers: " + st.Refused
	case st.LeaderID == "" && s.alone(len(st.Peers)) && s.gossip.Stats().Strangers > 0:
		return fmt.Sprintf("the servers that answer belong to another cluster, the data of this one to cluster %q: correct --join, or, to give the data up, empty the data directory", s.store.ClusterID())
	case st.LeaderID == "" && s.alone(len(st.Peers)):
		return withSeeds("there is no leader now, and no other server is seen", s.cfg.Join, s.addrs.Gossip)
	case st.LeaderID == "", st.LeaderID == s.id, st.LastContact > cutOff*s.cfg.ElectionTimeout:
		return "" // the API has the words
	case !catching.done && catching.text == "":
		return "catching up with leader " + st.LeaderID
	case !catching.done:
		return fmt.Sprintf("catching up with leader %s: %s", st.LeaderID, catching.text)
	}
	for _, p := range st.Peers {
		if keyOf(p.Peer) == keyOf(s.store.Self()) && !p.Voter {
			return fmt.Sprintf("this server has no vote yet: it gets one when it has kept up for %v", steadyElections*s.cfg.ElectionTimeout)
		}
	}
	return ""
}

// alone tells whether gossip shows none of the other servers of the group.
func (s *Server) alone(peers int) bool {
	return peers > 1 && !slices.ContainsFunc(s.gossip.Members(), func(m gossip.Member) bool {
		return m.Meta.Role == gossip.RoleServer && m.Up() && m.Meta.ID != s.id
	})
}

// withSeeds adds why nobody else is seen.
func withSeeds(why string, seeds []string, self string) string {
	others := slices.DeleteFunc(slices.Clone(seeds), func(a string) bool { return sameAddr(a, self) })
	switch {
	case len(others) > 0:
		return fmt.Sprintf("%s; trying --join %s, where nobody answers yet", why, strings.Join(others, ", "))
	case len(seeds) > 0:
		return why + "; --join names only this server itself"
	}
	return why + "; --join names no other server"
}
