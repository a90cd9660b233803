package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a group of servers in this process.
type cluster struct {
	t       testing.TB
	net     *memNet
	gossip  sync.Map // address by Raft id: where a server was last started
	servers []*server
}

// server is one of them, over all its restarts.
type server struct {
	c    *cluster
	id   string
	addr string
	conf func(*Config)
	dir  string
	vfs  *lossyFS // or nil
	torn int      // writes that power loss cut short

	mu    sync.Mutex // duties overlap tests look at duty from several goroutines
	store *Store
	stop  context.CancelFunc
	done  chan struct{}
	err   error
}

// option changes every server's Config.
type option func(s *server, c *Config)

func onDisk(s *server, c *Config) { c.Dir = s.dir }

// testWall is a wall clock that is right also in a bubble.
func testWall() time.Time {
	return time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC).Add(time.Duration(time.Now().UnixNano() % int64(24*time.Hour)))
}

func testLogger(t testing.TB) *slog.Logger {
	if os.Getenv("RAFTSTORE_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// newCluster starts n servers and bootstraps them. They are stopped when the
// test ends; a test in a bubble must call stopAll itself.
func newCluster(t testing.TB, n int, opts ...option) *cluster {
	t.Helper()
	return clusterAt(t, n, func(i int) string { return fmt.Sprintf("10.0.0.%d:7401", i+1) }, opts...)
}

func clusterAt(t testing.TB, n int, addr func(i int) string, opts ...option) *cluster {
	t.Helper()
	c := &cluster{t: t, net: newMemNet()}
	for i := range n {
		c.newServer(addr(i), opts...).open()
	}
	if err := c.servers[0].store.Bootstrap(c.peers()); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.servers {
		s.run()
	}
	return c
}

// newServer makes one more, which has not been opened.
func (c *cluster) newServer(addr string, opts ...option) *server {
	s := &server{c: c, id: fmt.Sprintf("s%d", len(c.servers)+1), addr: addr}
	s.dir = filepath.Join(c.t.TempDir(), s.id)
	s.conf = func(conf *Config) {
		for _, o := range opts {
			o(s, conf)
		}
	}
	c.servers = append(c.servers, s)
	return s
}

// peer is the server as the others know it.
func (s *server) peer() Peer { return Peer{s.id, s.store.Self().Store, s.addr} }

func (c *cluster) peers() (all []Peer) {
	for _, s := range c.servers {
		all = append(all, s.peer())
	}
	return all
}

func (s *server) config() Config {
	conf := Config{
		ServerID: s.id,
		RaftAddr: s.addr,
		Network:  s.c.net.at(s.addr),
		Wall:     testWall,
		Logger:   testLogger(s.c.t).With("server", s.id),
	}
	s.conf(&conf)
	return conf
}

func (s *server) open() {
	s.c.t.Helper()
	store, err := New(s.config())
	if err != nil {
		s.c.t.Fatal(err)
	}
	s.mu.Lock()
	s.store = store
	s.mu.Unlock()
	s.c.gossip.Store(store.Self().raftID(), s.addr)
}

// now is the store as it was last started.
func (s *server) now() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store
}

func (s *server) run() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stop, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		s.err = s.store.Run(ctx)
	}()
}

// start brings a stopped server back.
func (s *server) start() {
	s.c.t.Helper()
	s.c.net.isolate(s.addr, false)
	s.c.net.revive(s.addr)
	s.open()
	s.run()
}

// halt stops a server cleanly.
func (s *server) halt() error {
	s.stop()
	<-s.done
	return s.err
}

// crash takes a server off the network in the middle of everything.
func (s *server) crash() {
	s.c.net.isolate(s.addr, true)
	s.stop()
	<-s.done
}

// kill ends a server as kill -9 would, as far as others can see.
func (s *server) kill() {
	s.c.net.kill(s.addr)
	s.stop()
	<-s.done
}

func (c *cluster) stopAll() {
	for _, s := range c.servers {
		s.stop()
	}
	for _, s := range c.servers {
		<-s.done
	}
}

// leader waits until exactly one of the servers that are connected leads.
func (c *cluster) leader() *server {
	c.t.Helper()
	var found *server
	c.within(30*time.Second, "a leader", func() bool {
		found = nil
		for _, s := range c.servers {
			if s.store.IsLeader() && !c.net.off(s.addr) {
				if found != nil {
					return false
				}
				found = s
			}
		}
		return found != nil
	})
	return found
}

