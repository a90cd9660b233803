package server

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
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
	id, ip string
	clock  *simClock

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

func (s *simServer) grpcAddr() string { return s.ip + ":7400" }

func (s *simServer) start() {
	s.take()
	defer s.release()
	if s.srv.Load() != nil {
		return
	}
	if s.done != nil {
		<-s.done // the one before has let go of its files
	}
	s.host = s.sim.net.host(s.ip)
	port, err := s.host.gossipPort()
	if err != nil {
		s.sim.t.Errorf("start server %s: %v", s.id, err)
		return
	}
	cfg := DefaultConfig()
	cfg.ID, cfg.DataDir = s.id, filepath.Join(s.sim.dir, s.id)
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.HTTPAddr = s.grpcAddr(), s.ip+":7401", s.ip+":7402", s.ip+":7480"
	cfg.BootstrapExpect = len(s.sim.servers)
	for _, other := range s.sim.servers {
		cfg.Join = append(cfg.Join, other.ip+":7402")
	}
	cfg.Insecure = true
	cfg.ShutdownTimeout = 2 * time.Second
	cfg.Logger = testLogger(s.sim.t, s.id)
	cfg.hooks = hooks{
		listen: s.host.listen, dial: s.host.dial, gossip: port, clock: s.clock,
		store: func(c *raftstore.Config) {
			// Small enough for snapshots to be taken and sent in a run.
			c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 64, 32, 5*time.Second
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
	end := time.Now().Add(limit)
	for {
		good, why := ok()
		if good {
			return
		}
		if time.Now().After(end) {
			s.fatalf("not within %v: %s: %s", limit, what, why)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sameState wants all servers to have the same state, byte for byte, at the
// same place in the log, and every invariant to hold in it.
func (s *sim) sameState() {
	s.t.Helper()
	s.waitFor(10*time.Second, "all servers have one state", func() (bool, string) {
		var first []byte
		var at uint64
		for i, x := range s.servers {
			var index uint64
			var body bytes.Buffer
			var err error
			x.running().store.View(func(st *state.State) {
				index, _ = st.Applied()
				if err = st.Check(); err == nil {
					err = st.Snapshot().Write(&body)
				}
			})
			if err != nil {
				s.fatalf("state of server %s at index %d: %v", x.id, index, err)
			}
			if i == 0 {
				first, at = body.Bytes(), index
				continue
			}
			if index != at {
				return false, fmt.Sprintf("server %s is at %d, %s at %d", x.id, index, s.servers[0].id, at)
			}
			if !bytes.Equal(first, body.Bytes()) {
				s.fatalf("servers %s and %s differ at index %d", x.id, s.servers[0].id, at)
			}
		}
		return true, ""
	})
	s.sameChecked++
}
