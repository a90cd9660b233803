package raftstore

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// nextWrite returns how long it takes until another server than old has
// acknowledged a write.
func (c *cluster) nextWrite(old *server) time.Duration {
	c.t.Helper()
	start := time.Now()
	for time.Since(start) < 30*time.Second {
		for _, s := range c.servers {
			if s == old {
				continue
			}
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			_, err := s.store.Propose(ctx, nudge())
			cancel()
			if err == nil {
				return time.Since(start)
			}
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatal("no other server leads")
	return 0
}

// killLeader ends the leader's process and returns how long it takes until the
// next one writes.
func (c *cluster) killLeader() (old *server, took time.Duration) {
	c.t.Helper()
	old = c.leader()
	time.Sleep(time.Second)
	c.net.kill(old.addr)
	took = c.nextWrite(old)
	old.stop()
	<-old.done
	return old, took
}

func TestNextLeaderDoesNotWaitForTheHeartbeatTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, servers := range []int{3, 5} {
			c := newCluster(t, servers, onDisk, lossy)
			for range 10 {
				old, took := c.killLeader()
				if took > 100*time.Millisecond {
					t.Errorf("%d servers: the next write took %v", servers, took)
				}
				old.start()
				time.Sleep(2 * time.Second)
			}
			c.stopAll()
		}
	})
}

// The one that stands first may lack what the leader has acknowledged; then the
// next one has to win.
func TestServerThatIsBehindDoesNotDelayTheNextLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, unsynced)
		defer c.stopAll()
		for range 5 {
			l := c.leader()
			time.Sleep(time.Second)
			var first *server
			for _, s := range c.servers {
				if s != l {
					first = s
					break
				}
			}
			c.net.slow(first.addr, 20*time.Millisecond) // it gets everything later
			time.Sleep(100 * time.Millisecond)
			if _, err := l.store.Propose(t.Context(), mark(time.Now().String())); err != nil {
				t.Fatal(err)
			}
			old := l
			c.net.kill(old.addr)
			c.net.slow(first.addr, 0)
			took := c.nextWrite(old)
			if took > 200*time.Millisecond {
				t.Errorf("the next write took %v", took)
			}
			old.stop()
			<-old.done
			old.start()
			time.Sleep(2 * time.Second)
		}
	})
}

// Whatever else breaks connections does not make anybody stand.
func TestNobodyStandsAgainstALeaderThatIsThere(t *testing.T) {
	for name, breaks := range map[string]func(c *cluster, l *server){
		"one connection ends": func(c *cluster, l *server) {
			c.net.mu.Lock()
			var all []*memConn
			for conn := range c.net.conns {
				if conn.from == l.addr || conn.to == l.addr {
					all = append(all, conn)
				}
			}
			c.net.mu.Unlock()
			for _, conn := range all {
				conn.Close()
			}
		},
		"a short cut": func(c *cluster, l *server) {
			c.net.isolate(l.addr, true)
			time.Sleep(100 * time.Millisecond)
			c.net.isolate(l.addr, false)
		},
		"a follower is killed": func(c *cluster, l *server) {
			f := c.follower()
			f.kill()
			f.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3, onDisk, unsynced)
				defer c.stopAll()
				l := c.leader()
				time.Sleep(time.Second)
				term := l.store.Term()
				for range 5 {
					breaks(c, l)
					time.Sleep(time.Second)
				}
				if now := c.leader(); now != l || l.store.Term() != term {
					t.Errorf("%s led in term %d, now %s leads in term %d", l.id, term, now.id, now.store.Term())
				}
			})
		})
	}
}

// A leader that is alive behind an address that refuses loses one election in
// an election timeout at most.
func TestStandingIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, unsynced)
		defer c.stopAll()
		l := c.leader()
		time.Sleep(time.Second)
		term := l.store.Term()
		c.net.mu.Lock()
		listener := c.net.listeners[l.addr]
		delete(c.net.listeners, l.addr) // refused from now on, and alive
		c.net.mu.Unlock()
		start := time.Now()
		for time.Since(start) < 2*time.Second {
			c.net.mu.Lock()
			var all []*memConn
			for conn := range c.net.conns {
				if conn.from == l.addr || conn.to == l.addr {
					all = append(all, conn)
				}
			}
			c.net.mu.Unlock()
			for _, conn := range all {
				conn.Close()
			}
			time.Sleep(20 * time.Millisecond)
		}
		if n := l.store.Term() - term; n > 2*4+1 {
			t.Errorf("%d terms in 2 s", n)
		}
		c.net.mu.Lock()
		c.net.listeners[l.addr] = listener
		c.net.mu.Unlock()
		c.do(nudge())
	})
}

// killableTCP is plain TCP of one server that can be cut off as if its process
// had ended.
type killableTCP struct {
	tcp
	ln    net.Listener // held from the choice of its port on
	mu    sync.Mutex
	dead  bool
	close []func() error
}

func (k *killableTCP) keep(close func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return errors.Join(errors.New("process has ended"), close())
	}
	k.close = append(k.close, close)
	return nil
}

type killableListener struct {
	net.Listener
	k *killableTCP
}

func (k *killableTCP) Listen(string) (net.Listener, error) {
	return killableListener{k.ln, k}, k.keep(k.ln.Close)
}

