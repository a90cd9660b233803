package etcdapi

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// queueBackend carries out what queues need, at the leader.
type queueBackend struct{ a *API }

var _ queue.Backend = queueBackend{}

func (a *API) queueBackend() queueBackend { return queueBackend{a} }

// enqueueEvery spaces the tries to join a queue through an election.
const enqueueEvery = 50 * time.Millisecond

// Enqueue joins a queue. A second try finds what the first has made, so what has an
// unknown outcome is tried again, too, for as long as a call may take.
func (b queueBackend) Enqueue(ctx context.Context, cmd *state.Enqueue) (*state.Ticket, int64, error) {
	ctx, cancel := b.a.callContext(ctx)
	defer cancel()
	req := &relaypb.EnqueueRequest{Name: cmd.Name, Session: int64(cmd.Session), Value: cmd.Value, Update: cmd.Update}
	seen := b.a.revision()
	for tries := 0; ; tries++ {
		var resp relaypb.EnqueueResponse
		err := b.a.atLeader(ctx, methodEnqueue, req, &resp)
		if err == nil {
			t := ticketOf(&resp)
			// A try before this one may have made it.
			t.Created = t.Created || tries > 0 && t.KV.CreateRevision > seen
			return t, resp.GetRevision(), nil
		}
		if !b.Retry(err) || !pause(ctx, enqueueEvery) {
			return nil, 0, err
		}
	}
}

// pause reports false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func ticketOf(r *relaypb.EnqueueResponse) *state.Ticket {
	return &state.Ticket{Created: r.GetCreated(), KV: &mvcc.KeyValue{
		Key: r.GetKey(), Value: r.GetValue(), CreateRevision: r.GetCreateRevision(), ModRevision: r.GetModRevision(),
		Version: r.GetVersion(), Lease: r.GetLease(), Token: r.GetToken(),
	}}
}

// leadEnqueue is the leader's part of it.
func (a *API) leadEnqueue(ctx context.Context, r *relaypb.EnqueueRequest, resp *relaypb.EnqueueResponse) error {
	if err := a.checkOwner(ctx, state.SessionID(r.GetSession()), mayUse); err != nil {
		return err
	}
	if err := a.checkQuota(ctx, int64(keyBytes+len(r.GetName())+len(r.GetValue()))); err != nil {
		return err
	}
	results, err := a.propose(ctx, &state.Enqueue{
		Name: r.GetName(), Session: state.SessionID(r.GetSession()), Value: r.GetValue(), Update: r.GetUpdate(),
	})
	if err != nil {
		return err
	}
	t := results[0].Ticket
	resp.Key, resp.Value, resp.Lease, resp.Token = t.KV.Key, t.KV.Value, t.KV.Lease, t.KV.Token
	resp.CreateRevision, resp.ModRevision, resp.Version = t.KV.CreateRevision, t.KV.ModRevision, t.KV.Version
	resp.Created, resp.Revision, resp.RaftTerm = t.Created, results[0].KVRevision, a.cfg.Store.Term()
	return nil
}

// Leave deletes the key of a place.
func (b queueBackend) Leave(ctx context.Context, key []byte, created int64) error {
	return b.a.lead(ctx, methodTxn, &pb.TxnRequest{
		Compare: []*pb.Compare{compareCreated(key, created)},
		Success: []*pb.RequestOp{deleteOp(key)},
	}, &pb.TxnResponse{})
}

// Confirm brings this server's state up to the cluster's.
func (b queueBackend) Confirm(ctx context.Context) error {
	ctx, cancel := b.a.callContext(ctx)
	defer cancel()
	return b.a.read(ctx, func(*state.State) {})
}

// Keeps tells that the server ends the call: it stops, or has lost its leader.
func (b queueBackend) Keeps(err error) bool {
	return b.a.stopping.Err() != nil || status.Code(toStatus(err)) == codes.Unavailable
}

// Retry tells of an election, or what looks like one.
func (b queueBackend) Retry(err error) bool {
	err = toStatus(err)
	if b.a.stopping.Err() != nil || errors.Is(err, errFeature) || errors.Is(err, errStopped) {
		return false
	}
	return status.Code(err) == codes.Unavailable
}
