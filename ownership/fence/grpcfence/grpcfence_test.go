package grpcfence_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/grpcfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	writeMethod  = "/test.Journal/Write"
	streamMethod = "/test.Journal/Stream"
)

// journal is a service by hand. What its handlers do is up to the test.
type journal struct {
	write  func(ctx context.Context, text string) error
	stream func(grpc.ServerStream) error
}

var desc = grpc.ServiceDesc{
	ServiceName: "test.Journal",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Write",
		Handler: func(srv any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := dec(in); err != nil {
				return nil, err
			}
			call := func(ctx context.Context, req any) (any, error) {
				return &emptypb.Empty{}, srv.(*journal).write(ctx, req.(*wrapperspb.StringValue).GetValue())
			}
			if intercept == nil {
				return call(ctx, in)
			}
			return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: writeMethod}, call)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, ss grpc.ServerStream) error { return srv.(*journal).stream(ss) },
	}},
}

// serve returns a connection without interceptors and one with.
func serve(t testing.TB, gate *fence.Gate, j *journal, opts ...grpcfence.Option) (plain, stamped *grpc.ClientConn) {
	t.Helper()
	var chain []grpc.ServerOption
	if gate != nil {
		opts = append([]grpcfence.Option{grpcfence.Logger(slog.New(slog.DiscardHandler))}, opts...)
		chain = []grpc.ServerOption{
			grpc.ChainUnaryInterceptor(grpcfence.UnaryServerInterceptor(gate, opts...)),
			grpc.ChainStreamInterceptor(grpcfence.StreamServerInterceptor(gate, opts...)),
		}
	}
	srv := grpc.NewServer(chain...)
	srv.RegisterService(&desc, j)
	l := bufconn.Listen(1 << 20)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	dial := func(opts ...grpc.DialOption) *grpc.ClientConn {
		conn, err := grpc.NewClient("passthrough:///journal", append(opts,
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
			grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	plain = dial()
	stamped = dial(grpc.WithChainUnaryInterceptor(grpcfence.UnaryClientInterceptor()), grpc.WithChainStreamInterceptor(grpcfence.StreamClientInterceptor()))
	t.Cleanup(func() {
		_ = plain.Close()
		_ = stamped.Close()
		srv.Stop()
		<-done
	})
	return plain, stamped
}

func stamp(token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "orders", Partition: 17, Token: token, Owner: owner}
}

func with(s fence.Stamp) context.Context { return fence.NewContext(context.Background(), s, 0) }

func write(ctx context.Context, conn *grpc.ClientConn, text string) error {
	return conn.Invoke(ctx, writeMethod, wrapperspb.String(text), &emptypb.Empty{})
}

func accept(context.Context, string) error { return nil }

func TestStaleCallGetsTheCurrentToken(t *testing.T) {
	_, conn := serve(t, fence.NewGate(nil, nil), &journal{write: func(ctx context.Context, _ string) error {
		if s, ok := fence.FromContext(ctx); !ok || s.Token < 34 {
			t.Errorf("handler's context carries %v, %v", s, ok)
		}
		return nil
	}})
	if err := write(with(stamp(34, "wörker, four")), conn, "x"); err != nil {
		t.Fatal(err)
	}
	err := write(with(stamp(33, "w2")), conn, "x")
	want := fence.StaleError{Stamp: stamp(33, "w2"), Current: 34, CurrentOwner: "wörker, four", Reason: fence.ReasonStale}
	var stale *fence.StaleError
	if !errors.As(err, &stale) || *stale != want {
		t.Errorf("got %+v, want %+v", err, want)
	}
	// O-73
	if err := write(with(stamp(34, "wörker, four")), conn, "x"); err != nil {
		t.Errorf("the same token from the same owner: %v", err)
	}
	if err := write(with(stamp(34, "liar")), conn, "x"); !errors.Is(err, fence.ErrOtherOwner) {
		t.Errorf("the same token from another owner: got %v", err)
	}
}

// O-72 for metadata.
func TestOddMetadata(t *testing.T) {
	set := func(key string, values ...string) func(metadata.MD) {
		return func(md metadata.MD) { md[key] = values }
	}
	for _, c := range []struct {
		name   string
		change func(metadata.MD)
		code   codes.Code
		reason string
	}{
		{"absent", func(md metadata.MD) { delete(md, "leasehold-token") }, codes.FailedPrecondition, "missing"},
		{"no stamp at all", func(md metadata.MD) { clear(md) }, codes.FailedPrecondition, "missing"},
		{"no owner", func(md metadata.MD) { delete(md, "leasehold-owner") }, codes.FailedPrecondition, "missing"},
		{"empty", set("leasehold-token", ""), codes.InvalidArgument, "malformed"},
		{"abc", set("leasehold-token", "abc"), codes.InvalidArgument, "malformed"},
		{"0", set("leasehold-token", "0"), codes.InvalidArgument, "malformed"},
		{"-1", set("leasehold-token", "-1"), codes.InvalidArgument, "malformed"},
		{"+5", set("leasehold-token", "+5"), codes.InvalidArgument, "malformed"},
		{"0x10", set("leasehold-token", "0x10"), codes.InvalidArgument, "malformed"},
		{"1e3", set("leasehold-token", "1e3"), codes.InvalidArgument, "malformed"},
		{"12,13", set("leasehold-token", "12,13"), codes.InvalidArgument, "malformed"},
		{"007", set("leasehold-token", "007"), codes.InvalidArgument, "malformed"},
		{"inner space", set("leasehold-token", "5 0"), codes.InvalidArgument, "malformed"},
		{"twice", set("leasehold-token", "50", "50"), codes.InvalidArgument, "malformed"},
		{"9007199254740993", set("leasehold-token", "9007199254740993"), codes.InvalidArgument, "malformed"},
		{"18446744073709551616", set("leasehold-token", "18446744073709551616"), codes.InvalidArgument, "malformed"},
		{"10 KiB", set("leasehold-token", strings.Repeat("5", 10<<10)), codes.InvalidArgument, "malformed"},
		{"partition 4294967296", set("leasehold-partition", "4294967296"), codes.InvalidArgument, "malformed"},
		{"owner as text and bytes", set("leasehold-owner-bin", "w"), codes.InvalidArgument, "malformed"},
		{"owner joined by a proxy", set("leasehold-owner", "a,b"), codes.InvalidArgument, "malformed"},
		{"owner of 256 bytes", set("leasehold-owner", strings.Repeat("a", 256)), codes.InvalidArgument, "malformed"},
		{"resource not UTF-8", set("leasehold-resource-bin", "\xff"), codes.InvalidArgument, "malformed"},
		{"resource with NUL", set("leasehold-resource-bin", "a\x00"), codes.InvalidArgument, "malformed"},
		{"older", set("leasehold-token", "49"), codes.FailedPrecondition, "stale"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := fence.NewGate(nil, nil)
			if err := gate.Claim(t.Context(), []fence.Stamp{stamp(50, "w")}); err != nil {
				t.Fatal(err)
			}
			refuse := func(context.Context, string) error { t.Error("let through"); return nil }
			plain, _ := serve(t, gate, &journal{write: refuse, stream: func(grpc.ServerStream) error { return refuse(t.Context(), "") }})
			md := metadata.MD{}
			if err := grpcfence.SetStamp(md, stamp(50, "w")); err != nil {
				t.Fatal(err)
			}
			c.change(md)
			ctx := metadata.NewOutgoingContext(t.Context(), md)
			check := func(err error) {
				t.Helper()
				if status.Code(err) != c.code || len(err.Error()) > 400 {
					t.Errorf("got %v, want %v", err, c.code)
				}
				var refused *grpcfence.RefusedError
				switch err = grpcfence.FromError(stamp(1, "x"), err); {
				case c.reason == "stale":
					if !errors.Is(err, fence.ErrStale) {
						t.Errorf("got %v", err)
					}
				case !errors.As(err, &refused) || refused.Reason != c.reason:
					t.Errorf("got %v, want reason %q", err, c.reason)
				}
			}
			check(write(ctx, plain, "x"))
			cs, err := plain.NewStream(ctx, &desc.Streams[0], streamMethod)
			if err != nil {
				t.Fatal(err)
			}
			check(cs.RecvMsg(&emptypb.Empty{}))
			if m := gate.Seen(stamp(1, "w").Key()); m != (fence.Mark{Token: 50, Owner: "w"}) {
				t.Errorf("mark %+v afterwards", m)
			}
		})
	}
}

// Whatever a stamp holds arrives as it was, through a real connection.
func TestStampArrivesAsSent(t *testing.T) {
	var got fence.Stamp
	_, conn := serve(t, nil, &journal{write: func(ctx context.Context, _ string) (err error) {
		md, _ := metadata.FromIncomingContext(ctx)
		got, err = grpcfence.ParseStamp(md)
		return err
	}})
	text := rapid.StringN(1, 60, 255).Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
	rapid.Check(t, func(t *rapid.T) {
		s := fence.Stamp{
			Keyspace:  text.Draw(t, "keyspace"),
			Partition: rapid.Uint32().Draw(t, "partition"),
			Token:     fence.Token(rapid.Uint64Range(1, uint64(fence.MaxToken)).Draw(t, "token")),
			Owner:     text.Draw(t, "owner"),
		}
		if rapid.Bool().Draw(t, "named") {
			s.Resource = text.Draw(t, "resource")
		}
		if err := write(with(s), conn, "x"); err != nil || got != s {
			t.Fatalf("sent %+v, arrived %+v, %v", s, got, err)
		}
	})
}

func TestClientWithoutAStamp(t *testing.T) {
	asked := 0
	_, conn := serve(t, nil, &journal{write: func(context.Context, string) error { asked++; return nil }})
	if err := write(t.Context(), conn, "x"); !errors.Is(err, grpcfence.ErrNoStamp) || asked != 0 {
		t.Errorf("unary: got %v after %d calls", err, asked)
	}
	if _, err := conn.NewStream(t.Context(), &desc.Streams[0], streamMethod); !errors.Is(err, grpcfence.ErrNoStamp) {
		t.Errorf("stream: got %v", err)
	}
	if err := write(with(stamp(5, "a\x00b")), conn, "x"); !errors.Is(err, fence.ErrInvalid) || asked != 0 {
		t.Errorf("impossible stamp: got %v after %d calls", err, asked)
	}
	pass := grpcfence.UnaryClientInterceptor(grpcfence.PassUnstamped())
	err := pass(t.Context(), writeMethod, wrapperspb.String("x"), &emptypb.Empty{}, conn, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		asked++
		return nil
	})
	if err != nil || asked != 1 {
		t.Errorf("PassUnstamped: got %v after %d calls", err, asked)
	}
}