func (n *memNet) off(addr string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[addr] || n.dead[addr] || n.stalled[addr] != nil
}

// follower returns a connected server that does not lead.
func (c *cluster) follower() *server {
	l := c.leader()
	for _, s := range c.servers {
		if s != l && !c.net.off(s.addr) {
			return s
		}
	}
	return nil
}

// within polls for a condition.
func (c *cluster) within(limit time.Duration, what string, ok func() bool) {
	c.t.Helper()
	end := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(end) {
			c.t.Fatalf("no %s within %v", what, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// do proposes at the leader, wherever it is, until the outcome is known to be
// good, and fails the test on a refusal.
func (c *cluster) do(cmds ...state.Command) []state.Result {
	c.t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		rs, err := c.leader().store.Propose(ctx, cmds...)
		cancel()
		var not *NotLeaderError
		switch {
		case err == nil:
			for _, r := range rs {
				if r.Err != nil {
					c.t.Fatalf("%T: %v", cmds[0], r.Err)
				}
			}
			return rs
		case errors.As(err, &not), errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrStopped):
			time.Sleep(10 * time.Millisecond)
		default:
			c.t.Fatal(err)
		}
	}
}

// byGossip lets servers find each other at their present addresses.
func byGossip(s *server, c *Config) {
	c.Resolve = func(p Peer) (string, bool) {
		addr, ok := s.c.gossip.Load(p.raftID())
		if !ok {
			return "", false
		}
		return addr.(string), true
	}
}

const testTTL = 10 * time.Second

// keyspace makes one.
func (c *cluster) keyspace(name string, p uint32, ttl time.Duration) state.KeyspaceID {
	c.t.Helper()
	rs := c.do(&state.CreateKeyspace{Name: name, Partitions: p, Settings: state.Settings{
		TTL: ttl, Takeover: state.Strict, HandoffTimeout: 30 * time.Second, InitialDelay: time.Second,
	}})
	return rs[0].Keyspace.ID
}

// session opens one.
func (c *cluster) session(id state.SessionID, keyspace string) {
	c.t.Helper()
	c.do(openSession(id, keyspace))
}

func openSession(id state.SessionID, keyspace string) *state.OpenSession {
	return &state.OpenSession{Session: id, Worker: fmt.Sprintf("w%d", id), Keyspaces: []string{keyspace}}
}

// renew keeps a session alive from wherever the leader is, every interval, until
// ctx ends. lost is called with a refusal.
func (c *cluster) renew(ctx context.Context, wg *sync.WaitGroup, id state.SessionID, every time.Duration, lost func(error)) {
	wg.Go(func() {
		for {
			for _, s := range c.servers {
				s.mu.Lock()
				store := s.store
				s.mu.Unlock()
				if !store.IsLeader() {
					continue
				}
				kctx, cancel := context.WithTimeout(ctx, every)
				_, err := store.KeepAlive(kctx, id)
				cancel()
				if state.ReasonOf(err) != "" {
					lost(err)
					return
				}
			}
			select {
			case <-time.After(every):
			case <-ctx.Done():
				return
			}
		}
	})
}

// alive reports whether a session is there, as the leader sees it.
func (c *cluster) alive(id state.SessionID) (ok bool) {
	c.t.Helper()
	c.leader().store.View(func(st *state.State) { _, ok = st.Session(id) })
	return ok
}

// check verifies the invariants everywhere.
func (c *cluster) check() {
	c.t.Helper()
	for _, s := range c.servers {
		s.store.View(func(st *state.State) {
			if err := st.Check(); err != nil {
				c.t.Errorf("%s: %v", s.id, err)
			}
		})
	}
}

// mark is a command that leaves a name behind.
func mark(name string) state.Command {
	return &state.CreateKeyspace{Name: name, Partitions: 1, Settings: state.Settings{
		TTL: time.Hour, Takeover: state.Strict, HandoffTimeout: 30 * time.Second,
	}}
}

func marked(st *state.State, name string) bool {
	_, ok := st.KeyspaceByName(name)
	return ok
}

// nudge is a command that changes nothing.
func nudge() state.Command { return &state.RaiseToken{} }

// lossy puts a lossyFS under the log. A restart gets a new one.
func lossy(s *server, c *Config) {
	s.vfs = newLossyFS()
	s.vfs.onTear = func() { s.torn++ }
	c.hooks.vfs = s.vfs
}
