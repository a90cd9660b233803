package auth

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// arrive looks at a call before anything of its message is read: gRPC would hold
// that for anybody. Who has a certificate is known already. The interceptors look
// again, at what the call is about as well.
func (a *Auth) arrive(ctx context.Context, info *tap.Info) (context.Context, error) {
	method := info.FullMethodName
	if needs, _ := a.needs(method); needs == nobodyAsked || a.open() || leafOf(ctx) != nil {
		return ctx, nil
	}
	_, c, err := a.identify(ctx, true)
	if err == nil {
		return ctx, nil
	}
	if a.entered(c, method, err) {
		a.record(c, method, "", err)
	}
	return ctx, a.spoken(method, err)
}

// Unary is the gRPC interceptor of unary calls. A call over HTTP goes through it,
// too, behind Auth.HTTP.
func (a *Auth) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	msg, ok := req.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	ctx, c, done, err := a.begin(ctx, info.FullMethod)
	defer done()
	if err == nil {
		err = a.authorize(ctx, c.id, info.FullMethod, msg)
	}
	var resp any
	if err == nil {
		if resp, err = handler(ctx, req); err != nil {
			err = either(ended(ctx), err)
		}
	}
	if a.entered(c, info.FullMethod, err) {
		a.record(c, info.FullMethod, a.target(info.FullMethod, msg), err)
	}
	if err != nil {
		return nil, a.spoken(info.FullMethod, err)
	}
	return resp, nil
}

// Stream is the gRPC interceptor of streams.
func (a *Auth) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, c, done, err := a.begin(ss.Context(), info.FullMethod)
	defer done()
	if err == nil {
		err = a.authorize(ctx, c.id, info.FullMethod, nil)
	}
	s := &stream{ServerStream: ss, ctx: ctx, auth: a, id: c.id, method: info.FullMethod}
	if err == nil {
		err = handler(srv, s)
		err = either(ended(ctx), either(s.refusal(), err))
	}
	if a.entered(c, info.FullMethod, err) {
		a.record(c, info.FullMethod, s.about(), err)
	}
	return a.spoken(info.FullMethod, err)
}

func either(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// begin finds out who calls, if the method asks.
func (a *Auth) begin(ctx context.Context, method string) (_ context.Context, c caller, done func(), err error) {
	needs, _ := a.needs(method)
	ctx, c, err = a.identify(ctx, needs != nobodyAsked)
	if err != nil {
		return ctx, c, func() {}, err
	}
	ctx, done, err = a.during(ctx, c.id)
	return ctx, c, done, err
}

// during returns a context that ends when the identity's proof does. done must be
// called when what it is for has ended.
func (a *Auth) during(ctx context.Context, id access.Identity) (_ context.Context, done func(), err error) {
	ctx, done = a.calls.open(ctx, id)
	if id.Source == access.Bearer && !a.valid(id) {
		// Taken back between the look at it and now: nobody else would notice.
		done()
		return ctx, func() {}, a.fail(errGone)
	}
	return ctx, done, nil
}

// entered counts what was denied, and reports whether a call has an entry in the
// audit log.
func (a *Auth) entered(c caller, method string, err error) bool {
	turnedAway := refused(err)
	if turnedAway && status.Code(err) == codes.PermissionDenied && !c.forwarded { // whatever the API's words are
		a.cfg.Metrics.AuthFailed(wordDenied)
	}
	switch {
	case c.forwarded:
		return false // the server that the caller spoke to has it
	case turnedAway:
		// Not so many that they push everything else out.
		return a.failed.allow("audit "+c.id.Owner(), c.from)
	}
	return c.id.Role != 0 && a.changes(method)
}

// spoken is an error of authentication in the words of the method's API.
func (a *Auth) spoken(method string, err error) error {
	switch pb.ReasonOf(err) {
	case pb.ReasonUnauthenticated, pb.ReasonLimited:
		if _, rules := a.needs(method); rules != nil {
			if s, ok := rules.(Spoken); ok {
				return s.Unauthenticated(method, pb.DetailOf(err).GetMessage() == errNone.message, err)
			}
		}
	}
	return err
}

// ended is why a call was ended by a proof that is none any more, or nil.
func ended(ctx context.Context) error {
	var f *failure
	if errors.As(context.Cause(ctx), &f) {
		return f.status()
	}
	return nil
}

// stream is a caller's stream, each message of which is looked at.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	auth   *Auth
	id     access.Identity
	method string
	denied atomic.Pointer[error]
	target atomic.Pointer[string] // of the first message, where the audit log wants it
}

// Context ends when the caller's proof does.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg refuses a message that the caller may not send, and with it the stream.
func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if err := ended(s.ctx); err != nil {
		return err
	}
	msg, ok := m.(proto.Message)
	if !ok {
		return errNoMessage
	}
	if s.target.Load() == nil && s.auth.changes(s.method) {
		s.aim(msg)
	}
	if err := s.auth.authorize(s.ctx, s.id, s.method, msg); err != nil {
		s.denied.CompareAndSwap(nil, &err)
		s.aim(msg)
		return err
	}
	return nil
}

// SendMsg tells nothing more to somebody whose proof is none any more.
func (s *stream) SendMsg(m any) error {
	if err := ended(s.ctx); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// aim remembers what the stream is about.
func (s *stream) aim(msg proto.Message) {
	target := s.auth.target(s.method, msg)
	s.target.CompareAndSwap(nil, &target)
}

func (s *stream) about() string {
	if t := s.target.Load(); t != nil {
		return *t
	}
	return ""
}

func (s *stream) refusal() error {
	if err := s.denied.Load(); err != nil {
		return *err
	}
	return nil
}

// errNoMessage cannot come from generated code.
var errNoMessage = pb.StatusError(codes.Internal, &pb.ErrorDetail{Reason: pb.ReasonInternal, Message: "the request is not a protobuf message"})
