package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// How often figures and readiness are looked at, and how often a server that
// has not formed looks at the others.
const (
	watchInterval   = 250 * time.Millisecond
	confirmDeadline = 2 * time.Second
)

// watch is the one goroutine that forms the cluster, tells others whether
// this server has state, keeps readiness up and counts what passes with time.
func (s *Server) watch(ctx context.Context) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	last := time.Now()
	announced := s.store.HasState()
	for {
		if !s.store.HasState() {
			if err := s.form(ctx); err != nil {
				s.log.Warn("cluster was not formed, trying again", "error", err)
			}
		} else if !announced {
			announced = true
			s.tell(func(m *gossip.Meta) { m.HasState = true })
		}
		s.observe(time.Since(last))
		last = time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-s.gossipChanged:
			s.controller.Poke()
		case <-tick.C:
		}
	}
}

// form looks at the other servers and bootstraps when all agree that this one
// should.
func (s *Server) form(ctx context.Context) error {
	v := judge(s.id, s.cfg.BootstrapExpect, s.candidates())
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
	if !v.bootstrap {
		return nil
	}
	for _, c := range v.peers {
		if c.id == s.id {
			continue
		}
		if err := s.confirm(ctx, c, s.cfg.BootstrapExpect, v.hash); err != nil {
			return fmt.Errorf("confirm server %s at %s: %w", c.id, c.grpcAddr, err)
		}
	}
	peers := make([]raftstore.Peer, len(v.peers))
	for i, c := range v.peers {
		peers[i] = raftstore.Peer{ID: c.id, RaftAddr: c.raftAddr}
	}
	if err := s.store.Bootstrap(peers); err != nil && !errors.Is(err, raftstore.ErrHasState) {
		return fmt.Errorf("bootstrap: %w", err)
	}
	s.log.Info("cluster formed", "servers", len(peers))
	return nil
}

// candidates are the living servers that gossip shows, this one included.
func (s *Server) candidates() []candidate {
	s.mu.Lock()
	hash := s.formation.hash
	s.mu.Unlock()
	out := []candidate{{
		id: s.id, raftAddr: s.addrs.Raft, grpcAddr: s.addrs.GRPC,
		expect: s.cfg.BootstrapExpect, hash: hash, hasState: s.store.HasState(),
	}}
	for _, m := range s.gossip.Members() {
		if m.Meta.Role != gossip.RoleServer || m.Status != gossip.Alive || m.Meta.ID == s.id {
			continue
		}
		out = append(out, candidate{
			id: m.Meta.ID, raftAddr: m.Meta.RaftAddr, grpcAddr: m.Meta.GRPCAddr,
			expect: m.Meta.Expect, hash: m.Meta.FormationHash, hasState: m.Meta.HasState,
		})
	}
	return out
}

// confirm asks a server directly, since gossip may be old.
func (s *Server) confirm(ctx context.Context, c candidate, expect int, hash string) error {
	ctx, cancel := context.WithTimeout(ctx, confirmDeadline)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+c.grpcAddr, s.cfg.hooks.dialOptions()...)
	if err != nil {
		return err
	}
	defer conn.Close()
	st, err := leaseholdv1.NewClusterServiceClient(conn).GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
	switch {
	case err != nil:
		return err
	case st.ServerId != c.id:
		return fmt.Errorf("it calls itself %q", st.ServerId)
	case st.HasState:
		return errors.New("it has state: it belongs to a cluster already")
	case int(st.BootstrapExpect) != expect:
		return fmt.Errorf("it expects %d servers, not %d", st.BootstrapExpect, expect)
	case st.FormationHash != hash:
		return errors.New("it does not see the same servers")
	}
	return nil
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

// observe sets the gauges, counts the time that partitions had no owner, and
// keeps readiness up. Every server does so from its own state: without a
// leader the figures go on.
func (s *Server) observe(elapsed time.Duration) {
	var (
		all                     []metrics.Keyspace
		active, leaving, barred int
	)
	s.store.View(func(st *state.State) {
		for k := range st.Keyspaces() {
			all = append(all, metrics.Keyspace{
				Name:  k.Name,
				Owned: k.Owned - k.Draining, Draining: k.Draining, Blocked: k.Quarantined,
				Unowned: int(k.Partitions) - k.Owned - k.Quarantined,
			})
		}
		for sess := range st.Sessions() {
			switch sess.State {
			case state.SessionLive:
				active++
			case state.SessionLeaving:
				leaving++
			default:
				barred++
			}
		}
	})
	s.metrics.ObserveKeyspaces(elapsed, all)
	s.metrics.Sessions(active, leaving, barred)
	s.metrics.Raft().Observe(raftFigures(s.store.Status()))
	ready, _ := s.Readiness()
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
		s.readyOnce.Do(func() { close(s.ready) })
	}
	for _, name := range healthServices {
		s.health.SetServingStatus(name, status)
	}
}
