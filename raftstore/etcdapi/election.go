package etcdapi

import (
	"bytes"
	"cmp"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// etcd's texts; clients tell them apart by these alone.
var (
	errNotElected    = status.Error(codes.Unknown, "election: not leader")
	errNobodyElected = status.Error(codes.Unknown, "election: no leader")
	errLeaderMissing = status.Error(codes.Unknown, `"leader" field must be provided`)
)

// election is etcd's service of that name.
type election struct {
	v3electionpb.UnimplementedElectionServer
	*API
}

// Campaign waits until the lease is first in the queue of the name. A candidate
// that stands already gets the value given.
func (e *election) Campaign(ctx context.Context, r *v3electionpb.CampaignRequest) (resp *v3electionpb.CampaignResponse, err error) {
	defer func() { e.count(kindLock, err) }()
	if err := e.checkSize(r); err != nil {
		return nil, err
	}
	p, err := e.acquire(ctx, &queue.Request{
		Name: r.GetName(), Session: state.SessionID(r.GetLease()), Value: r.GetValue(), Update: true,
	})
	if err != nil {
		return nil, err
	}
	return &v3electionpb.CampaignResponse{
		Header: e.header(p.Revision),
		Leader: &v3electionpb.LeaderKey{Name: r.GetName(), Key: p.Key, Rev: p.Created, Lease: int64(p.Session)},
	}, nil
}

// Proclaim changes the value of a key that Campaign made. The key keeps its lease.
func (e *election) Proclaim(ctx context.Context, r *v3electionpb.ProclaimRequest) (*v3electionpb.ProclaimResponse, error) {
	return unary(ctx, e.API, kindLock, func(ctx context.Context) (*v3electionpb.ProclaimResponse, error) { return e.proclaim(ctx, r) })
}

func (e *election) proclaim(ctx context.Context, r *v3electionpb.ProclaimRequest) (*v3electionpb.ProclaimResponse, error) {
	if r.GetLeader() == nil {
		return nil, errLeaderMissing
	}
	key, err := candidate(r.GetLeader())
	if err != nil {
		return nil, err
	}
	if r.GetLeader().GetRev() <= 0 {
		return nil, errNotElected // 0 would compare equal to a key that is not there
	}
	if err := e.checkSize(r); err != nil {
		return nil, err
	}
	var resp pb.TxnResponse
	err = e.atLeader(ctx, methodTxn, &pb.TxnRequest{
		Compare: []*pb.Compare{compareCreated(key, r.GetLeader().GetRev())},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
			Key: key, Value: r.GetValue(), IgnoreLease: true,
		}}}},
	}, &resp)
	if err != nil {
		return nil, err
	}
	if !resp.GetSucceeded() {
		return nil, errNotElected
	}
	return &v3electionpb.ProclaimResponse{Header: resp.GetHeader()}, nil
}

// Resign deletes a key that Campaign made. It is no error that it is gone.
func (e *election) Resign(ctx context.Context, r *v3electionpb.ResignRequest) (*v3electionpb.ResignResponse, error) {
	return unary(ctx, e.API, kindLock, func(ctx context.Context) (*v3electionpb.ResignResponse, error) { return e.resign(ctx, r) })
}

func (e *election) resign(ctx context.Context, r *v3electionpb.ResignRequest) (*v3electionpb.ResignResponse, error) {
	if r.GetLeader() == nil {
		return nil, errLeaderMissing
	}
	key, err := candidate(r.GetLeader())
	if err != nil {
		return nil, err
	}
	var resp pb.TxnResponse
	err = e.atLeader(ctx, methodTxn, &pb.TxnRequest{
		Compare: []*pb.Compare{compareCreated(key, r.GetLeader().GetRev())},
		Success: []*pb.RequestOp{deleteOp(key)},
	}, &resp)
	if err != nil {
		return nil, err
	}
	return &v3electionpb.ResignResponse{Header: resp.GetHeader()}, nil
}

// candidate is the key that a caller says it leads with.
func candidate(l *v3electionpb.LeaderKey) ([]byte, error) {
	if len(l.GetKey()) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	if _, _, ok := queue.ParseKey(l.GetKey()); !ok {
		return nil, notPlace("a candidate", l.GetKey())
	}
	return l.GetKey(), nil
}

// same tells whether two looks saw the same version of the same key.
func same(a, b *mvcc.KeyValue) bool {
	return a == b || a != nil && b != nil && a.ModRevision == b.ModRevision && bytes.Equal(a.Key, b.Key)
}

// Leader tells who is first in the queue of the name.
func (e *election) Leader(ctx context.Context, r *v3electionpb.LeaderRequest) (*v3electionpb.LeaderResponse, error) {
	return unary(ctx, e.API, kindLock, func(ctx context.Context) (*v3electionpb.LeaderResponse, error) { return e.first(ctx, r) })
}

func (e *election) first(ctx context.Context, r *v3electionpb.LeaderRequest) (*v3electionpb.LeaderResponse, error) {
	if err := e.queueBackend().Confirm(ctx); err != nil {
		return nil, err
	}
	kv, rev, err := e.queues.First(r.GetName())
	if err != nil {
		return nil, err
	}
	if kv == nil {
		return nil, errNobodyElected
	}
	return &v3electionpb.LeaderResponse{Header: e.header(rev), Kv: pairOf(kv)}, nil
}

// Observe tells who is first and with what value, now and whenever that changes.
// What a slow reader misses is left out; the latest always comes.
func (e *election) Observe(r *v3electionpb.LeaderRequest, out grpc.ServerStreamingServer[v3electionpb.LeaderResponse]) (err error) {
	defer func() { e.count(kindLock, err) }()
	ctx, cancel := e.whileLed(out.Context())
	defer cancel()
	if err := cmp.Or(known(ctx), e.hasLeader(ctx)); err != nil {
		return err
	}
	if err := e.queueBackend().Confirm(ctx); err != nil {
		return toStatus(err)
	}
	o := e.queues.Observe(r.GetName())
	defer o.Stop()
	var told *mvcc.KeyValue
	for {
		kv, rev, err := o.First()
		if err != nil {
			return toStatus(err)
		}
		if kv != nil && !same(kv, told) {
			told = kv
			if err := out.Send(&v3electionpb.LeaderResponse{Header: e.header(rev), Kv: pairOf(kv)}); err != nil {
				return err
			}
		}
		select {
		case <-o.Changed():
		case <-e.stopping.Done():
			return errStopped
		case <-ctx.Done():
			return toStatus(context.Cause(ctx))
		}
	}
}
