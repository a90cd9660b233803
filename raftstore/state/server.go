package state

import (
	"cmp"
	"fmt"
	"slices"
)

// Leader returns what the latest Announce said.
func (s *State) Leader() (Server, bool) {
	i, ok := s.server(s.leader)
	if !ok {
		return Server{}, false
	}
	return s.servers[i], true
}

// Servers returns every server that has announced itself, ordered by id.
func (s *State) Servers() []Server { return slices.Clone(s.servers) }

func (s *State) server(id string) (int, bool) {
	return slices.BinarySearchFunc(s.servers, id, func(v Server, id string) int { return cmp.Compare(v.ID, id) })
}

func (s *State) bootstrap(c *Bootstrap) error {
	if s.clusterID != "" {
		return refuse(ReasonExists, "cluster", "cluster_id", c.ClusterID, "one bootstrap; this cluster is "+s.clusterID)
	}
	if err := ValidateName("cluster", "cluster_id", c.ClusterID); err != nil {
		return err
	}
	if c.FirstToken > MaxToken {
		return refuse(ReasonInvalid, "cluster", "first_token", fmt.Sprint(uint64(c.FirstToken)), fmt.Sprintf("at most %d", uint64(MaxToken)))
	}
	s.clusterID = c.ClusterID
	if c.FirstToken > 0 {
		s.lastToken = max(s.lastToken, c.FirstToken-1)
	}
	return nil
}

func (s *State) announce(c *Announce) error {
	if err := s.void("announce", c.Term); err != nil {
		return err
	}
	if err := c.Server.validate(); err != nil {
		return err
	}
	i, known := s.server(c.Server.ID)
	switch {
	case known:
		s.servers[i] = c.Server
	case len(s.servers) >= MaxServers:
		return refuse(ReasonInvalid, "server", "server_id", c.Server.ID, fmt.Sprintf("at most %d servers are remembered", MaxServers))
	default:
		s.servers = slices.Insert(s.servers, i, c.Server)
	}
	if s.leader != c.Server.ID || s.leaderTerm != c.Term {
		s.leader, s.leaderTerm = c.Server.ID, c.Term
		s.emit(KindLeader, CauseNone).Worker = c.Server.ID
	}
	return nil
}

func (v *Server) validate() error {
	if err := ValidateName("server", "server_id", v.ID); err != nil {
		return err
	}
	for _, f := range []struct{ field, value string }{
		{"raft_addr", v.RaftAddr}, {"grpc_addr", v.GRPCAddr}, {"http_addr", v.HTTPAddr},
		{"gossip_addr", v.GossipAddr}, {"version", v.Version},
	} {
		if err := validateText("server", f.field, f.value, MaxTextLen); err != nil {
			return err
		}
	}
	return nil
}
