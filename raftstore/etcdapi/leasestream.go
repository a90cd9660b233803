package etcdapi

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	// maxRound is how many requests of one stream are carried out together.
	maxRound = 4096
	// renewPause comes between tries to reach a leader.
	renewPause = 50 * time.Millisecond
)

// keepAliveStream is one client's stream of keep-alives, of any number of leases.
// Requests that come while a round is being carried out make up the next: so the
// answers of a lease are in order, and a client's leases share entries of the log.
type keepAliveStream struct {
	*API
	write func(*pb.LeaseKeepAliveResponse) error

	mu      sync.Mutex
	waiting []int64
	last    bool // the client asks for no more
	ready   chan struct{}
	room    chan struct{}
}

// LeaseKeepAlive serves one stream of keep-alives.
func (l *lease) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	err := l.serve(stream)
	l.countStream(kindLease, err)
	return err
}

// serve has two goroutines beside the stream's own: one takes requests, one carries
// them out and answers.
func (l *lease) serve(stream pb.Lease_LeaseKeepAliveServer) error {
	if err := known(stream.Context()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(errStreamOver)
	lost := l.leaderLost(ctx)
	s := &keepAliveStream{API: l.API, write: stream.Send, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	ended := make(chan error, 2)
	receive := func() {
		if err := s.receive(ctx, stream.Recv); err != nil {
			ended <- err
		}
	}
	if !l.routines.start(receive) ||
		!l.routines.start(func() { ended <- s.run(ctx) }) {
		return errStopped
	}
	select {
	case err := <-ended:
		return toStatus(err)
	case <-stream.Context().Done():
		return toStatus(stream.Context().Err())
	case <-lost:
		return rpctypes.ErrGRPCNoLeader
	case <-l.stopping.Done():
		return errStopped
	}
}

// receive returns nil when the client asks for no more; what it has asked for is
// still answered.
func (s *keepAliveStream) receive(ctx context.Context, recv func() (*pb.LeaseKeepAliveRequest, error)) error {
	for {
		r, err := recv()
		if errors.Is(err, io.EOF) {
			s.mu.Lock()
			s.last = true
			signal(s.ready)
			s.mu.Unlock()
			return nil
		}
		if err != nil {
			return err
		}
		for !s.put(r.ID) {
			select {
			case <-s.room:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// put adds a request to the next round, unless that is full.
func (s *keepAliveStream) put(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxRound {
		return false
	}
	s.waiting = append(s.waiting, id)
	signal(s.ready)
	return true
}

// take returns the next round, and whether it is the last.
func (s *keepAliveStream) take() (ids []int64, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, s.waiting = s.waiting, nil
	signal(s.room)
	return ids, s.last
}

func (s *keepAliveStream) run(ctx context.Context) error {
	for {
		select {
		case <-s.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		ids, last := s.take()
		if err := s.round(ctx, ids); err != nil || last {
			return err
		}
	}
}

// round renews leases and answers. A leader that cannot be reached is tried again
// for as long as a call may take. A lease of somebody else's ends the stream, when
// the others have been renewed.
func (s *keepAliveStream) round(ctx context.Context, ids []int64) error {
	ctx, cancel := s.callContext(ctx)
	defer cancel()
	var refused error
	for len(ids) > 0 {
		answers, err := s.renew(ctx, ids)
		var left []int64
		for i, a := range answers {
			switch {
			case a == nil:
				left = append(left, ids[i])
			case a.TTL == foreignLease:
				refused = deniedLease(access.FromContext(ctx), state.SessionID(a.ID))
			default:
				if err := s.write(a); err != nil {
					return err
				}
			}
		}
		if ids = left; len(ids) == 0 {
			break
		}
		if status.Code(toStatus(err)) != codes.Unavailable {
			return err
		}
		select {
		case <-time.After(renewPause):
		case <-ctx.Done():
			return err
		}
	}
	return refused
}

// foreignLease stands, in place of the seconds that a lease has, for one of somebody
// else's: it was not renewed.
const foreignLease = -1

// renew renews leases, here or at the leader. The answers are as ids; nil is one
// that could not be had, for which there is an error.
func (a *API) renew(ctx context.Context, ids []int64) ([]*pb.LeaseKeepAliveResponse, error) {
	answers := make([]*pb.LeaseKeepAliveResponse, len(ids))
	if a.cfg.Store.IsLeader() {
		return answers, a.renewHere(ctx, ids, answers)
	}
	resp := &relaypb.RenewResponse{}
	if err := a.atLeader(ctx, methodRenew, &relaypb.RenewRequest{Leases: ids}, resp); err != nil {
		return answers, err
	}
	if len(resp.Ttls) != len(ids) {
		return answers, status.Errorf(codes.Internal, "etcdserver: the leader answered %d of %d leases", len(resp.Ttls), len(ids))
	}
	header := a.header(resp.Revision)
	for i, id := range ids {
		answers[i] = &pb.LeaseKeepAliveResponse{Header: header, ID: id, TTL: resp.Ttls[i]}
	}
	return answers, nil
}

// leadRenew renews leases for another server, all or with an error.
func (a *API) leadRenew(ctx context.Context, r *relaypb.RenewRequest, resp *relaypb.RenewResponse) error {
	answers := make([]*pb.LeaseKeepAliveResponse, len(r.Leases))
	if err := a.renewHere(ctx, r.Leases, answers); err != nil {
		return err
	}
	for _, answer := range answers {
		resp.Ttls, resp.Revision = append(resp.Ttls, answer.TTL), answer.Header.Revision
	}
	return nil
}

// renewHere renews on the leader. The revision in the headers is that of before:
// a client must not hear of a renewal at a revision at which its lease was gone.
func (a *API) renewHere(ctx context.Context, ids []int64, answers []*pb.LeaseKeepAliveResponse) error {
	// Callbacks may come when nobody waits any more: they have a list of their own.
	found, errs := make([]*pb.LeaseKeepAliveResponse, len(ids)), make([]error, len(ids))
	settled := map[int]int64{} // what is not renewed: position to seconds left
	caller := access.FromContext(ctx)
	var revision int64
	a.cfg.Store.View(func(s *state.State) {
		revision = s.Keys().Revision()
		for i, id := range ids {
			x, ok := s.Session(state.SessionID(id))
			switch {
			case !ok:
			case !caller.MayUse(x.Owner):
				settled[i] = foreignLease
			case x.Worker != "":
				settled[i] = max(a.secondsLeft(s, x), 1) // 0 would say that it has ended
			}
		}
	})
	header := a.header(revision)
	var left atomic.Int64
	left.Store(int64(len(ids)))
	done := make(chan struct{})
	for i, id := range ids {
		answered := func(ttl int64, err error) {
			if errs[i] = err; err == nil {
				found[i] = &pb.LeaseKeepAliveResponse{Header: header, ID: id, TTL: ttl}
			}
			if left.Add(-1) == 0 {
				close(done)
			}
		}
		if ttl, ok := settled[i]; ok {
			answered(ttl, nil)
			continue
		}
		a.cfg.Store.KeepAliveAsync(state.SessionID(id), func(k raftstore.KeepAlive, err error) {
			switch state.ReasonOf(err) {
			case state.ReasonNotFound, state.ReasonSuperseded, state.ReasonEvicted:
				answered(0, nil) // not an error: the client learns that it is gone
			default:
				answered(int64(k.TTL/time.Second), err)
			}
		})
	}
	select {
	case <-done:
		copy(answers, found)
		return firstError(errs)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
