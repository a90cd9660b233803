package etcdapi

import (
	"cmp"
	"context"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// TokenKey is the header metadata in which Lock and Campaign answer the fencing
// token, in decimal.
const TokenKey = "leasehold-token"

// ownLeaseTTL is that of the lease which a call without one gets, as in etcd:
// nobody renews it.
const ownLeaseTTL = 60 // seconds

// lock is etcd's service of that name.
type lock struct {
	v3lockpb.UnimplementedLockServer
	*API
}

// Lock waits until the lease is first in the queue of the name. The same lease
// twice finds its place again.
func (l *lock) Lock(ctx context.Context, r *v3lockpb.LockRequest) (resp *v3lockpb.LockResponse, err error) {
	defer func() { l.count(kindLock, err) }()
	if err := l.checkSize(r); err != nil {
		return nil, err
	}
	p, err := l.acquire(ctx, &queue.Request{Name: r.GetName(), Session: state.SessionID(r.GetLease())})
	if err != nil {
		return nil, err
	}
	return &v3lockpb.LockResponse{Header: l.header(p.Revision), Key: p.Key}, nil
}

// Unlock deletes the key of a place. It leaves keys alone that are none.
func (l *lock) Unlock(ctx context.Context, r *v3lockpb.UnlockRequest) (*v3lockpb.UnlockResponse, error) {
	return unary(ctx, l.API, kindLock, func(ctx context.Context) (*v3lockpb.UnlockResponse, error) { return l.unlock(ctx, r) })
}

func (l *lock) unlock(ctx context.Context, r *v3lockpb.UnlockRequest) (*v3lockpb.UnlockResponse, error) {
	if len(r.GetKey()) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	_, session, ok := queue.ParseKey(r.GetKey())
	if !ok {
		return nil, notPlace("a lock", r.GetKey())
	}
	var resp pb.TxnResponse
	err := l.atLeader(ctx, methodTxn, &pb.TxnRequest{
		Compare: []*pb.Compare{compareLease(r.GetKey(), int64(session))},
		Success: []*pb.RequestOp{deleteOp(r.GetKey())},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: r.GetKey(), KeysOnly: true}}}},
	}, &resp)
	if err != nil {
		return nil, err
	}
	if !resp.GetSucceeded() && len(resp.GetResponses()[0].GetResponseRange().GetKvs()) > 0 {
		return nil, notPlace("a lock", r.GetKey())
	}
	return &v3lockpb.UnlockResponse{Header: resp.GetHeader()}, nil
}

func notPlace(what string, key []byte) error {
	return status.Errorf(codes.InvalidArgument,
		"etcdserver: key %q is not that of %s: want its name, a slash and the lease in hex, attached to that lease", shorten(key), what)
}

// acquire is what Lock and Campaign share: a lease of its own for a caller that has
// none, the wait, and the token.
func (a *API) acquire(ctx context.Context, r *queue.Request) (queue.Place, error) {
	if err := cmp.Or(known(ctx), a.hasLeader(ctx)); err != nil {
		return queue.Place{}, err
	}
	own := r.Session == 0
	if own {
		granted, err := (&lease{API: a}).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ownLeaseTTL})
		if err != nil {
			return queue.Place{}, err
		}
		r.Session = state.SessionID(granted.GetID())
	}
	ctx, cancel := a.whileLed(ctx)
	defer cancel()
	p, err := a.queues.Acquire(ctx, a.queueBackend(), *r)
	if err != nil {
		if own && !(queueBackend{a}).Keeps(err) {
			a.revokeOwn(ctx, r.Session)
		}
		return p, toStatus(err)
	}
	if p.Token != 0 {
		// It fails only when the headers are out.
		_ = grpc.SetHeader(ctx, metadata.Pairs(TokenKey, strconv.FormatUint(p.Token, 10)))
	}
	return p, nil
}

// revokeOwn ends a lease that nobody knows of. If it cannot, the lease runs out.
func (a *API) revokeOwn(ctx context.Context, id state.SessionID) {
	ctx, cancel := a.callContext(context.WithoutCancel(ctx))
	defer cancel()
	_ = a.atLeader(ctx, methodLeaseRevoke, &pb.LeaseRevokeRequest{ID: int64(id)}, &pb.LeaseRevokeResponse{})
}

// lead is atLeader with the bound of a unary call.
func (a *API) lead(ctx context.Context, m method, req, resp proto.Message) error {
	ctx, cancel := a.callContext(ctx)
	defer cancel()
	return a.atLeader(ctx, m, req, resp)
}

func compareLease(key []byte, lease int64) *pb.Compare {
	return &pb.Compare{Key: key, Target: pb.Compare_LEASE, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Lease{Lease: lease}}
}

func compareCreated(key []byte, rev int64) *pb.Compare {
	return &pb.Compare{Key: key, Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev}}
}

func deleteOp(key []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key}}}
}

// shorten keeps foreign text in messages within bounds.
func shorten(key []byte) []byte { return key[:min(len(key), 64)] }
