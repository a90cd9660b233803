package workertest

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Defaults of a Server.
const (
	// DefaultTTL of sessions, the one of the product.
	DefaultTTL = 10 * time.Second
	// DefaultPatience is how long a method waits for a worker before it fails
	// the test: long enough for a busy machine.
	DefaultPatience = time.Minute
	// HandoffTimeout is what workers are given to drain when they leave.
	HandoffTimeout = 30 * time.Second
)

const (
	address   = "workertest:7400"
	clusterID = "workertest"
	serverID  = "workertest"
	// shutdownTimeout is what Config gives workers to stop: a test does not
	// wait as long for a handler that hangs as a program does.
	shutdownTimeout = 10 * time.Second
)

// Server is an in-memory Leasehold server that does what the test says. Its
// methods are for the test's goroutine.
type Server struct {
	t        testing.TB
	ttl      time.Duration
	patience time.Duration
	began    time.Time
	listener *listener
	log      *slog.Logger
	readers  sync.WaitGroup // one per stream

	mu       sync.Mutex // guards the rest; nothing waits while holding it
	changed  chan struct{}
	spaces   []*space // the id of a keyspace is its place here, plus 1
	links    []*link  // one per Config
	sessions map[uint64]*session
	workers  map[string]*session // that has the worker id now
	leases   map[fence.Token]*lease
	token    fence.Token // the last one issued or heard of
	index    uint64      // of the log that a real server would have
	history  []Event
	started  map[string]int   // by worker id: Runs of Start that have not ended
	ended    map[string]error // what the last one to end has returned
}

// Option of NewServer.
type Option func(*Server)

// Strict makes a keyspace with takeover: strict, the default of the product: a
// lease ends by release or by its session's expiry only.
func Strict(name string, partitions uint32) Option {
	return func(s *Server) { s.addSpace(name, partitions, false) }
}

// Fenced makes a keyspace with takeover: fenced: leases can be taken back at
// once, see [Server.Revoke].
func Fenced(name string, partitions uint32) Option {
	return func(s *Server) { s.addSpace(name, partitions, true) }
}

// TTL is that of every session. Outside a synctest bubble a short one, of a
// second or two, keeps tests of expiry fast; the worker library takes at least
// 250 ms off it.
func TTL(d time.Duration) Option { return func(s *Server) { s.ttl = d } }

// Patience is how long a method waits for a worker before it fails the test.
func Patience(d time.Duration) Option { return func(s *Server) { s.patience = d } }

// NewServer starts a server that ends with the test.
func NewServer(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{
		t: t, ttl: DefaultTTL, patience: DefaultPatience, began: time.Now(), listener: newListener(),
		changed: make(chan struct{}), sessions: map[uint64]*session{}, workers: map[string]*session{},
		leases: map[fence.Token]*lease{}, token: firstToken(time.Now()), started: map[string]int{}, ended: map[string]error{},
	}
	logs := &testLog{out: t.Output()}
	s.log = slog.New(slog.NewTextHandler(logs, nil))
	for _, o := range opts {
		o(s)
	}
	if s.ttl < 600*time.Millisecond {
		t.Fatalf("workertest: TTL %v: at least 600ms, or the margin that workers take off leaves nothing", s.ttl)
	}
	g := grpc.NewServer(grpc.WaitForHandlers(true), grpc.KeepaliveEnforcementPolicy(
		keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	leaseholdv1.RegisterSessionServiceServer(g, sessionAPI{Server: s})
	leaseholdv1.RegisterClusterServiceServer(g, clusterAPI{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(s.listener) // the listener fails only when it is closed
	}()
	t.Cleanup(func() {
		s.stopTimers()
		g.Stop()
		<-served
		s.readers.Wait()
		logs.stop()
	})
	return s
}

func (s *Server) addSpace(name string, partitions uint32, fenced bool) {
	s.t.Helper()
	if partitions == 0 {
		s.t.Fatalf("workertest: keyspace %q: 0 partitions: at least 1", name)
	}
	if s.spaceLocked(name) != nil {
		s.t.Fatalf("workertest: keyspace %q is given twice", name)
	}
	s.spaces = append(s.spaces, &space{
		id: uint32(len(s.spaces) + 1), name: name, partitions: partitions, fenced: fenced,
		owners: map[uint32]*lease{}, before: map[uint32]string{},
	})
}

// Config is the configuration of a worker of this server, as of one process.
// Change what you like, but not Servers, Dialer, Clock and Gossip. The waiting
// methods hear from Observer; to observe as well, wrap its functions.
//
// Called twice with one id it makes two processes with the same worker id, of
// which the server accepts the second if the first is out of touch.
func (s *Server) Config(id string) worker.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := newLink(s.listener, id, len(s.links)+1)
	s.links = append(s.links, l)
	return worker.Config{
		Servers: address, ID: id, Gossip: worker.GossipOff, Dialer: l.dial, Clock: l,
		Logger: s.log, ShutdownTimeout: shutdownTimeout,
		Observer: &worker.Observer{
			ContextStart: func(l *worker.Lease, _ time.Duration) { s.note(l, func(x *lease) { x.running = true }) },
			ContextEnd:   func(l *worker.Lease, why error, _ time.Duration) { s.note(l, func(x *lease) { x.end = why }) },
			HandlerReturn: func(l *worker.Lease, err error, _ time.Duration) {
				s.note(l, func(x *lease) { x.returned, x.err = true, err })
			},
		},
	}
}

// note writes down what a worker does with a lease.
func (s *Server) note(l *worker.Lease, f func(*lease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.leases[l.Token()]; x != nil {
		f(x)
		s.changedLocked()
	}
}

// changedLocked wakes the methods that wait.
func (s *Server) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) stopTimers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sessions {
		x.expiry.Stop()
	}
	for _, l := range s.leases {
		l.stopTimer()
	}
	for _, l := range s.links {
		l.resume() // connections that are held up could not be closed
	}
}

// fatalf stops the test. The last events are what one needs to see why.
func (s *Server) fatalf(format string, args ...any) {
	s.t.Helper()
	s.mu.Lock()
	last := s.history[max(0, len(s.history)-12):]
	s.mu.Unlock()
	text := "workertest: " + fmt.Sprintf(format, args...)
	if len(last) == 0 {
		s.t.Fatal(text + "\nnothing has happened so far")
	}
	text += "\nwhat happened last:"
	for _, e := range last {
		text += "\n\t" + e.String()
	}
	s.t.Fatal(text)
}

// testLog is the test's output until the test is over: a worker that runs on
// must not write to it then.
type testLog struct {
	mu  sync.Mutex
	out interface{ Write([]byte) (int, error) }
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return len(p), nil
	}
	return l.out.Write(p)
}

func (l *testLog) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = nil
}