type down struct{ err error }

func (d down) Claim(context.Context, []fence.Stamp) error { return d.err }

func TestDurableGuardDownIsUnavailable(t *testing.T) {
	_, conn := serve(t, fence.NewGate(down{errors.New("dial tcp 10.0.0.9: refused")}, nil), &journal{write: func(context.Context, string) error {
		t.Error("let through")
		return nil
	}})
	err := write(with(stamp(1, "a")), conn, "x")
	var refused *grpcfence.RefusedError
	if !errors.As(err, &refused) || refused.Reason != "unavailable" || status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "10.0.0.9") {
		t.Errorf("got %v", err)
	}
}

func TestAllowAndOnly(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	plain, conn := serve(t, gate, &journal{write: accept, stream: func(grpc.ServerStream) error { return nil }},
		grpcfence.Only(func(method string) bool { return method == writeMethod }),
		grpcfence.Allow(func(_ context.Context, _ string, s fence.Stamp) error {
			if s.Keyspace != "orders" {
				return errors.New("no such keyspace here")
			}
			return nil
		}))
	cs, err := plain.NewStream(t.Context(), &desc.Streams[0], streamMethod)
	if err != nil {
		t.Fatal(err)
	}
	if err := cs.RecvMsg(&emptypb.Empty{}); !errors.Is(err, io.EOF) {
		t.Errorf("a method that is not guarded: %v", err)
	}
	s := stamp(1, "a")
	s.Keyspace = "billing"
	var refused *grpcfence.RefusedError
	if err := write(with(s), conn, "x"); !errors.As(err, &refused) || refused.Reason != "not_allowed" {
		t.Errorf("got %v", err)
	}
	if m := gate.Seen(s.Key()); m != (fence.Mark{}) {
		t.Errorf("a stamp that was not allowed left the mark %+v", m)
	}
}

