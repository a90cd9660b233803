package etcdapi

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// maintenance is etcd's service of that name.
type maintenance struct {
	pb.UnimplementedMaintenanceServer
	*API
}

// Status is this server's own view of the group and of its keys. It never waits
// for another server.
func (s *maintenance) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	return unary(ctx, s.API, kindMaintenance, func(context.Context) (*pb.StatusResponse, error) {
		st := s.cfg.Store.Status()
		resp := &pb.StatusResponse{
			Version: etcdVersion, StorageVersion: etcdVersion,
			RaftIndex: st.CommitIndex, RaftAppliedIndex: st.AppliedIndex, RaftTerm: st.Term,
			DbSizeQuota: s.cfg.QuotaBytes, DowngradeInfo: &pb.DowngradeInfo{},
		}
		for _, p := range st.Peers {
			if p.ID == st.LeaderID {
				resp.Leader = memberID(p.ID, p.Store)
			}
			if p.ID == s.cfg.ServerID {
				resp.IsLearner = !p.Voter
			}
		}
		if resp.Leader == 0 {
			resp.Errors = append(resp.Errors, "etcdserver: no leader")
		}
		var revision, size int64
		s.cfg.Store.View(func(st *state.State) {
			revision, size = st.Keys().Revision(), st.Keys().Size()
			for _, m := range st.Alarms() {
				resp.Errors = append(resp.Errors, fmt.Sprintf("memberID:%d alarm:NOSPACE", m))
			}
		})
		resp.Header = s.header(revision)
		resp.DbSize = max(size, 1) // clients divide by it
		resp.DbSizeInUse = resp.DbSize
		return resp, nil
	})
}

// HashKV sums the keys of this server up to a revision. It is the same on all
// servers, but another one than etcd's.
func (s *maintenance) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	return unary(ctx, s.API, kindMaintenance, func(ctx context.Context) (*pb.HashKVResponse, error) {
		resp := &pb.HashKVResponse{}
		// A server whose directory was emptied has no sum of nothing to compare.
		revision, err := s.readKeys(ctx, true, func(keys *mvcc.Store) (err error) {
			resp.Hash, resp.HashRevision, err = keys.Hash(r.Revision)
			resp.CompactRevision = keys.Compacted()
			return err
		})
		if err != nil {
			return nil, err
		}
		if resp.CompactRevision == 0 {
			resp.CompactRevision = -1 // as etcd says when nothing was compacted
		}
		resp.Header = s.header(revision)
		return resp, nil
	})
}

// Hash sums all keys of this server.
func (s *maintenance) Hash(ctx context.Context, _ *pb.HashRequest) (*pb.HashResponse, error) {
	return unary(ctx, s.API, kindMaintenance, func(context.Context) (*pb.HashResponse, error) {
		resp := &pb.HashResponse{}
		var err error
		var revision int64
		s.cfg.Store.View(func(st *state.State) {
			resp.Hash, revision, err = st.Keys().Hash(0)
		})
		resp.Header = s.header(revision)
		return resp, err
	})
}

// Defragment has nothing to do.
func (s *maintenance) Defragment(ctx context.Context, _ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return unary(ctx, s.API, kindMaintenance, func(context.Context) (*pb.DefragmentResponse, error) {
		return &pb.DefragmentResponse{}, nil
	})
}

// MoveLeader hands the leadership to another voter; only the leader does.
func (s *maintenance) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	return unary(ctx, s.API, kindMaintenance, func(ctx context.Context) (*pb.MoveLeaderResponse, error) {
		if !s.cfg.Store.IsLeader() {
			return nil, rpctypes.ErrGRPCNotLeader
		}
		for _, p := range s.cfg.Store.Status().Peers {
			if !p.Voter || memberID(p.ID, p.Store) != r.TargetID {
				continue
			}
			if p.ID == s.cfg.ServerID {
				return &pb.MoveLeaderResponse{}, nil
			}
			return s.moveLeader(ctx, p.Peer)
		}
		return nil, rpctypes.ErrGRPCBadLeaderTransferee
	})
}

func (s *maintenance) moveLeader(ctx context.Context, to raftstore.Peer) (*pb.MoveLeaderResponse, error) {
	err := s.cfg.Store.TransferLeadership(ctx, to)
	var other *raftstore.NotLeaderError
	var peer *raftstore.PeerError
	switch {
	case err == nil:
		return &pb.MoveLeaderResponse{}, nil
	case errors.As(err, &other):
		return nil, rpctypes.ErrGRPCNotLeader
	case errors.As(err, &peer):
		return nil, rpctypes.ErrGRPCBadLeaderTransferee
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	s.log.Warn("leadership was not handed over", "to", to.ID, "cause", err)
	return nil, rpctypes.ErrGRPCTimeout
}

// Downgrade is refused.
func (s *maintenance) Downgrade(context.Context, *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	return nil, unsupported("Downgrade", "the feature level of the cluster says which releases can be run, see leasehold status")
}
