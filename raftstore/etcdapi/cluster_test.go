package etcdapi

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// electionTimeout of the test clusters. A leader that hears nobody for half of it
// steps down, and a busy machine can stand still for some hundred milliseconds.
const electionTimeout = time.Second

// aloneTimeout is that of a single server, which nobody can depose.
const aloneTimeout = 100 * time.Millisecond

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

// testServer is one server of a test cluster: the real store and API, over TCP.
type testServer struct {
	id, addr  string
	level     state.Feature // of the cluster, once it is ready
	identify  func(context.Context) context.Context
	options   []grpc.ServerOption // that come first
	store     *raftstore.Store
	api       *API
	raft, net *network // of the group, and of the clients
	stop      func()   // may be called more than once
	conn      *grpc.ClientConn
}

type testCluster struct{ servers []*testServer }

// options of a test cluster; each may be nil.
type options struct {
	api   func(*Config)
	store func(*raftstore.Config)
	level state.Feature // 0: the highest
	// identify finds out who calls; nil: nobody is asked.
	identify func(context.Context) context.Context
	before   func(*testServer) []grpc.ServerOption // interceptors that run first
	alone    bool                                  // set by startCluster
}

func startCluster(t testing.TB, n int, o options) *testCluster {
	t.Helper()
	c := &testCluster{}
	o.alone = n == 1
	var peers []raftstore.Peer
	for i := range n {
		s := &testServer{id: fmt.Sprintf("s%d", i+1), raft: &network{ln: listen(t)}, net: &network{ln: listen(t)}}
		c.servers = append(c.servers, s)
		s.start(t, o)
		peers = append(peers, raftstore.Peer{ID: s.id, Store: s.store.Self().Store, RaftAddr: s.raft.ln.Addr().String()})
	}
	for _, s := range c.servers {
		if err := s.store.Bootstrap(peers); err != nil {
			t.Fatal(err)
		}
	}
	c.ready(t)
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

func (s *testServer) start(t testing.TB, o options) {
	t.Helper()
	if o.level == 0 {
		o.level = state.MaxFeature
	}
	if s.identify = o.identify; s.identify == nil {
		s.identify = identifyOpen
	}
	s.level = o.level
	s.addr = s.net.ln.Addr().String()
	log := testLogger().With("server", s.id)
	cfg := raftstore.Config{
		ServerID: s.id, RaftAddr: s.raft.ln.Addr().String(), Advertise: s.raft.ln.Addr().String(), Network: s.raft,
		Announce: state.Server{GRPCAddr: s.addr}, ElectionTimeout: electionTimeout, Logger: log,
		Lead: func(ctx context.Context, l *raftstore.Lead) error {
			if o.level > 1 {
				if _, err := l.Propose(ctx, &state.RaiseFeature{Level: o.level}); err != nil {
					return err
				}
			}
			return s.api.Lead(ctx, l)
		},
	}
	if o.alone {
		cfg.ElectionTimeout = aloneTimeout
	}
	if o.store != nil {
		o.store(&cfg)
	}
	var err error
	if s.store, err = raftstore.New(cfg); err != nil {
		t.Fatal(err)
	}
	acfg := Config{
		Store: s.store, ServerID: s.id, StoreID: s.store.Self().Store, Version: "test",
		ElectionTimeout: electionTimeout, QuotaBytes: DefaultQuotaBytes, Logger: log,
	}
	if o.api != nil {
		o.api(&acfg)
	}
	if s.api, err = New(acfg); err != nil {
		t.Fatal(err)
	}
	if o.before != nil {
		s.options = o.before(s)
	}
	s.serve(t)
}

// serve runs the server until stop.
func (s *testServer) serve(t testing.TB) {
	t.Helper()
	g := grpc.NewServer(slices.Concat(s.options, s.api.ServerOptions(s.identify), []grpc.ServerOption{grpc.MaxRecvMsgSize(8 << 20)})...)
	s.api.Register(g)
	storeCtx, stopStore := context.WithCancel(context.Background())
	apiCtx, stopAPI := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = s.store.Run(storeCtx) })
	group.Go(func() { _ = s.api.Run(apiCtx) })
	group.Go(func() { _ = g.Serve(trackedListener{s.net.ln, s.net}) })
	var err error
	if s.conn, err = grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		_ = s.conn.Close()
		stopAPI()
		g.Stop()
		stopStore()
		group.Wait()
	})
	t.Cleanup(s.stop)
}

// kill is what the end of the process looks like to the others.
func (s *testServer) kill() {
	s.raft.cut()
	s.net.cut()
	s.stop()
}

func (s *testServer) kv() pb.KVClient { return pb.NewKVClient(s.conn) }

// eventually polls a condition of another goroutine's doing.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	const long = 30 * time.Second
	for end := time.Now().Add(long); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for: %s", long, what)
		}
	}
}

// leader of the servers that have not been stopped.
func (c *testCluster) leader(t testing.TB) (lead *testServer) {
	t.Helper()
	eventually(t, "a leader", func() bool {
		for _, s := range c.servers {
			if s.store.IsLeader() {
				lead = s
				return true
			}
		}
		return false
	})
	return lead
}

func (c *testCluster) follower(t testing.TB) *testServer {
	t.Helper()
	lead := c.leader(t)
	for _, s := range c.servers {
		if s != lead {
			return s
		}
	}
	t.Fatal("the only server leads")
	return nil
}

// ready waits until every server knows the leader and how to reach it.
func (c *testCluster) ready(t testing.TB) {
	t.Helper()
	for _, s := range c.servers {
		eventually(t, s.id+" knows the leader", func() bool {
			lead := c.leader(t) // it may be another by now
			id, ok := s.store.LeaderID()
			return ok && id == lead.id && (s == lead || s.api.address(id) != "")
		})
		eventually(t, s.id+" knows what all know", func() (known bool) {
			s.store.View(func(st *state.State) { known = st.Feature() >= s.level })
			return known
		})
	}
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(stop)
	return ctx
}
