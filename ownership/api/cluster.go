package api

import (
	"context"
	"fmt"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// cluster is ClusterService. It answers from this server's own state.
type cluster struct {
	pb.UnimplementedClusterServiceServer
	*API
}

func (a *cluster) GetStatus(ctx context.Context, _ *pb.GetStatusRequest) (*pb.Status, error) {
	visible := sees(ctx)
	raft := a.cfg.Store.Status()
	m := &pb.Status{
		ServerId: a.cfg.ServerID, Version: a.cfg.Version,
		StoreId: a.cfg.StoreID, Boot: a.cfg.Boot, MaxFeatureLevel: uint32(state.MaxFeature),
		LeaderId: raft.LeaderID, Term: raft.Term, RaftState: raft.State,
		AppliedIndex: raft.AppliedIndex, CommitIndex: raft.CommitIndex,
		AgeMs: a.age().Milliseconds(), HasState: a.cfg.Store.HasState(), RaftAddr: a.cfg.Store.Self().RaftAddr, Tls: a.cfg.TLS,
		ElectionTimeoutMs: a.cfg.ElectionTimeout.Milliseconds(),
	}
	if m.LeaderId != "" {
		m.LeaderGrpcAddr = a.grpcAddr(m.LeaderId)
	}
	m.Ready, m.NotReadyReason = a.Ready()
	if a.cfg.Formation != nil {
		expect, hash := a.cfg.Formation()
		m.BootstrapExpect, m.FormationHash = int32(expect), hash
	}
	a.cfg.Store.View(func(s *state.State) {
		m.ClusterId, m.Revision, m.LastToken = s.ClusterID(), s.Revision(), uint64(s.LastToken())
		m.StrictHoldMs = s.StrictHold().Milliseconds()
		m.Sessions, m.FeatureLevel = int64(s.WorkerSessionCount()), uint32(s.Feature())
		for w := range s.Workers() {
			if w.Session != 0 {
				m.Workers++
			}
		}
		for ks := range s.Keyspaces() {
			if visible(ks.Name) {
				m.Keyspaces = append(m.Keyspaces, statusOf(ks))
			}
		}
	})
	return m, nil
}

func either(first, second string) string {
	if first != "" {
		return first
	}
	return second
}

func (a *API) member(role gossip.Role, id string) (gossip.Member, bool) {
	if a.cfg.Gossip == nil {
		return gossip.Member{}, false
	}
	return a.cfg.Gossip.Member(gossip.Name(role, id))
}

// age is how old this server's own state may be: the time since it last heard
// from a leader. A server that never has is as old as it runs.
func (a *API) age() time.Duration {
	if c := a.cfg.Store.LastContact(); c >= 0 {
		return c
	}
	return a.cfg.Clock.Now() - a.started
}

// Ready says whether this server can serve everything now, and if not, why.
func (a *API) Ready() (bool, string) {
	if a.isStopping() {
		return false, "this server is stopping"
	}
	ready, reason := a.readyStore()
	if a.cfg.Members != nil {
		if why := a.cfg.Members.NotReady(); why != "" {
			return false, why
		}
	}
	return ready, reason
}

func (a *API) readyStore() (bool, string) {
	cluster := a.cfg.Store.ClusterID()
	id, known := a.cfg.Store.LeaderID()
	switch {
	case cluster == "" && !a.cfg.Store.HasState():
		return false, "no cluster has been formed yet"
	case !known:
		return false, "there is no leader now"
	case cluster == "":
		return false, "the log has not been read yet"
	case id == a.cfg.ServerID:
		if !a.hub.leading() {
			return false, "this server is just becoming the leader"
		}
	case a.age() > staleContacts*a.cfg.ElectionTimeout:
		return false, fmt.Sprintf("no word from leader %s for %v", id, a.age().Round(time.Millisecond))
	}
	return true, ""
}

// staleContacts is how many election timeouts of silence make a follower's
// view of the leader worthless.
const staleContacts = 4
