package router

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// ownerStream is a stream to an owner. While nothing has been received, one
// whose client sends a single message can be moved to another owner.
type ownerStream struct {
	pool *Pool
	ctx  context.Context //nolint:containedctx // that of the call, to open it a second time
	open func(context.Context, *grpc.ClientConn, grpc.CallOption) (grpc.ClientStream, error)

	// The reader's alone: generated code sends all before it receives, where
	// replay is possible.
	at      Route
	replay  bool // the first answer may move it
	message any
	closed  bool // the client's side is
	sent    *atomic.Bool

	mu     sync.Mutex // guards stream
	stream grpc.ClientStream
}

// begin opens the stream at s.at.
func (s *ownerStream) begin() error {
	cc, release, err := s.pool.acquire(s.at.Endpoint)
	if err != nil {
		return err
	}
	ctx, sent := withSent(stamped(s.ctx, s.at))
	s.sent = sent
	stream, err := s.open(ctx, cc, grpc.OnFinish(func(error) { release() }))
	if err != nil {
		release()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = stream
	return nil
}

func (s *ownerStream) current() grpc.ClientStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream
}

// SendMsg implements grpc.ClientStream.
func (s *ownerStream) SendMsg(m any) error {
	if s.replay {
		s.message = m
	}
	return s.current().SendMsg(m)
}

// CloseSend implements grpc.ClientStream.
func (s *ownerStream) CloseSend() error {
	if s.replay {
		s.closed = true
	}
	return s.current().CloseSend()
}

// RecvMsg implements grpc.ClientStream.
func (s *ownerStream) RecvMsg(m any) error {
	err := s.current().RecvMsg(m)
	if err != nil && s.replay && s.message != nil && s.move(err) {
		err = s.current().RecvMsg(m)
	}
	s.pool.heed(s.at, err)
	s.replay = false
	return err
}

// move begins anew at another owner after a refusal.
func (s *ownerStream) move(err error) bool {
	next, again := s.pool.elsewhere(s.ctx, s.at, err, s.sent.Load())
	if !again {
		return false
	}
	s.at, s.replay = next, false
	if s.begin() != nil || s.current().SendMsg(s.message) != nil {
		return false
	}
	return !s.closed || s.current().CloseSend() == nil
}

// Header implements grpc.ClientStream.
func (s *ownerStream) Header() (metadata.MD, error) { return s.current().Header() }

// Trailer implements grpc.ClientStream.
func (s *ownerStream) Trailer() metadata.MD { return s.current().Trailer() }

// Context implements grpc.ClientStream.
func (s *ownerStream) Context() context.Context { return s.current().Context() }
