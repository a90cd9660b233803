package etcdapi

import (
	"context"
	"fmt"
	"runtime/debug"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Metadata in which the gateway tells its inner server who makes an HTTP request, and
// from where. Only the gateway reaches that server.
const (
	callerKey = "leasehold-gateway-caller"
	fromKey   = "leasehold-gateway-from"
)

// anybody is what it says where nobody is asked, which Decode never takes.
var anybody = access.Anybody().Encode()

// inward is the context of a call to the inner server. Of what an HTTP request
// brings, nothing goes along but whether a leader is asked for: no header can pass
// for the caller, and no secret goes where it is not needed.
func inward(ctx context.Context) context.Context {
	out := metadata.Pairs(callerKey, access.FromContext(ctx).Encode())
	if p, ok := peer.FromContext(ctx); ok {
		out.Set(fromKey, p.Addr.String())
	}
	if brought, ok := metadata.FromOutgoingContext(ctx); ok {
		out.Append(rpctypes.MetadataRequireLeaderKey, brought.Get(rpctypes.MetadataRequireLeaderKey)...)
	}
	return metadata.NewOutgoingContext(ctx, out)
}

// arrived is inward's other half: the context of the call, by whom it is made (nobody,
// unless the gateway has said so, once) and from where.
func arrived(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	if from := md.Get(fromKey); len(from) == 1 {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: address(from[0])})
	}
	told := md.Get(callerKey)
	switch {
	case len(told) != 1:
	case told[0] == anybody:
		return access.NewContext(ctx, access.Anybody())
	default:
		if id, err := access.Decode(told[0]); err == nil {
			return access.NewContext(ctx, id)
		}
	}
	return access.NewContext(ctx, access.Identity{})
}

// gatewayOptions are those of the inner server. A panic ends one call, as it does on
// the outer one: gRPC itself would let it end the process.
func (a *API) gatewayOptions() []grpc.ServerOption {
	g := &guard{a: a, identify: func(ctx context.Context) context.Context { return ctx }}
	unary, stream := grpc.UnaryServerInterceptor(g.unary), grpc.StreamServerInterceptor(g.stream)
	if a.cfg.Unary != nil {
		unary, stream = a.cfg.Unary, a.cfg.Stream
	}
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			defer a.recover(info.FullMethod, &err)
			return unary(arrived(ctx), req, info, next)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer a.recover(info.FullMethod, &err)
			return stream(srv, arrivedStream{s, arrived(s.Context())}, info, next)
		}),
	}
}

// recover turns a panic of one call into its error.
func (a *API) recover(method string, err *error) {
	if p := recover(); p != nil {
		a.log.Error("a call panicked", "method", method, "cause", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "etcdserver: %s panicked", method)
	}
}

// arrivedStream is a stream by whom the gateway has named.
type arrivedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s arrivedStream) Context() context.Context { return s.ctx }

// address is a net.Addr of a text.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// inwardOptions are those of the connection to the inner server.
func inwardOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(inward(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(inward(ctx), desc, cc, method, opts...)
		}),
	}
}
