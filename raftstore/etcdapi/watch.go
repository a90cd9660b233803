package etcdapi

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// watch is etcd's service of that name. It answers from this server's own state,
// also where that lags behind the leader's.
type watch struct {
	pb.UnimplementedWatchServer
	*API
}

// newWatchHub makes the hub of an API.
func (a *API) newWatchHub() *hub {
	limits := defaultLimits()
	limits.packing.header = a.header
	limits.packing.fragment = a.cfg.MaxRequestBytes + requestOverhead
	return newHub(func(fn func(past)) {
		a.cfg.Store.View(func(s *state.State) { fn(s.Keys()) })
	}, limits)
}

// requestOverhead is what etcd allows a message beside what its limit counts.
const requestOverhead = 512 << 10

// runHub gives out the events of this server's state until ctx ends.
func (a *API) runHub(ctx context.Context) {
	applied := make(chan struct{}, 1)
	defer a.cfg.Store.Notify(applied)()
	a.hub.run(ctx, applied)
}

// Watch serves one stream of watches.
func (w *watch) Watch(stream pb.Watch_WatchServer) error {
	err := w.serve(stream)
	w.countStream(kindWatch, err)
	return err
}

// serve has two goroutines beside the stream's own: one takes requests, one writes.
func (w *watch) serve(stream pb.Watch_WatchServer) error {
	if err := known(stream.Context()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(errStreamOver)
	lost := w.leaderLost(ctx)
	s := w.hub.newStream(access.FromContext(ctx))
	defer w.hub.drop(s)
	ended := make(chan error, 2)
	receive := func() {
		// A client that sends no more may listen still, as those over HTTP do.
		if err := w.receive(ctx, stream, s); !errors.Is(err, io.EOF) {
			ended <- err
		}
	}
	if !w.routines.start(receive) ||
		!w.routines.start(func() { ended <- s.send(ctx, stream.Send) }) {
		return errStopped
	}
	select {
	case err := <-ended:
		return watchEnd(err)
	case <-stream.Context().Done():
		return watchEnd(stream.Context().Err())
	case <-lost:
		return rpctypes.ErrGRPCNoLeader
	case <-w.stopping.Done():
		return errStopped
	}
}

// countStream notes how a stream ended; that its client ended it is as it should be.
func (a *API) countStream(k kind, err error) {
	if status.Code(err) == codes.Canceled {
		err = nil
	}
	a.count(k, err)
}

// errStreamOver is the cause with which a stream's goroutines end.
var errStreamOver = errors.New("the stream has ended")

// watchEnd is the status of a stream that its client ended.
func watchEnd(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return rpctypes.ErrGRPCWatchCanceled
	}
	return toStatus(err)
}

// receive carries out requests until the client sends no more.
func (w *watch) receive(ctx context.Context, stream grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse], s *watchStream) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := s.waitRoom(ctx); err != nil {
			return err
		}
		w.hub.request(s, r)
	}
}

// request carries out one request. One that says nothing is ignored.
func (h *hub) request(s *watchStream, r *pb.WatchRequest) {
	switch u := r.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		if u.CreateRequest != nil {
			h.create(s, u.CreateRequest)
		}
	case *pb.WatchRequest_CancelRequest:
		if u.CancelRequest != nil {
			h.cancel(s, u.CancelRequest.WatchId)
		}
	case *pb.WatchRequest_ProgressRequest:
		if u.ProgressRequest != nil {
			h.askProgress(s)
		}
	}
}
