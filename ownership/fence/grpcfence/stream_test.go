package grpcfence_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/grpcfence"
)

func TestUnaryHandlerIsCutByANewerOwner(t *testing.T) {
	entered := make(chan struct{})
	_, conn := serve(t, fence.NewGate(nil, nil), &journal{write: func(ctx context.Context, text string) error {
		if text == "old" {
			close(entered)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}})
	old := make(chan error)
	go func() { old <- write(with(stamp(1, "a")), conn, "old") }()
	<-entered
	if err := write(with(stamp(2, "b")), conn, "new"); err != nil {
		t.Error(err)
	}
	var refused *grpcfence.RefusedError
	if err := <-old; !errors.As(err, &refused) || refused.Reason != grpcfence.ReasonInterrupted || status.Code(err) != codes.Aborted {
		t.Errorf("old owner: got %v, want interrupted", err)
	}
}

// A stream of an old owner that says nothing, or takes nothing, ends when a
// newer owner comes, and does not keep it waiting.
func TestIdleStreamIsCutByANewerOwner(t *testing.T) {
	for _, waits := range []string{"receiving", "sending"} {
		t.Run(waits, func(t *testing.T) {
			waiting := make(chan struct{})
			handlerGot := make(chan error, 1)
			_, conn := serve(t, fence.NewGate(nil, nil), &journal{write: accept, stream: func(ss grpc.ServerStream) error {
				if s, ok := fence.FromContext(ss.Context()); !ok || s != stamp(1, "a") {
					t.Errorf("stream's context carries %v, %v", s, ok)
				}
				var err error
				for i := 0; err == nil; i++ {
					if i == 1 {
						close(waiting)
					}
					if waits == "receiving" {
						err = ss.RecvMsg(&wrapperspb.StringValue{})
					} else {
						err = ss.SendMsg(wrapperspb.String(strings.Repeat("x", 32<<10)))
					}
				}
				handlerGot <- err
				return err
			}})
			cs, err := conn.NewStream(with(stamp(1, "a")), &desc.Streams[0], streamMethod)
			if err != nil {
				t.Fatal(err)
			}
			if err := cs.SendMsg(wrapperspb.String("hello")); err != nil {
				t.Fatal(err)
			}
			<-waiting
			ctx, cancel := context.WithTimeout(with(stamp(2, "b")), 10*time.Second)
			defer cancel()
			if err := write(ctx, conn, "new"); err != nil {
				t.Fatalf("new owner: %v", err)
			}
			var refused *grpcfence.RefusedError
			if err := grpcfence.FromError(stamp(1, "a"), <-handlerGot); !errors.As(err, &refused) || refused.Reason != grpcfence.ReasonInterrupted {
				t.Errorf("the handler got %v, want interrupted", err)
			}
			for err = nil; err == nil; {
				err = cs.RecvMsg(&wrapperspb.StringValue{})
			}
			if !errors.As(err, &refused) || status.Code(err) != codes.Aborted {
				t.Errorf("the old owner got %v, want interrupted", err)
			}
			again, err := conn.NewStream(with(stamp(1, "a")), &desc.Streams[0], streamMethod)
			if err != nil {
				t.Fatal(err)
			}
			if err := again.RecvMsg(&wrapperspb.StringValue{}); !errors.Is(err, fence.ErrStale) {
				t.Errorf("the old owner's next stream: got %v, want ErrStale", err)
			}
		})
	}
}

// scripted is a server stream whose messages are handed out by the test.
type scripted struct {
	grpc.ServerStream
	ctx  context.Context
	recv func() error
}

func (s scripted) Context() context.Context { return s.ctx }
func (s scripted) RecvMsg(any) error        { return s.recv() }

// The message has been read from the connection, then a newer owner comes:
// the message must not reach the handler.
func TestEachReceivedMessageIsCompared(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	md := metadata.MD{}
	if err := grpcfence.SetStamp(md, stamp(1, "a")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	received := 0
	ss := scripted{ctx: metadata.NewIncomingContext(t.Context(), md), recv: func() error {
		received++
		if received < 3 {
			return nil
		}
		if received > 10 {
			return io.EOF
		}
		wg.Go(func() { _ = gate.Claim(t.Context(), []fence.Stamp{stamp(2, "b")}) })
		for gate.Seen(stamp(2, "b").Key()).Token < 2 { // the claim is being made; it waits for this stream
			runtime.Gosched()
		}
		return nil
	}}
	reached := 0
	err := grpcfence.StreamServerInterceptor(gate)(nil, ss, &grpc.StreamServerInfo{FullMethod: streamMethod}, func(_ any, ss grpc.ServerStream) error {
		for {
			if err := ss.RecvMsg(nil); err != nil {
				return err
			}
			reached++
		}
	})
	wg.Wait()
	if reached != 2 || status.Code(err) != codes.Aborted {
		t.Errorf("%d messages reached the handler, want 2; it ended with %v", reached, err)
	}
}
