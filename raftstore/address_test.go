package raftstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// O-40: all come back elsewhere, one even where another was.
func TestO40EveryServerGetsANewAddress(t *testing.T) {
	for name, addrs := range map[string][]string{
		"other ports":         {"10.0.0.1:9300", "10.0.0.2:9300", "10.0.0.3:9300"},
		"other hosts":         {"10.9.0.1:7401", "10.9.0.2:7401", "10.9.0.3:7401"},
		"each other's places": {"10.0.0.2:7401", "10.0.0.3:7401", "10.0.0.1:7401"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3, onDisk, byGossip)
				defer c.stopAll()
				for i := range 20 {
					c.do(mark(fmt.Sprint("before", i)))
				}
				cluster := c.leader().store.ClusterID()
				c.restartAll(addrs)
				start := time.Now()
				c.leader()
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("a leader took %v", took)
				} else {
					t.Logf("a leader after %v", took)
				}
				c.do(mark("after"))
				c.hasAll("before19", "after")
				for _, s := range c.servers {
					if got := s.store.ClusterID(); got != cluster {
						t.Errorf("%s belongs to cluster %q, before to %q", s.id, got, cluster)
					}
				}
				c.writeAddresses()
				// From here on the configuration alone is enough.
				c.gossip.Clear()
				c.restartAll(addrs)
				c.do(mark("again"))
				c.hasAll("before19", "after", "again")
			})
		})
	}
}

// restartAll kills all servers and starts them at other addresses.
func (c *cluster) restartAll(addrs []string) {
	c.t.Helper()
	for _, s := range c.servers {
		s.crash()
		c.net.isolate(s.addr, false)
	}
	for i, s := range c.servers {
		s.addr = addrs[i]
	}
	for _, s := range c.servers {
		s.start()
	}
}

// writeAddresses brings the configuration up to date, as the leader's duty does.
func (c *cluster) writeAddresses() {
	c.t.Helper()
	for _, s := range c.servers {
		c.change("move", func(ctx context.Context, at *Store) error { return at.MovePeer(ctx, s.peer()) })
	}
	for _, p := range c.leader().store.Status().Peers {
		if addr, _ := c.gossip.Load(p.raftID()); p.RaftAddr != addr || !p.Voter {
			c.t.Errorf("the configuration has %+v, it is at %v", p, addr)
		}
	}
}

// change makes a change of the group at the leader, wherever that is.
func (c *cluster) change(what string, f func(context.Context, *Store) error) {
	c.t.Helper()
	c.within(30*time.Second, what, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := f(ctx, c.leader().store)
		var refused *PeerError
		if errors.As(err, &refused) {
			c.t.Fatal(err)
		}
		return err == nil
	})
}

// hasAll checks that every server that runs gets to have those marks.
func (c *cluster) hasAll(names ...string) {
	c.t.Helper()
	for _, s := range c.servers {
		for _, name := range names {
			c.within(10*time.Second, name+" on "+s.id, func() (ok bool) {
				s.store.View(func(st *state.State) { ok = marked(st, name) })
				return ok
			})
		}
	}
}

// wipe stops a server and empties its data directory.
func (s *server) wipe() {
	s.c.t.Helper()
	s.crash()
	if err := os.RemoveAll(s.dir); err != nil {
		s.c.t.Fatal(err)
	}
}

// noLeader checks that nobody leads for a while.
func (c *cluster) noLeader(d time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, s := range c.servers {
			if !c.net.off(s.addr) && s.store.IsLeader() {
				c.t.Fatalf("%s leads in term %d", s.id, s.store.Term())
			}
		}
	}
}

// Raft remembers its vote by what the candidate calls its address. If that were
// the address, a candidate that comes up where the last one was, in the same
// term, would be given the vote without a look at its log.
func TestServersThatExchangeAddressesDoNotShareAVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		c.do(mark("x"))
		voter, others := c.servers[0], c.servers[1:]
		for _, s := range others {
			s.crash()
		}
		c.within(10*time.Second, "end of the leader's term", func() bool { return voter.store.leaderID() == "" })
		term := voter.store.Term() + 10
		vote := func(s *server, log uint64) (granted bool) {
			g := testGreeter(s.peer().raftID(), voter.store.ClusterID())
			g.log = testLogger(t)
			conf := s.config()
			conf.RaftAddr = "10.0.0.77:7401" // where the one was, the other is next
			conf.Network = c.net.at(conf.RaftAddr)
			tr, err := newTransport(&conf, voter.store.disk, g, newLogAdapter(testLogger(t), "raft"))
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			req := &raft.RequestVoteRequest{
				RPCHeader: raft.RPCHeader{
					ProtocolVersion: raft.ProtocolVersionMax,
					ID:              []byte(g.self), Addr: tr.EncodePeer(g.self, tr.LocalAddr()),
				},
				Term: term, LastLogIndex: log, LastLogTerm: term - 1,
			}
			var resp raft.RequestVoteResponse
			to := voter.peer()
			if err := tr.RequestVote(to.raftID(), to.raftAddress(), req, &resp); err != nil {
				t.Fatal(err)
			}
			return resp.Granted
		}
		if !vote(others[0], 1<<40) {
			t.Error("the first candidate got no vote")
		}
		if !vote(others[0], 1<<40) {
			t.Error("asked again, it got no vote")
		}
		if vote(others[1], 0) {
			t.Error("another candidate at the same address got a vote in the same term")
		}
	})
}