func (l killableListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn, l.k.keep(conn.Close)
}

func (k *killableTCP) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := k.tcp.Dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	return conn, k.keep(conn.Close)
}

func (k *killableTCP) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = true
	for _, f := range k.close {
		_ = f()
	}
}

func TestNextLeaderOverTCP(t *testing.T) {
	// Waiting for the heartbeat timeout takes that long at least. A machine with
	// other work may take as long for once, not each time.
	const timeout = 2 * time.Second
	const limit = timeout * 9 / 10
	best := time.Hour
	for tries := 0; tries < 4 && best > limit; tries++ {
		best = min(best, nextLeaderOverTCP(t, timeout))
	}
	if best > limit {
		t.Errorf("the next write took %v", best)
	}
}

func nextLeaderOverTCP(t *testing.T, timeout time.Duration) time.Duration {
	var mu sync.Mutex
	networks := map[string]*killableTCP{}
	var ln net.Listener // of the server that is made next
	listen := func(int) string {
		var err error
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		return ln.Addr().String()
	}
	c := clusterAt(t, 3, listen, onDisk, func(s *server, c *Config) {
		mu.Lock()
		defer mu.Unlock()
		networks[s.id] = &killableTCP{ln: ln}
		c.Network, c.ElectionTimeout = networks[s.id], timeout
	})
	defer c.stopAll()
	old := c.leader()
	c.do(nudge())
	time.Sleep(200 * time.Millisecond) // connections of all kinds have been used
	networks[old.id].kill()
	took := c.nextWrite(old)
	t.Logf("the next write took %v", took)
	return took
}

// fakeFollowed is a server that follows b and has heard of it just now.
type fakeFollowed struct {
	mu     sync.Mutex
	leader raft.ServerID
	heard  time.Time
	voter  bool
	stood  int
}

func (g *fakeFollowed) following() (raft.ServerID, time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leader, g.heard, true
}

// hears sets whom it follows, and that it has heard of somebody now.
func (g *fakeFollowed) hears(leader raft.ServerID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leader, g.heard = leader, time.Now()
}

// follows sets whom it follows.
func (g *fakeFollowed) follows(leader raft.ServerID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leader = leader
}

func (g *fakeFollowed) lastIndex() uint64 { return 7 }

func (g *fakeFollowed) stand(context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stood++
}

func (g *fakeFollowed) configuration() raft.Configuration {
	conf := raft.Configuration{Servers: []raft.Server{{ID: "a"}, {ID: "b"}, {ID: "c"}}}
	if !g.voter {
		conf.Servers[2].Suffrage = raft.Nonvoter
	}
	return conf
}

func TestFailoverStandsOnlyWhenItMust(t *testing.T) {
	for name, test := range map[string]struct {
		during func(f *failover, g *fakeFollowed, looked int) // when the leader is dialled
		refuse []bool
		stands bool
	}{
		"refused twice":              {refuse: []bool{true, true}, stands: true},
		"not refused":                {refuse: make([]bool, portLooks)},
		"its port is closed late":    {refuse: []bool{false, false, true, true}, stands: true},
		"open again":                 {refuse: []bool{false, true, false}},
		"refused once":               {refuse: []bool{true, false}},
		"has no vote":                {refuse: nil, during: nil},
		"heard of the leader since":  {refuse: []bool{true, true}, during: func(_ *failover, g *fakeFollowed, n int) { time.Sleep(time.Nanosecond); g.hears("b") }},
		"there is another leader":    {refuse: []bool{true, true}, during: func(_ *failover, g *fakeFollowed, n int) { g.follows("a") }},
		"lost the leader from sight": {refuse: []bool{true, true}, during: func(_ *failover, g *fakeFollowed, n int) { g.follows("") }, stands: true},
		"the last word came late": {refuse: []bool{true, true}, stands: true, during: func(f *failover, g *fakeFollowed, n int) {
			if n == 0 {
				time.Sleep(time.Nanosecond)
				g.hears("b")
				time.Sleep(time.Nanosecond)
				f.lost("b") // another connection ends after it
			}
		}},
		"its vote is on its way to the disk": {refuse: []bool{true, true}, during: func(f *failover, g *fakeFollowed, n int) {
			if n == 1 {
				g.follows("")
				f.candidate(7)
				time.AfterFunc(100*time.Millisecond, func() { g.hears("") })
			}
		}},
		"it is asked by one that is behind": {refuse: []bool{true, true}, stands: true, during: func(f *failover, g *fakeFollowed, n int) { f.candidate(6) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &fakeFollowed{leader: "b", heard: time.Now(), voter: name != "has no vote"}
				looked := 0
				f := &failover{self: "c", timeout: 500 * time.Millisecond, log: slog.New(slog.DiscardHandler), group: g, ctx: t.Context(), slow: func() time.Duration { return 0 }}
				f.refused = func(raft.Server) bool {
					if test.during != nil {
						test.during(f, g, looked)
					}
					looked++
					return test.refuse[looked-1]
				}
				time.Sleep(time.Millisecond)
				f.lost("b")
				time.Sleep(time.Second)
				f.wait()
				if g.stood > 0 != test.stands || g.stood > 1 || looked != len(test.refuse) {
					t.Errorf("stood %d times after %d looks", g.stood, looked)
				}
			})
		})
	}
}
