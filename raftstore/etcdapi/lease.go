package etcdapi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// lease is etcd's service of that name: its leases are sessions. The sessions of
// workers are seen in it, too, and hold keys, but they are opened, kept alive and
// ended by their workers alone.
type lease struct {
	pb.UnimplementedLeaseServer
	*API
}

// LeaseGrant opens a session. Any id that none has is taken, as in etcd; one that
// is chosen here is positive.
func (l *lease) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	req := &pb.LeaseGrantRequest{TTL: r.TTL, ID: r.ID}
	for req.ID == 0 {
		req.ID = drawLease()
	}
	return leaseCall(ctx, l.API, methodLeaseGrant, req, &pb.LeaseGrantResponse{})
}

// drawLease returns 63 bits that nobody can guess: with authentication off, a lease
// is as safe as its id.
func drawLease() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return int64(binary.BigEndian.Uint64(b[:]) >> 1)
}

// leaseCall does a call at the leader.
func leaseCall[Resp proto.Message](ctx context.Context, a *API, m method, req proto.Message, resp Resp) (Resp, error) {
	return unary(ctx, a, kindLease, func(ctx context.Context) (Resp, error) {
		return resp, a.atLeader(ctx, m, req, resp)
	})
}

func checkGrant(r *pb.LeaseGrantRequest) error {
	if r.TTL > state.MaxLeaseTTL {
		return rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	return nil
}

// LeaseRevoke ends a session and deletes its keys, at one revision. That of a
// worker is refused: it may hold leases of partitions that nothing but time or the
// worker itself can end.
func (l *lease) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return leaseCall(ctx, l.API, methodLeaseRevoke, r, &pb.LeaseRevokeResponse{})
}

// LeaseTimeToLive says how long a session has left; -1 is one that is not.
func (l *lease) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	return leaseCall(ctx, l.API, methodLeaseTimeToLive, r, &pb.LeaseTimeToLiveResponse{})
}

// secondsLeft is for how many whole seconds a session has been granted still. It is
// never less than 0, also when the session's end is late.
func (a *API) secondsLeft(s *state.State, x *state.Session) int64 {
	now := s.Now() + a.cfg.Store.ClockAhead()
	return int64(max(x.Remaining(now), 0) / time.Second)
}

// LeaseLeases lists the sessions that this server knows of and the caller may use.
func (l *lease) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	return unary(ctx, l.API, kindLease, func(context.Context) (*pb.LeaseLeasesResponse, error) {
		resp := &pb.LeaseLeasesResponse{Leases: []*pb.LeaseStatus{}}
		id := access.FromContext(ctx)
		all := usesAll(id)
		var revision int64
		l.cfg.Store.View(func(s *state.State) {
			revision = s.Keys().Revision()
			for x := range s.Sessions() {
				if all || id.MayUse(x.Owner) {
					resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: int64(x.ID)})
				}
			}
		})
		resp.Header = l.header(revision)
		return resp, nil
	})
}

func (a *API) leadLeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest, resp *pb.LeaseGrantResponse) error {
	if err := checkGrant(r); err != nil {
		return err
	}
	if err := a.checkQuota(ctx, leaseBytes); err != nil {
		return err
	}
	results, err := a.propose(ctx, &state.GrantLease{Session: state.SessionID(r.ID), TTL: r.TTL, Owner: a.ownerOf(ctx)})
	if err != nil {
		return err
	}
	resp.Header = a.header(results[0].KVRevision)
	resp.ID, resp.TTL = r.ID, results[0].Session.Granted()
	return nil
}

func (a *API) leadLeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest, resp *pb.LeaseRevokeResponse) error {
	if err := a.checkOwner(ctx, state.SessionID(r.ID), mayEnd); err != nil {
		return err
	}
	results, err := a.propose(ctx, &state.RevokeLease{Session: state.SessionID(r.ID)})
	if err != nil {
		return err
	}
	resp.Header = a.header(results[0].KVRevision)
	return nil
}

func (a *API) leadLeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest, resp *pb.LeaseTimeToLiveResponse) error {
	id, check := access.FromContext(ctx), mayUse
	if r.Keys {
		check = mayEnd // who may not delete a key is not told of it
	}
	var revision int64
	var refused error
	resp.ID, resp.TTL = r.ID, -1
	err := a.cfg.Store.Read(ctx, func(s *state.State) {
		if refused = check(id, s, state.SessionID(r.ID)); refused != nil {
			return
		}
		revision = s.Keys().Revision()
		x, ok := s.Session(state.SessionID(r.ID))
		if !ok {
			return
		}
		resp.GrantedTTL, resp.TTL = x.Granted(), a.secondsLeft(s, x)
		if r.Keys {
			for _, k := range s.SessionKeys(x.ID) {
				resp.Keys = append(resp.Keys, []byte(k))
			}
		}
	})
	if refused != nil {
		return refused
	}
	resp.Header = a.header(revision)
	return err
}