// A handler's own FAILED_PRECONDITION is the handler's.
func TestAnswersOfTheHandlerAreNotRefusals(t *testing.T) {
	own := status.Error(codes.FailedPrecondition, "order is shipped")
	_, conn := serve(t, fence.NewGate(nil, nil), &journal{write: func(context.Context, string) error { return own }})
	err := write(with(stamp(1, "a")), conn, "x")
	var refused *grpcfence.RefusedError
	if errors.Is(err, fence.ErrStale) || errors.As(err, &refused) || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v", err)
	}
}

func TestGuardClaimsThroughACall(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	_, conn := serve(t, gate, &journal{write: accept})
	g := grpcfence.Guard(func(ctx context.Context) error { return write(ctx, conn, "") })
	at := func(p uint32, token fence.Token) fence.Stamp {
		return fence.Stamp{Keyspace: "k", Partition: p, Token: token, Owner: "w"}
	}
	if err := g.Claim(t.Context(), []fence.Stamp{at(1, 5), at(2, 9)}); err != nil {
		t.Fatal(err)
	}
	err := g.Claim(t.Context(), []fence.Stamp{at(2, 8), at(1, 8), at(3, 8)})
	var ce *fence.ClaimError
	if !errors.As(err, &ce) || len(ce.Refused) != 1 || ce.Refused[0].Stamp != at(2, 8) || ce.Refused[0].Current != 9 {
		t.Errorf("got %v", err)
	}
	if gate.Seen(at(3, 1).Key()).Token != 8 {
		t.Error("a refused neighbour kept others from being claimed")
	}
	lost := errors.New("connection reset")
	if err := grpcfence.Guard(func(context.Context) error { return lost }).Claim(t.Context(), []fence.Stamp{at(1, 9)}); !errors.Is(err, lost) || errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	if err := g.Claim(t.Context(), []fence.Stamp{at(1, 0)}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("token 0: got %v", err)
	}
}
