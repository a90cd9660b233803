package raftstore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// join starts a server that nobody knows yet.
func (c *cluster) join(addr string, opts ...option) *server {
	c.t.Helper()
	s := c.newServer(addr, opts...)
	s.open()
	s.run()
	return s
}

// changes counts how often servers heard of another leader.
type changes struct {
	noObserver
	n atomic.Int64
}

func (c *changes) LeaderChange() { c.n.Add(1) }

func (c *changes) option(_ *server, conf *Config) { conf.Metrics = c }

// O-47: a server that was removed goes on running, as long as it likes.
func TestO47RemovedServerLeftRunning(t *testing.T) {
	// How much it has heard of its removal.
	for name, story := range map[string]struct {
		before, after func(c *cluster, s *server)
	}{
		"it was told": {},
		"it was cut off then": {
			before: func(c *cluster, s *server) { c.net.isolate(s.addr, true) },
			after: func(c *cluster, s *server) {
				time.Sleep(20 * time.Second)
				c.net.isolate(s.addr, false)
			},
		},
		"it was down then": {
			before: func(_ *cluster, s *server) { s.crash() },
			after:  func(_ *cluster, s *server) { s.start() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var heard changes
				c := newCluster(t, 3, onDisk, heard.option)
				defer c.stopAll()
				c.do(mark("x"))
				s := c.follower()
				if story.before != nil {
					story.before(c, s)
				}
				removed := s.peer()
				c.change("remove", func(ctx context.Context, at *Store) error { return at.RemovePeer(ctx, removed) })
				if story.after != nil {
					story.after(c, s)
				}
				quiet := func(what string) {
					t.Helper()
					c.within(15*time.Second, "word of its removal: "+what, func() bool { return s.store.Status().Removed })
					l := c.leader()
					term, own, n := l.store.Term(), s.store.Term(), heard.n.Load()
					for range 300 {
						c.do(nudge())
						time.Sleep(time.Second)
					}
					if got := l.store.Term(); c.leader() != l || got != term {
						t.Errorf("%s: term %d, before %d", what, got, term)
					}
					if got := s.store.Term(); got != own {
						t.Errorf("%s: its own term went from %d to %d", what, own, got)
					}
					if got := heard.n.Load(); got != n {
						t.Errorf("%s: %d leader changes", what, got-n)
					}
					if st := s.store.Status(); !st.Removed || st.State == "leader" {
						t.Errorf("%s: it says %+v", what, st)
					}
				}
				quiet("left running")
				s.crash()
				s.addr = "10.0.0.33:7401" // and another host name
				s.start()
				quiet("after a restart")
				// It can be had back.
				c.change("add", func(ctx context.Context, at *Store) error { return at.AddPeer(ctx, s.peer()) })
				c.do(mark("y"))
				c.hasAll("x", "y")
				if s.store.Status().Removed {
					t.Error("it is back, and says that it is removed")
				}
			})
		})
	}
}

// O-47: it stood still while it was removed, and nothing has broken the
// connections that it had before: it has to ask why nobody votes for it.
func TestO47ServerThatGetsNoVoteAsksWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		c.do(mark("x"))
		s, to := c.follower(), c.leader().peer()
		ask := func() {
			t.Helper()
			var resp raft.RequestPreVoteResponse
			req := &raft.RequestPreVoteRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(s.peer().raftID()), Addr: []byte(s.peer().raftID())},
				Term:      s.store.Term() + 1,
			}
			if err := s.store.transport.RequestPreVote(to.raftID(), to.raftAddress(), req, &resp); err != nil || resp.Granted {
				t.Errorf("granted %v, %v", resp.Granted, err)
			}
		}
		ask()
		time.Sleep(2 * askEvery)
		removed := s.peer()
		c.change("remove", func(ctx context.Context, at *Store) error { return at.RemovePeer(ctx, removed) })
		if s.store.greeter.outdated.Load() != 0 {
			t.Fatal("it has been told already")
		}
		ask()
		if _, index := c.leader().store.members.committed(); s.store.greeter.outdated.Load() != index {
			t.Errorf("it was told of configuration %d, the newest is %d", s.store.greeter.outdated.Load(), index)
		}
	})
}

