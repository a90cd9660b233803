package etcdapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// ServerOptions are for a gRPC server that serves this API alone: every call is made
// by whom identify puts into its context (access.NewContext), and must be allowed by
// the table. A server with more APIs has interceptors of its own, which ask Authorize.
func (a *API) ServerOptions(identify func(context.Context) context.Context) []grpc.ServerOption {
	g := &guard{a: a, identify: identify}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(g.unary), grpc.ChainStreamInterceptor(g.stream)}
}

// guard is the interceptors of a gRPC server.
type guard struct {
	a        *API
	identify func(context.Context) context.Context
}

func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx = g.identify(ctx)
	if err := g.a.authorize(ctx, info.FullMethod, req); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (g *guard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx := g.identify(s.Context())
	if err := g.a.Authorize(ctx, access.FromContext(ctx), info.FullMethod, nil); err != nil {
		return err
	}
	return next(srv, &guardedStream{ServerStream: s, ctx: ctx, a: g.a, method: info.FullMethod})
}

// guardedStream looks at each message that comes in.
type guardedStream struct {
	grpc.ServerStream
	ctx    context.Context
	a      *API
	method string
}

func (s *guardedStream) Context() context.Context { return s.ctx }

func (s *guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.a.authorize(s.ctx, s.method, m)
}

// authorize is Authorize for whom a context names, of what gRPC calls a message.
func (a *API) authorize(ctx context.Context, method string, m any) error {
	req, ok := m.(proto.Message)
	if !ok {
		return denied(access.FromContext(ctx), method, "a message of protobuf")
	}
	return a.Authorize(ctx, access.FromContext(ctx), method, req)
}
