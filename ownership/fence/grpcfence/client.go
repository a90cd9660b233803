package grpcfence

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// ErrNoStamp is returned by the client's interceptors for a call whose context
// carries no stamp.
var ErrNoStamp = errors.New("call context carries no fencing stamp")

// ClientOption changes what the client's interceptors do.
type ClientOption func(*clientOptions)

type clientOptions struct{ pass bool }

// PassUnstamped makes calls without a stamp as they are. By default they fail
// with ErrNoStamp, because forgetting the context of the lease is a mistake
// that only shows when it is too late.
func PassUnstamped() ClientOption {
	return func(o *clientOptions) { o.pass = true }
}

func newClientOptions(opts []ClientOption) clientOptions {
	var o clientOptions
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// stamped returns a context whose outgoing metadata has the stamp, and that
// metadata; nil if the call has no stamp and may do without.
func (o clientOptions) stamped(ctx context.Context, method string) (context.Context, metadata.MD, error) {
	s, ok := fence.FromContext(ctx)
	if !ok && o.pass {
		return ctx, nil, nil
	}
	if !ok {
		return nil, nil, fmt.Errorf("call %s: %w", method, ErrNoStamp)
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	if err := SetStamp(md, s); err != nil {
		return nil, nil, fmt.Errorf("call %s: %w", method, err)
	}
	return metadata.NewOutgoingContext(ctx, md), md, nil
}

// UnaryClientInterceptor stamps calls with what their context carries, and
// turns refusals into typed errors (see FromError).
func UnaryClientInterceptor(opts ...ClientOption) grpc.UnaryClientInterceptor {
	o := newClientOptions(opts)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, callOpts ...grpc.CallOption) error {
		ctx, md, err := o.stamped(ctx, method)
		if err != nil {
			return err
		}
		return fromOutgoing(md, invoke(ctx, method, req, reply, cc, callOpts...))
	}
}

// StreamClientInterceptor stamps streams with what their context carries, and
// turns refusals into typed errors. As always in gRPC, SendMsg on a stream
// that the server has ended returns io.EOF, and RecvMsg has the reason.
func StreamClientInterceptor(opts ...ClientOption) grpc.StreamClientInterceptor {
	o := newClientOptions(opts)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, callOpts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, md, err := o.stamped(ctx, method)
		if err != nil {
			return nil, err
		}
		cs, err := open(ctx, desc, cc, method, callOpts...)
		if err != nil {
			return nil, fromOutgoing(md, err)
		}
		return &clientStream{ClientStream: cs, md: md}, nil
	}
}

type clientStream struct {
	grpc.ClientStream
	md metadata.MD
}

func (c *clientStream) RecvMsg(m any) error {
	return fromOutgoing(c.md, c.ClientStream.RecvMsg(m))
}

// Guard makes a fence.Guard of a call that does nothing but pass the guarded
// server: each stamp is claimed by one such call, whose context carries it. The
// call goes through a connection with UnaryClientInterceptor.
//
//	grpcfence.Guard(func(ctx context.Context) error {
//		_, err := orders.Claim(ctx, &pb.ClaimRequest{})
//		return err
//	})
func Guard(call func(ctx context.Context) error) fence.Guard { return guard(call) }

type guard func(ctx context.Context) error

// Claim implements fence.Guard.
func (g guard) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if err := fence.Validate(stamps); err != nil {
		return err
	}
	var refused []*fence.StaleError
	for _, s := range fence.Sorted(stamps) {
		err := g(fence.NewContext(ctx, s, fence.TTLFromContext(ctx)))
		var stale *fence.StaleError
		switch {
		case errors.As(err, &stale):
			refused = append(refused, stale)
		case err != nil:
			return fmt.Errorf("claim %s: outcome unknown: %w", s, err)
		}
	}
	if len(refused) > 0 {
		return &fence.ClaimError{Refused: refused}
	}
	return nil
}
