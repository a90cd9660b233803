package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// cluster is etcd's service of that name.
type cluster struct {
	pb.UnimplementedClusterServer
	*API
}

// MemberList tells the servers of the group and where clients reach them. The
// list is this server's own, as of now when the caller wants it linearizable.
func (s *cluster) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return unary(ctx, s.API, kindCluster, func(ctx context.Context) (*pb.MemberListResponse, error) {
		if r.Linearizable {
			if err := s.read(ctx, func(*state.State) {}); err != nil {
				return nil, err
			}
		}
		resp := &pb.MemberListResponse{Header: s.header(0)}
		for _, p := range s.cfg.Store.Status().Peers {
			resp.Members = append(resp.Members, s.member(p))
		}
		return resp, nil
	})
}

func (a *API) member(p raftstore.PeerStatus) *pb.Member {
	scheme := "http://"
	if a.cfg.TLS {
		scheme = "https://"
	}
	m := &pb.Member{ID: memberID(p.ID, p.Store), Name: p.ID, PeerURLs: []string{scheme + p.RaftAddr}, IsLearner: !p.Voter}
	if addr := a.address(p.ID); addr != "" {
		m.ClientURLs = []string{scheme + addr}
	}
	return m
}

// MemberAdd is refused, as are the other changes of the group: servers of
// Leasehold find each other by gossip, and are added by name.
func (s *cluster) MemberAdd(context.Context, *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	return nil, unsupported("MemberAdd", "start the server with --join, then leasehold raft add ID")
}

// MemberRemove is refused.
func (s *cluster) MemberRemove(context.Context, *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	return nil, unsupported("MemberRemove", "use leasehold raft remove ID")
}

// MemberUpdate is refused.
func (s *cluster) MemberUpdate(context.Context, *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	return nil, unsupported("MemberUpdate", "start the server with its new --raft-addr and --advertise; the others hear of it")
}

// MemberPromote is refused.
func (s *cluster) MemberPromote(context.Context, *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	return nil, unsupported("MemberPromote", "leasehold raft add ID makes a voter of a server when it has caught up")
}
