package server

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
)

// simClock runs at a rate of its own from an arbitrary start, and blocks its
// readers while their process is stopped.
type simClock struct {
	began  time.Time
	rate   float64
	offset time.Duration
	gate   simGate
}

func (c *simClock) Now() time.Duration {
	c.gate.wait()
	return c.offset + time.Duration(float64(time.Since(c.began))*c.rate)
}

// truth turns a reading into the true time since the start of the run.
func (c *simClock) truth(reading time.Duration) time.Duration {
	return time.Duration(float64(reading-c.offset) / c.rate)
}

// simGate holds who passes while it is shut.
type simGate struct {
	mu   sync.Mutex
	shut chan struct{} // nil: open
}

func (g *simGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *simGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *simGate) wait() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

// simServer is one server's place: its address and its disk outlive it.
type simServer struct {
	sim    *sim
	id     string
	number int
	clock  *simClock
	disk   *simDisk
	moves  atomic.Int32 // to other addresses

	srv atomic.Pointer[Server] // nil while there is no process

	// turn is held by who starts or stops the process: a channel, because a
	// mutex with waiters would stop fake time. It guards what follows.
	turn chan struct{}
	host *simHost
	stop context.CancelFunc
	done chan struct{}
}

func (s *simServer) take()    { s.turn <- struct{}{} }
func (s *simServer) release() { <-s.turn }

func (s *simServer) ip() string { return fmt.Sprintf("10.0.%d.%d", s.moves.Load(), s.number) }

func (s *simServer) dir() string        { return filepath.Join(s.sim.dir, s.id) }
func (s *simServer) grpcAddr() string   { return s.ip() + ":7400" }
func (s *simServer) raftAddr() string   { return s.ip() + ":7401" }
func (s *simServer) gossipAddr() string { return s.ip() + ":7402" }

func (s *simServer) start() {
	s.take()
	defer s.release()
	if s.srv.Load() != nil {
		return
	}
	if s.done != nil {
		<-s.done // the one before has let go of its files
	}
	s.host = s.sim.net.host(s.ip())
	port, err := s.host.gossipPort()
	if err != nil {
		s.sim.t.Errorf("start server %s: %v", s.id, err)
		return
	}
	cfg := DefaultConfig()
	cfg.ID, cfg.DataDir = s.id, s.dir()
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.HTTPAddr = s.grpcAddr(), s.raftAddr(), s.gossipAddr(), s.ip()+":7480"
	cfg.BootstrapExpect = len(s.sim.servers)
	cfg.Join = s.sim.joins()
	cfg.Insecure = true
	cfg.ElectionTimeout = s.sim.pace.election
	cfg.ShutdownTimeout = 2 * time.Second
	cfg.Logger = testLogger(s.sim.t, s.id)
	cfg.WrapLog = s.disk.wrap
	cfg.hooks = hooks{
		listen: s.host.listen, dial: s.host.dial, gossip: port, clock: s.clock, pace: s.sim.pace.scale,
		store: func(c *raftstore.Config) {
			// Small enough for snapshots to be taken and sent in a run.
			c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 64, 32, s.sim.pace.of(5*time.Second)
			c.CommitTimeout = s.sim.pace.of(50 * time.Millisecond)
			c.HangBound, c.HangExit = s.sim.pace.of(2*time.Second), s.sim.pace.of(20*time.Second)
		},
	}
	srv, err := New(cfg)
	if err != nil {
		s.sim.t.Errorf("start server %s: %v", s.id, err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop, s.done = cancel, make(chan struct{})
	s.srv.Store(srv)
	done := s.done
	go func() {
		defer close(done)
		// A listener that is closed under a killed server is its first error.
		if err := srv.Run(ctx); err != nil && s.srv.Load() == srv {
			s.sim.t.Errorf("server %s: %v", s.id, err)
		}
	}()
}

// kill takes the process off the network at once; what then still runs can
// tell nobody anything, so only its disk is left.
func (s *simServer) kill() {
	s.take()
	defer s.release()
	if s.srv.Load() == nil {
		return
	}
	s.srv.Store(nil)
	s.host.kill()
	s.stop()
}

// shutdown stops the server in order, as an upgrade does.
func (s *simServer) shutdown() {
	s.take()
	defer s.release()
	if s.srv.Load() == nil {
		return
	}
	s.stop()
	<-s.done
	s.host.kill()
	s.srv.Store(nil)
}

func (s *simServer) running() *Server { return s.srv.Load() }

// leader is the server that leads the newest term, or nil.
func (s *sim) leader() *simServer {
	var found *simServer
	term := uint64(0)
	for _, x := range s.servers {
		if srv := x.running(); srv != nil && srv.store.IsLeader() && srv.store.Term() >= term {
			found, term = x, srv.store.Term()
		}
	}
	return found
}

// waitFor lets fake time pass until ok, at most for limit.
func (s *sim) waitFor(limit time.Duration, what string, ok func() (bool, string)) {
	s.t.Helper()
	if err := s.within(limit, what, ok); err != nil {
		s.fatalf("%v", err)
	}
}

func (s *sim) within(limit time.Duration, what string, ok func() (bool, string)) error {
	end := time.Now().Add(limit)
	for {
		good, why := ok()
		if good {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %s: %s", limit, what, why)
		}
		time.Sleep(s.pace.step)
	}
}
