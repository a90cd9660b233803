package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// rpcOwner is a worker's process with a real gRPC server.
type rpcOwner struct {
	grpc_health_v1.UnimplementedHealthServer
	held Holdings
	hits atomic.Int64 // calls that reached the address
	runs atomic.Int64 // calls that ran
	srv  *grpc.Server
}

func (o *rpcOwner) at(t *testing.T, addr string, where Locator) string {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	o.srv = grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			o.hits.Add(1)
			return h(ctx, req)
		}, UnaryNotOwner(&o.held, where)),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			o.hits.Add(1)
			return h(srv, ss)
		}, StreamNotOwner(&o.held, where)))
	grpc_health_v1.RegisterHealthServer(o.srv, o)
	o.srv.RegisterService(&echoDesc, o)
	done := make(chan struct{})
	go func() { defer close(done); _ = o.srv.Serve(l) }()
	t.Cleanup(func() { o.srv.Stop(); <-done })
	return l.Addr().String()
}

func (o *rpcOwner) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	o.runs.Add(1)
	md, _ := metadata.FromIncomingContext(ctx)
	if r.GetService() == "metadata" {
		return nil, status.Errorf(codes.Aborted, "%v %v %v", md.Get(HeaderKeyspace), md.Get(HeaderPartition), md.Get("own"))
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (o *rpcOwner) Watch(r *grpc_health_v1.HealthCheckRequest, ss grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	o.runs.Add(1)
	for range 3 {
		if err := ss.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}); err != nil {
			return err
		}
	}
	return nil
}

// echoDesc is a service with a stream of both sides.
var echoDesc = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Echo", ServerStreams: true, ClientStreams: true, Handler: func(srv any, ss grpc.ServerStream) error {
		srv.(*rpcOwner).runs.Add(1)
		for {
			m := &grpc_health_v1.HealthCheckRequest{}
			if err := ss.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := ss.SendMsg(m); err != nil {
				return err
			}
		}
	}}},
}

func pooledTo(t *testing.T, r *Router, change func(*PoolConfig)) *Pool {
	t.Helper()
	cfg := PoolConfig{Router: r, Keyspace: "orders", Options: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}}
	if change != nil {
		change(&cfg)
	}
	p, err := NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func keyed(t *testing.T) context.Context { return WithKey(t.Context(), []byte("k")) }

// swapped is O-67 for gRPC: the table says a at x, where b is, and a is at y.
func swapped(t *testing.T, named bool) (r *Router, a, b *rpcOwner) {
	r, _ = filled(t, 1)
	a, b = &rpcOwner{}, &rpcOwner{}
	where, _ := filled(t, 1)
	y := a.at(t, "", nil)
	a.held.Add("orders", 0, 3000, nil)
	give(where, "a", y, 3000)
	if !named {
		where = nil
	}
	var locator Locator
	if where != nil {
		locator = where
	}
	give(r, "a", b.at(t, "", locator), 2000)
	return r, a, b
}

func TestCallIsMadeOnceMoreElsewhere(t *testing.T) {
	check := func(ctx context.Context, cc grpc.ClientConnInterface) error {
		_, err := grpc_health_v1.NewHealthClient(cc).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	watch := func(ctx context.Context, cc grpc.ClientConnInterface) error {
		s, err := grpc_health_v1.NewHealthClient(cc).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			return err
		}
		for n := 0; ; n++ {
			if _, err := s.Recv(); errors.Is(err, io.EOF) && n == 3 {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	for name, call := range map[string]func(context.Context, grpc.ClientConnInterface) error{"unary": check, "stream": watch} {
		for _, intercepted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/intercepted=%v", name, intercepted), func(t *testing.T) {
				r, a, b := swapped(t, true)
				p := pooledTo(t, r, nil)
				var cc grpc.ClientConnInterface = p
				if intercepted {
					conn, err := grpc.NewClient("passthrough:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()),
						grpc.WithUnaryInterceptor(p.Unary), grpc.WithStreamInterceptor(p.Stream))
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					cc = conn
				}
				for range 2 {
					if err := call(keyed(t), cc); err != nil {
						t.Fatal(err)
					}
				}
				if a.runs.Load() != 2 || b.hits.Load() != 1 || b.runs.Load() != 0 {
					t.Errorf("a ran %d, b was asked %d times and ran %d", a.runs.Load(), b.hits.Load(), b.runs.Load())
				}
				poll(t, func() bool { return p.idle() })
			})
		}
	}
}