// O-48: a cluster of one is not locked by a second server that never starts.
func TestO48AddedServerThatNeverStartsLocksNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stopAll()
		c.leader()
		dead := Peer{ID: "s2", Store: "0123456789ab", RaftAddr: "127.0.0.1:1"}
		c.deadPeers(dead)
		c = newCluster(t, 3)
		defer c.stopAll()
		c.leader()
		c.deadPeers(Peer{ID: "s4", Store: "0123456789ab", RaftAddr: "127.0.0.1:1"}, Peer{ID: "s5", Store: "0123456789ab", RaftAddr: "127.0.0.1:2"})
	})
}

func (c *cluster) deadPeers(dead ...Peer) {
	c.t.Helper()
	t, n := c.t, len(c.servers)
	l := c.leader().store
	for _, p := range dead {
		if err := l.AddPeer(context.Background(), p); err != nil {
			t.Fatal(err)
		}
		if err := l.AddPeer(context.Background(), p); err != nil {
			t.Errorf("added twice: %v", err)
		}
	}
	term := l.Term()
	for range 20 {
		start := time.Now()
		c.do(nudge())
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("a write took %v", took)
		}
		time.Sleep(time.Second)
	}
	if l.Term() != term || len(l.Status().Peers) != n+len(dead) {
		t.Errorf("term %d, before %d; %+v", l.Term(), term, l.Status().Peers)
	}
	for _, p := range dead {
		var refused *PeerError
		if err := l.PromotePeer(context.Background(), p); !errors.As(err, &refused) || !strings.Contains(err.Error(), "not answered") {
			t.Errorf("promoted: %v", err)
		}
		if err := l.RemovePeer(context.Background(), p); err != nil {
			t.Error(err)
		}
		if err := l.RemovePeer(context.Background(), p); !errors.As(err, &refused) {
			t.Errorf("removed twice: %v", err)
		}
	}
	if got := len(l.Status().Peers); got != n {
		t.Errorf("%d servers are left of %d", got, n)
	}
}

func TestFreshServerCausesNoElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var heard changes
		c := newCluster(t, 3, onDisk, heard.option, func(_ *server, c *Config) {
			c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 8, 4, time.Second
		})
		defer c.stopAll()
		for range 30 {
			c.do(nudge())
		}
		time.Sleep(5 * time.Second)
		l := c.leader()
		term, n := l.store.Term(), heard.n.Load()
		fresh := c.join("10.0.0.4:7401", onDisk)
		same := func(what string) {
			t.Helper()
			for range 20 {
				c.do(nudge())
				time.Sleep(500 * time.Millisecond)
			}
			if got := l.store.Term(); got != term || heard.n.Load() != n {
				t.Errorf("%s: term %d, before %d; %d leader changes", what, got, term, heard.n.Load()-n)
			}
		}
		same("waiting")
		if fresh.store.HasState() || fresh.store.Status().Removed {
			t.Error("a server that was not added has state, or says that it was removed")
		}
		if err := l.store.AddPeer(t.Context(), fresh.peer()); err != nil {
			t.Fatal(err)
		}
		same("non-voter")
		for _, p := range l.store.Status().Peers {
			if p.ID == fresh.id && (p.Voter || p.LastIndex != l.store.Status().LastIndex) {
				t.Errorf("%+v", p)
			}
		}
		fresh.crash()
		same("non-voter that is away")
		fresh.start()
		same("non-voter that is back")
		if err := l.store.PromotePeer(t.Context(), fresh.peer()); err != nil {
			t.Fatal(err)
		}
		same("voter")
		fresh.crash()
		fresh.start()
		same("voter that is back")
		if fresh.store.Status().Removed {
			t.Error("it says that it was removed")
		}
	})
}

func TestServerThatIsBehindIsNotPromoted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		defer c.stopAll()
		l := c.leader()
		for range 500 {
			c.do(nudge())
		}
		fresh := c.join("10.0.0.2:7401", onDisk)
		c.net.slow(fresh.addr, 100*time.Millisecond) // eight rounds of 64 entries
		if err := l.store.AddPeer(t.Context(), fresh.peer()); err != nil {
			t.Fatal(err)
		}
		var refused *PeerError
		behind := false
		c.within(time.Minute, "promotion", func() bool {
			err := l.store.PromotePeer(t.Context(), fresh.peer())
			if err == nil {
				return true
			}
			if !errors.As(err, &refused) {
				t.Fatal(err)
			}
			behind = behind || strings.Contains(refused.Reason, "log entries behind")
			return false
		})
		if !behind {
			t.Error("it was never refused for being behind")
		}
		if got, want := fresh.store.running().LastIndex()+maxAppendEntries, l.store.running().CommitIndex(); got < want {
			t.Errorf("promoted with %d of %d entries", got-maxAppendEntries, want)
		}
		c.net.slow(fresh.addr, 0)
		c.do(mark("x"))
		c.hasAll("x")
	})
}

func TestChangesThatWouldCostTheQuorumAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		l := c.leader()
		var refused *PeerError
		if err := l.store.RemovePeer(t.Context(), l.peer()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "transfer first") {
			t.Errorf("the leader removed itself: %v", err)
		}
		f := c.follower()
		var not *NotLeaderError
		if err := f.store.AddPeer(t.Context(), f.peer()); !errors.As(err, &not) || not.LeaderID != l.id {
			t.Errorf("changed at a follower: %v", err)
		}
		time.Sleep(time.Second)
		c.net.isolate(f.addr, true)
		time.Sleep(5 * time.Second)
		for _, s := range c.servers {
			if s == l || s == f {
				continue
			}
			if err := l.store.RemovePeer(t.Context(), s.peer()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "1 of the 2 voters") {
				t.Errorf("removed the last other server that answers: %v", err)
			}
		}
		gone := f.peer()
		if err := l.store.RemovePeer(t.Context(), Peer{ID: f.id, Store: "else", RaftAddr: f.addr}); !errors.As(err, &refused) {
			t.Errorf("removed another data directory than asked for: %v", err)
		}
		if err := l.store.RemovePeer(t.Context(), gone); err != nil {
			t.Errorf("remove the one that is gone: %v", err)
		}
		c.do(nudge())
	})
}

// Handing the leadership on is how a leader is removed.
func TestLeaderIsRemovedByTheNextOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		c.do(mark("x"))
		old, next := c.leader(), c.follower()
		var refused *PeerError
		if err := old.store.TransferLeadership(t.Context(), Peer{ID: next.id, Store: "else"}); !errors.As(err, &refused) {
			t.Errorf("handed on to another data directory: %v", err)
		}
		if err := old.store.TransferLeadership(t.Context(), next.peer()); err != nil {
			t.Fatal(err)
		}
		// At once: the next leader has hardly heard of the third server.
		c.change("remove", func(ctx context.Context, at *Store) error { return at.RemovePeer(ctx, old.peer()) })
		c.within(10*time.Second, "word of its removal", func() bool { return old.store.Status().Removed })
		c.do(mark("y"))
	})
}

// All ask for changes at once; each is made against the configuration that it
// was decided on, or not at all.
func TestChangesAreMadeOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		l := c.leader()
		const n = 10
		done := make(chan error, n)
		for i := range n {
			go func() {
				done <- l.store.AddPeer(t.Context(), Peer{ID: "x", Store: string(rune('a' + i)), RaftAddr: "127.0.0.1:1"})
			}()
		}
		added := 0
		for range n {
			if err := <-done; err == nil {
				added++
			} else if !strings.Contains(err.Error(), "configuration changed") {
				t.Error(err)
			}
		}
		if got := len(l.store.Status().Peers); got != 3+added || added == 0 {
			t.Errorf("%d servers after %d were added to three", got, added)
		}
	})
}

func TestProbeTellsThatTheMainLoopTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		l, f := c.leader(), c.follower()
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for _, s := range []*server{l, f} {
			if err := s.store.Probe(short); err != nil {
				t.Errorf("%s: %v", s.id, err)
			}
		}
		c.net.isolate(l.addr, true)
		for range 20 {
			if err := l.store.Probe(short); err != nil {
				t.Errorf("cut off: %v", err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		c.net.isolate(l.addr, false)
		if err := f.halt(); err != nil {
			t.Fatal(err)
		}
		if err := f.store.Probe(short); !errors.Is(err, ErrStopped) {
			t.Errorf("stopped: %v", err)
		}
	})
}

func TestProbeTellsThatTheMainLoopHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk, lossy, func(_ *server, c *Config) { c.HangBound, c.HangExit = time.Hour, 2*time.Hour })
		defer c.stopAll()
		s := c.leader()
		resume := s.vfs.hangSyncs()
		go func() { _, _ = s.store.Propose(context.Background(), nudge()) }()
		time.Sleep(time.Second)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := s.store.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("while the loop hangs: %v", err)
			}
			cancel()
		}
		resume()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := s.store.Probe(ctx); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
