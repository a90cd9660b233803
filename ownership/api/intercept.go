package api

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// hardLimit times the request limit is what grpc itself cuts off; between the
// two the caller gets an error with all its details.
const hardLimit = 4

// window is how many bytes of requests may be on their way: twice what one may
// have in detail, see hardLimit.
const window = 4 << 20

// ServerOptions are what a grpc.Server needs to serve this API: interceptors,
// size limits, connection keep-alives.
func (a *API) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(a.interceptUnary),
		grpc.ChainStreamInterceptor(a.interceptStream),
		grpc.MaxRecvMsgSize(hardLimit * a.cfg.MaxRequestBytes),
		// Fixed windows: with gRPC's own estimate of the bandwidth each keep-alive
		// would be answered by a ping, which costs more than the keep-alive.
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		// A stopped worker's stream must not hold its handler for ever.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

// interceptUnary is the way of every unary call, over gRPC and over HTTP:
// deadline, size, then here or at the leader, and the error table at the end.
func (a *API) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	m, ours := a.methods[info.FullMethod]
	if !ours { // health, reflection, the etcd API: they have errors of their own
		defer a.recover(info.FullMethod, &err)
		return handler(ctx, req)
	}
	began := time.Now()
	defer func() {
		err = a.toStatus(err)
		a.cfg.Metrics.Call("native", m.call, outcomeOf(err))
		if !m.waits {
			a.cfg.Metrics.CallTook("native", m.kind, time.Since(began))
		}
	}()
	defer a.recover(info.FullMethod, &err)
	if err := a.checkSize(req); err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok && !m.waits {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.cfg.CallTimeout)
		defer cancel()
	}
	switch {
	case m.local || wantsStale(req):
		a.sayAge(ctx)
	case !a.cfg.Store.IsLeader():
		return a.forwardUnary(ctx, info.FullMethod, m, req)
	}
	return handler(ctx, req)
}

func (a *API) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	m, ours := a.methods[info.FullMethod]
	if !ours {
		defer a.recover(info.FullMethod, &err)
		return handler(srv, ss)
	}
	defer func() {
		err = a.toStatus(err)
		a.cfg.Metrics.Call("native", m.call, outcomeOf(err))
	}()
	defer a.recover(info.FullMethod, &err)
	limited := &limitedStream{ServerStream: ss, api: a}
	switch {
	case m.local:
		a.sayAge(ss.Context())
	case !a.cfg.Store.IsLeader():
		return a.forwardStream(limited, info.FullMethod, m)
	}
	return handler(srv, limited)
}

// recover turns a panic of one call into its error: the others go on.
func (a *API) recover(method string, err *error) {
	if p := recover(); p != nil {
		a.log.Error("a call panicked", "method", method, "cause", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = failf(pb.ReasonInternal, "%s panicked", method)
	}
}

func (a *API) checkSize(req any) error {
	msg, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	return a.tooLarge(proto.Size(msg))
}

func (a *API) tooLarge(n int) error {
	if n <= a.cfg.MaxRequestBytes {
		return nil
	}
	a.cfg.Metrics.LimitHit("request_size")
	limit := strconv.Itoa(a.cfg.MaxRequestBytes) + " bytes"
	return fail(&pb.ErrorDetail{
		Reason: pb.ReasonTooLarge, Field: "request", Value: strconv.Itoa(n) + " bytes", Limit: limit,
		Message: fmt.Sprintf("request of %d bytes: at most %s", n, limit),
	})
}

// limitedStream bounds each message a caller sends.
type limitedStream struct {
	grpc.ServerStream
	api *API
}

func (s *limitedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.api.checkSize(m)
}

// sayAge tells how old this server's own state may be.
func (a *API) sayAge(ctx context.Context) {
	age := strconv.FormatInt(a.age().Milliseconds(), 10)
	_ = grpc.SetHeader(ctx, metadata.Pairs(ageKey, age)) // fails only when the headers are out
}

// callerAddr is where the caller is, seen through one forwarding. What the metadata
// says of that has been believed already, or taken away.
func callerAddr(ctx context.Context) string {
	if md, ok := metadata.FromIncomingContext(ctx); ok && len(md.Get(auth.ForwardedKey)) > 0 {
		if from := md.Get(auth.FromKey); len(from) > 0 {
			return strings.ToValidUTF8(shorten(from[0]), "")
		}
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
