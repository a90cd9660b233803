package grpcfence

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

type options struct {
	allow  func(ctx context.Context, method string, s fence.Stamp) error
	only   func(method string) bool
	logger *slog.Logger
}

// Option changes what the server's interceptors do.
type Option func(*options)

// Allow gives the server a say before a stamp is compared: an error refuses it
// with PERMISSION_DENIED and the error's text, and nothing is remembered of
// it. A server that does not trust its clients needs it, because the gate
// keeps a record of each keyspace, partition and resource that it is asked
// about.
func Allow(rule func(ctx context.Context, method string, s fence.Stamp) error) Option {
	return func(o *options) { o.allow = rule }
}

// Only guards the methods ("/package.Service/Method") for which the rule is
// true; the others, such as health checks and reads, need no stamp. Default:
// all methods of the server.
func Only(rule func(method string) bool) Option {
	return func(o *options) { o.only = rule }
}

// Logger is where the reason of UNAVAILABLE goes, which the client is not
// told. Default: slog.Default().
func Logger(l *slog.Logger) Option {
	return func(o *options) { o.logger = l }
}

func newOptions(opts []Option) options {
	o := options{
		allow: func(context.Context, string, fence.Stamp) error { return nil },
		only:  func(string) bool { return true },
	}
	for _, opt := range opts {
		opt(&o)
	}
	if o.logger == nil {
		o.logger = slog.Default()
	}
	return o
}

// UnaryServerInterceptor guards unary handlers: one is called for calls whose
// stamp the gate accepts. Its context carries the stamp and ends, with a
// *fence.StaleError as cause, when a newer one arrives, which then waits for
// the handler to return. A handler that returns an error after that is
// answered for with ABORTED interrupted.
func UnaryServerInterceptor(g *fence.Gate, opts ...Option) grpc.UnaryServerInterceptor {
	o := newOptions(opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !o.only(info.FullMethod) {
			return handler(ctx, req)
		}
		var resp any
		err := o.do(ctx, g, info.FullMethod, func(ctx context.Context, _ fence.Stamp) (err error) {
			resp, err = handler(ctx, req)
			return err
		})
		return resp, err
	}
}

// StreamServerInterceptor guards stream handlers as UnaryServerInterceptor
// does unary ones, and compares the stamp again with each received message.
// SendMsg and RecvMsg of a stream that has been cut return its refusal at
// once, and the message they were called with is not the handler's any more.
func StreamServerInterceptor(g *fence.Gate, opts ...Option) grpc.StreamServerInterceptor {
	o := newOptions(opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if !o.only(info.FullMethod) {
			return handler(srv, ss)
		}
		return o.do(ss.Context(), g, info.FullMethod, func(ctx context.Context, s fence.Stamp) error {
			return handler(srv, &stream{ServerStream: ss, ctx: ctx, gate: g, stamp: s})
		})
	}
}

func (o options) do(ctx context.Context, g *fence.Gate, method string, handler func(context.Context, fence.Stamp) error) error {
	md, _ := metadata.FromIncomingContext(ctx)
	s, err := ParseStamp(md)
	if err != nil {
		return refuseMetadata(err)
	}
	if err := o.allow(ctx, method, s); err != nil {
		return refuse(codes.PermissionDenied, ReasonNotAllowed, err.Error(), nil)
	}
	var answer error
	err = g.Do(ctx, s, func(ctx context.Context) error {
		answer = handler(ctx, s)
		var newer *fence.StaleError
		if answer != nil && errors.As(context.Cause(ctx), &newer) {
			answer = interrupted(newer)
		}
		return nil
	})
	var stale *fence.StaleError
	switch {
	case err == nil:
		return answer
	case errors.As(err, &stale):
		return refuseStale(stale)
	}
	o.logger.LogAttrs(ctx, slog.LevelWarn, "fenced call not let through",
		slog.String("method", method), slog.String("keyspace", s.Keyspace), slog.Uint64("partition", uint64(s.Partition)),
		slog.String("token", s.Token.String()), slog.String("owner", s.Owner), slog.Any("error", err))
	return refuse(codes.Unavailable, ReasonUnavailable,
		"the stamp could not be claimed: the durable guard or an older call in flight did not answer; try again", nil)
}

// stream is a server's stream that ends with its stamp.
type stream struct {
	grpc.ServerStream
	ctx   context.Context
	gate  *fence.Gate
	stamp fence.Stamp
}

// Context carries the stamp.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg compares the stamp before a message reaches the handler.
func (s *stream) RecvMsg(m any) error {
	if err := s.wait(func() error { return s.ServerStream.RecvMsg(m) }); err != nil {
		return err
	}
	return s.stale()
}

// SendMsg does not wait for a paused client once the stream is cut.
func (s *stream) SendMsg(m any) error {
	return s.wait(func() error { return s.ServerStream.SendMsg(m) })
}

// wait runs a call of the stream below until it returns or the stamp is stale.
// In the second case the call returns when gRPC has ended the stream, which is
// right after the handler.
func (s *stream) wait(call func() error) error {
	if s.ctx.Err() != nil {
		return s.ended()
	}
	result := make(chan error, 1)
	go func() { result <- call() }()
	select {
	case err := <-result:
		return err
	case <-s.ctx.Done():
		return s.ended()
	}
}

func (s *stream) ended() error {
	if err := s.stale(); err != nil {
		return err
	}
	return context.Cause(s.ctx)
}

// stale is the rule, held against what the gate has seen by now.
func (s *stream) stale() error {
	var stale *fence.StaleError
	if errors.As(fence.Check(s.gate.Seen(s.stamp.Key()), s.stamp), &stale) {
		return interrupted(stale)
	}
	return nil
}
