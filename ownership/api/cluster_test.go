package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	"github.com/leasehold-dev/leasehold/ownership/controller"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// electionTimeout of a lone server: the least TTL is then 1.8 s. Several servers
// on a busy machine would elect again and again with that, so they have longer.
const (
	electionTimeout      = 300 * time.Millisecond
	groupElectionTimeout = time.Second
)

func electionTimeoutOf(servers int) time.Duration {
	if servers > 1 {
		return groupElectionTimeout
	}
	return electionTimeout
}

type monotonic struct{ start time.Time }

func (m monotonic) Now() time.Duration { return time.Since(m.start) }

// network is TCP that can be cut.
type network struct {
	ln net.Listener

	mu    sync.Mutex
	conns []net.Conn
	down  bool
}

func (n *network) Listen(string) (net.Listener, error) { return trackedListener{n.ln, n}, nil }

func (n *network) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	return n.track(conn, err)
}

func (n *network) track(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	n.conns = append(n.conns, conn)
	return conn, nil
}

// cut ends all traffic for good.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	_ = n.ln.Close()
	for _, c := range n.conns {
		_ = c.Close()
	}
}

type trackedListener struct {
	net.Listener
	n *network
}

func (l trackedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if conn, err = l.n.track(conn, nil); err == nil {
			return conn, nil
		}
	}
}

// server is one server of a test cluster: the real store, controller and API.
type server struct {
	id    string
	addr  string
	store *raftstore.Store
	ctl   *controller.Controller
	api   *API
	certs *pki.Store
	guard *auth.Auth
	ca    *pkitest.Authority // nil: without TLS
	grpc  *grpc.Server
	net   *network
	stop  func()
}

type testCluster struct {
	servers []*server
}

func startCluster(t testing.TB, n int, change ...func(*Config)) *testCluster {
	t.Helper()
	return startServers(t, n, nil, change)
}

func startServers(t testing.TB, n int, ca *pkitest.Authority, change []func(*Config)) *testCluster {
	t.Helper()
	c := &testCluster{}
	var peers []raftstore.Peer
	for i := range n {
		s := &server{id: fmt.Sprintf("s%d", i+1), ca: ca, net: &network{ln: listen(t)}}
		c.servers = append(c.servers, s)
	}
	for _, s := range c.servers {
		s.start(t, n, change)
		peers = append(peers, raftstore.Peer{ID: s.id, Store: s.store.Self().Store, RaftAddr: s.net.ln.Addr().String()})
	}
	for _, s := range c.servers {
		if err := s.store.Bootstrap(peers); err != nil {
			t.Fatal(err)
		}
	}
	c.leader(t)
	return c
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func testLogger() *slog.Logger {
	level := slog.LevelError + 1
	if os.Getenv("LEASEHOLD_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func (s *server) start(t testing.TB, n int, change []func(*Config)) {
	t.Helper()
	ln := listen(t)
	s.addr = ln.Addr().String()
	clock := monotonic{time.Now()}
	log := testLogger().With("server", s.id)
	var err error
	s.store, err = raftstore.New(raftstore.Config{
		ServerID: s.id, RaftAddr: s.net.ln.Addr().String(), Network: s.net,
		Announce: state.Server{GRPCAddr: s.addr}, Clock: clock, Logger: log, ElectionTimeout: electionTimeoutOf(n),
		Lead: func(ctx context.Context, l *raftstore.Lead) error {
			done := make(chan error, 1)
			go func() { done <- s.api.Lead(ctx, l.Term) }()
			err := s.ctl.Lead(ctx, l)
			<-done
			return err
		},
		OnApply: func(st *state.State, from, to, index uint64) { s.api.OnApply(st, from, to, index) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.ctl, err = controller.New(controller.Config{Store: s.store, Clock: clock, Logger: log}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Store: s.store, Controller: s.ctl, ServerID: s.id, Version: "test", ElectionTimeout: electionTimeoutOf(n), Clock: clock, Logger: log}
	opts := s.secure(t, &cfg)
	for _, f := range change {
		f(&cfg)
	}
	if s.api, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	s.guard = s.newGuard()
	opts = append(opts, s.guard.ServerOptions()...)
	s.grpc = grpc.NewServer(append(opts, s.api.ServerOptions()...)...)
	s.api.Register(s.grpc)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.store.Run(ctx); err != nil {
			t.Errorf("run store %s: %v", s.id, err)
		}
	})
	wg.Go(func() { _ = s.api.Run(ctx) })
	wg.Go(func() { _ = s.grpc.Serve(ln) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		s.grpc.Stop()
		wg.Wait()
		s.net.cut()
	})
	t.Cleanup(s.stop)
}

// kill cuts the server off from everybody, as a crash would.
func (s *server) kill() {
	s.net.cut()
	s.grpc.Stop()
}

// leader waits for a server that leads and serves.
func (c *testCluster) leader(t testing.TB) *server {
	t.Helper()
	var found *server
	eventually(t, "a leader", func() bool {
		for _, s := range c.servers {
			if ready, _ := s.api.Ready(); ready && s.store.IsLeader() && !s.net.isDown() {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

func (n *network) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// follower waits for one that knows its leader.
func (c *testCluster) follower(t testing.TB) *server {
	t.Helper()
	leader := c.leader(t)
	var found *server
	eventually(t, "a follower", func() bool {
		for _, s := range c.servers {
			if ready, _ := s.api.Ready(); s != leader && ready && s.api.grpcAddr(leader.id) != "" {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

// transfer makes a server lead no more. An attempt may fail on a busy machine,
// and an election may come first.
func transfer(t testing.TB, from *server) {
	t.Helper()
	eventually(t, "end of the leadership of "+from.id, func() bool {
		err := from.store.TransferLeadership(t.Context())
		return err == nil || !from.store.IsLeader()
	})
}

// patience is for what must come, however busy the machine is.
const patience = 30 * time.Second

// eventually looks again and again.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("no %s after %v", what, patience)
		}
	}
}

// dial connects to one server, as a client that tries again what may be tried
// again: a busy machine may hold an election at any time.
func (s *server) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	return s.dialWith(t, grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, resp any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range 1000 {
			if err := invoke(ctx, method, req, resp, conn, opts...); err == nil || !pb.DetailOf(err).Retryable() {
				return err
			}
			<-tick.C
		}
		return invoke(ctx, method, req, resp, conn, opts...)
	}))
}

func (s *server) dialWith(t testing.TB, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// keyspaceTTL is longer than a test with workers that do not renew may take.
const keyspaceTTL = 30 * time.Second

// createKeyspace makes one with keyspaceTTL.
func createKeyspace(t testing.TB, conn *grpc.ClientConn, name string, partitions uint32, change ...func(*pb.CreateKeyspaceRequest)) *pb.Keyspace {
	t.Helper()
	r := &pb.CreateKeyspaceRequest{Name: name, Partitions: partitions, TtlMs: keyspaceTTL.Milliseconds()}
	for _, f := range change {
		f(r)
	}
	ks, err := pb.NewKeyspaceServiceClient(conn).CreateKeyspace(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return ks
}
