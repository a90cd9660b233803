package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/api"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

const (
	// confirmDeadline bounds all direct questions before a formation: what they
	// found out must still hold when it is done.
	confirmDeadline = 2 * time.Second
	// initPatience is how long cluster init waits for servers that do not see
	// each other yet.
	initPatience = 3 * time.Second
	// leaderPatience is how long cluster init waits for the first leader.
	leaderPatience = 5 * time.Second
)

// form looks at the other servers and bootstraps when all agree that this one
// should.
func (s *Server) form(ctx context.Context) error {
	v := s.lookAround()
	if !v.bootstrap {
		return nil
	}
	select {
	case s.forming <- struct{}{}:
		defer func() { <-s.forming }()
	default:
		return nil // an operator's formation is under way
	}
	return s.found(ctx, v, s.cfg.BootstrapExpect)
}

// lookAround judges what gossip shows, and tells the others what that is.
func (s *Server) lookAround() verdict {
	v := judge(s.id, s.cfg.BootstrapExpect, s.candidates())
	if len(v.peers) == 1 {
		v.waiting = withSeeds(v.waiting, s.cfg.Join, s.addrs.Gossip)
	}
	s.mu.Lock()
	before := s.formation
	s.formation = v
	s.mu.Unlock()
	if v.hash != before.hash {
		s.tell(func(m *gossip.Meta) { m.FormationHash = v.hash })
	}
	if v.waiting != before.waiting && v.waiting != "" {
		s.log.Info("waiting for the cluster to form", "reason", v.waiting)
	}
	return v
}

// FormCluster forms a cluster of expect servers because an operator said so. A
// server that has not the lowest id of all names the one that has.
func (s *Server) FormCluster(ctx context.Context, expect int) (peers []raftstore.Peer, ask string, err error) {
	select {
	case s.forming <- struct{}{}:
		defer func() { <-s.forming }()
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	wait, cancel := context.WithTimeout(ctx, initPatience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s.lookAround()
		v, err := judgeInit(s.id, expect, s.candidates())
		if err != nil {
			return nil, "", err
		}
		if v.waiting == "" && !v.bootstrap {
			return nil, v.peers[0].grpcAddr, nil
		}
		if v.bootstrap {
			if err := s.found(ctx, v, expect); err != nil {
				return nil, "", &api.FormationError{Why: err.Error()}
			}
			s.awaitCluster(ctx)
			return peersOf(v.peers), "", nil
		}
		select {
		case <-tick.C:
		case <-wait.Done():
			return nil, "", &api.FormationError{Why: v.waiting}
		}
	}
}

// awaitCluster waits for the first leader to have given the cluster its id: from
// then on there is no doubt who belongs to it.
func (s *Server) awaitCluster(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.store.ClusterID() == "" {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return // it is formed all the same
		}
	}
}

// found confirms every server directly, since gossip may be old, and
// bootstraps.
func (s *Server) found(ctx context.Context, v verdict, expect int) error {
	confirm, cancel := context.WithTimeout(ctx, confirmDeadline)
	defer cancel()
	for _, c := range v.peers {
		if c.id == s.id {
			continue
		}
		if err := s.confirm(confirm, c, expect, v.hash); err != nil {
			return fmt.Errorf("confirm server %s at %s: %w", c.id, c.grpcAddr, err)
		}
	}
	if now := survey(s.candidates()); now.hash != v.hash || confirm.Err() != nil {
		return errors.New("the servers that are seen have changed meanwhile")
	}
	peers := peersOf(v.peers)
	if err := s.store.Bootstrap(peers); err != nil && !errors.Is(err, raftstore.ErrHasState) {
		return fmt.Errorf("bootstrap: %w", err)
	}
	s.log.Info("cluster formed", "servers", len(peers))
	return nil
}

func peersOf(candidates []candidate) []raftstore.Peer {
	peers := make([]raftstore.Peer, len(candidates))
	for i, c := range candidates {
		peers[i] = raftstore.Peer{ID: c.id, Store: c.store, RaftAddr: c.raftAddr}
	}
	return peers
}

// candidates are the living servers that gossip shows, this one included.
func (s *Server) candidates() []candidate {
	s.mu.Lock()
	hash := s.formation.hash
	s.mu.Unlock()
	out := []candidate{{
		id: s.id, store: s.store.Self().Store, raftAddr: s.addrs.Raft, grpcAddr: s.addrs.GRPC,
		expect: s.cfg.BootstrapExpect, hash: hash, hasState: s.store.HasState(),
	}}
	for _, m := range s.gossip.Members() {
		if m.Meta.Role != gossip.RoleServer || m.Status != gossip.Alive || m.Meta.ID == s.id {
			continue
		}
		out = append(out, candidate{
			id: m.Meta.ID, store: m.Meta.Store, raftAddr: m.Meta.RaftAddr, grpcAddr: m.Meta.GRPCAddr,
			expect: m.Meta.Expect, hash: m.Meta.FormationHash, hasState: m.Meta.HasState,
		})
	}
	return out
}

// confirm asks a server whether it is what gossip shows, has no state, expects
// as many servers or none in particular, and sees the same.
func (s *Server) confirm(ctx context.Context, c candidate, expect int, hash string) error {
	st, err := s.ask(ctx, c.grpcAddr)
	switch {
	case err != nil:
		return s.strange(err)
	case st.GetServerId() != c.id:
		return fmt.Errorf("it calls itself %q", st.GetServerId())
	case st.GetStoreId() != c.store:
		return fmt.Errorf("its data directory is %q, not %q: it was emptied a moment ago", st.GetStoreId(), c.store)
	case st.GetHasState():
		return errors.New("it has state: it belongs to a cluster already")
	case int(st.GetBootstrapExpect()) != c.expect || c.expect != 0 && c.expect != expect:
		return fmt.Errorf("it expects %d servers, not %d", st.GetBootstrapExpect(), expect)
	case st.GetFormationHash() != hash:
		return errors.New("it does not see the same servers")
	}
	return nil
}

// strange says what to do about a server that is not spoken to the way this one is.
// gRPC has no other mark for it than the words of package tls.
func (s *Server) strange(err error) error {
	switch text := status.Convert(err).Message(); {
	case s.certificates != nil && strings.Contains(text, "first record does not look like a TLS handshake"):
		return errors.New("it speaks without TLS, and this server with it: start it with --tls-cert-file, --tls-key-file and --tls-ca-file too")
	case s.certificates == nil && strings.Contains(text, "server preface"):
		return errors.New("it ends a connection without TLS: start this server with --tls-cert-file, --tls-key-file and --tls-ca-file too")
	}
	return err
}

// ask asks another server for its status, on a connection of its own.
func (s *Server) ask(ctx context.Context, grpcAddr string) (*leaseholdv1.Status, error) {
	conn, err := grpc.NewClient("passthrough:///"+grpcAddr, s.dialOptions()...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return leaseholdv1.NewClusterServiceClient(conn).GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
}

// tell changes what gossip says of this server.
func (s *Server) tell(change func(*gossip.Meta)) {
	if err := s.gossip.UpdateMeta(change); err != nil {
		s.log.Warn("gossip was not updated", "error", err)
	}
}

// formationSeen is what GetStatus answers to a server that confirms.
func (s *Server) formationSeen() (expect int, hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.BootstrapExpect, s.formation.hash
}