// idle tells whether no connection is in use.
func (p *Pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if c.users != 0 {
			return false
		}
	}
	return true
}

// Nothing is known of another owner: one try, and the refusal as it is.
func TestCallIsNotMadeToTheSameWrongAddress(t *testing.T) {
	f := newFake(t, 1)
	r := f.router(Config{})
	b := &rpcOwner{}
	x := b.at(t, "", nil)
	f.do(func() { f.openLocked(1, "a", x); f.createLocked("orders", 1); f.grantLocked("orders", 0, 1) })
	poll(t, func() bool { at, _ := r.At("orders", 0); return at.Owner == "a" })
	_, err := grpc_health_v1.NewHealthClient(pooledTo(t, r, nil)).Check(keyed(t), &grpc_health_v1.HealthCheckRequest{})
	if !IsNotOwner(err) || b.hits.Load() != 1 || f.count("partition") != 1 {
		t.Errorf("%v; asked %d times, and the servers %d", err, b.hits.Load(), f.count("partition"))
	}
}

// A stream of the client's is not repeated, but begun anew it goes right.
func TestStreamOfBothSidesIsRefusedOnce(t *testing.T) {
	r, a, b := swapped(t, true)
	p := pooledTo(t, r, nil)
	echo := func() error {
		s, err := p.NewStream(keyed(t), &echoDesc.Streams[0], "/test.Echo/Echo")
		if err != nil {
			return err
		}
		m := &grpc_health_v1.HealthCheckRequest{Service: "hello"}
		_ = s.SendMsg(m) // RecvMsg has the status
		if err := s.RecvMsg(m); err != nil {
			return err
		}
		if err := s.CloseSend(); err != nil {
			return err
		}
		if err := s.RecvMsg(m); !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
	if err := echo(); !IsNotOwner(err) {
		t.Fatalf("first: %v", err)
	}
	if err := echo(); err != nil || a.runs.Load() != 1 || b.hits.Load() != 1 {
		t.Fatalf("second: %v", err)
	}
}

func TestCallsCarryTheWayAndTheirOwnMetadata(t *testing.T) {
	r, _ := filled(t, 1)
	a := &rpcOwner{}
	a.held.Add("orders", 0, 3000, nil)
	give(r, "a", a.at(t, "", nil), 3000)
	ctx := metadata.AppendToOutgoingContext(keyed(t), "own", "value")
	_, err := grpc_health_v1.NewHealthClient(pooledTo(t, r, nil)).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "metadata"})
	if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "[orders] [0] [value]") {
		t.Error(err)
	}
}

func TestCallsThatGoNowhere(t *testing.T) {
	r, _ := filled(t, 1)
	give(r, "a", "", 3000)
	p := pooledTo(t, r, nil)
	call := func(ctx context.Context) error {
		_, err := grpc_health_v1.NewHealthClient(p).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	if err := call(t.Context()); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "WithKey") {
		t.Errorf("without a key: %v", err)
	}
	if err := call(keyed(t)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "endpoint") {
		t.Errorf("without an endpoint: %v", err)
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	give(r, "b", dead.Addr().String(), 3001)
	if err := call(keyed(t)); status.Code(err) != codes.Unavailable {
		t.Errorf("nobody there: %v", err)
	}
	p.Close()
	if err := call(keyed(t)); status.Code(err) != codes.Canceled {
		t.Errorf("closed: %v", err)
	}
}

// Connections that nobody uses go, those in use stay, and there is a limit.
func TestIdleConnectionsAreClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := filled(t, 1)
		p := pooledTo(t, r, func(c *PoolConfig) { c.IdleTimeout, c.MaxConns = time.Minute, 3 })
		use := func(endpoint string) func() {
			_, release, err := p.acquire(endpoint)
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		held := use("a:1")
		use("b:1")()
		time.Sleep(time.Second)
		use("c:1")()
		use("d:1")() // one too many: b was idle for longest
		if p.Conns() != 3 || p.conns["b:1"] != nil || p.conns["a:1"] == nil {
			t.Errorf("%d connections: %v", p.Conns(), p.conns)
		}
		time.Sleep(2 * time.Minute)
		use("a:1")()
		if p.Conns() != 1 {
			t.Errorf("%d connections after two idle minutes", p.Conns())
		}
		held()
		held() // twice is once
		if p.conns["a:1"].users != 0 {
			t.Errorf("%d users", p.conns["a:1"].users)
		}
	})
}
