package raftstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// O-42: one of three has lost its data. It counts for nothing until it has been
// added again.
func TestO42WipedServerIsAStrangerUntilItIsAdded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		for i := range 200 {
			c.do(mark(fmt.Sprint("m", i)))
		}
		s := c.follower()
		before := s.peer()
		s.wipe()
		s.start()
		if s.peer().Store == before.Store || s.store.Self().ID != before.ID {
			t.Fatalf("after the wipe it is %v, before %v", s.peer(), before)
		}
		l := c.leader()
		term := l.store.Term()
		time.Sleep(10 * time.Second)
		if st := s.store.Status(); s.store.HasState() || len(st.Peers) != 0 || st.Removed {
			t.Errorf("it has taken something in: %+v", st)
		}
		if st := l.store.Status(); !strings.Contains(st.Refused, "server "+s.id+" has another data directory now") {
			t.Errorf("the leader says %q", st.Refused)
		}
		c.do(mark("meanwhile"))
		if got := c.leader().store.Term(); got != term {
			t.Errorf("term %d, before %d", got, term)
		}

		c.change("add", func(ctx context.Context, at *Store) error { return at.AddPeer(ctx, s.peer()) })
		c.replace(s, before)
		if st := c.leader().store.Status(); st.Refused != "" || len(st.Peers) != 3 {
			t.Errorf("afterwards: %+v", st)
		}
		// Now it counts: it and one other are a majority, and have everything.
		c.leader().crash()
		c.do(mark("afterwards"))
		c.within(time.Second, "everything on it", func() (ok bool) {
			s.store.View(func(st *state.State) {
				ok = marked(st, "m0") && marked(st, "m199") && marked(st, "meanwhile") && marked(st, "afterwards")
			})
			return ok
		})
	})
}

// replace promotes a server that has been added, in the place of another.
func (c *cluster) replace(s *server, old Peer) {
	c.t.Helper()
	c.within(20*time.Second, "server that has caught up", func() bool {
		return s.store.appliedIndex.Load() == c.leader().store.appliedIndex.Load()
	})
	c.change("remove", func(ctx context.Context, at *Store) error { return at.RemovePeer(ctx, old) })
	time.Sleep(time.Second)
	c.change("promote", func(ctx context.Context, at *Store) error { return at.PromotePeer(ctx, s.peer()) })
}

// O-42: with two of three wiped there is no majority of those who know, and
// nobody is elected, however long they try.
func TestO42TwoWipedServersElectNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		c.do(mark("x"))
		l := c.leader()
		for _, s := range c.servers {
			if s != l {
				s.wipe()
			}
		}
		for _, s := range c.servers {
			if s != l {
				s.start()
			}
		}
		c.within(5*time.Second, "end of the leadership", func() bool { return !l.store.IsLeader() })
		c.noLeader(time.Minute)
		if n := len(strings.Split(l.store.Status().Refused, ";")); n != 2 {
			t.Errorf("the survivor says %q", l.store.Status().Refused)
		}
	})
}

// O-42: the leader and the server that has its last entries with it are gone,
// and the latter comes back empty in the middle of the election. Were it taken
// for its former self, it would elect the one that is behind.
func TestO42WipedDuringAnElectionNoCommittedEntryDisappears(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		c.do(mark("x"))
		l := c.leader()
		var with, behind *server
		for _, s := range c.servers {
			switch {
			case s == l:
			case with == nil:
				with = s
			default:
				behind = s
			}
		}
		c.net.isolate(behind.addr, true)
		c.do(mark("y")) // on two of three
		l.crash()
		with.crash()
		c.net.isolate(behind.addr, false) // stands for election from now on
		time.Sleep(time.Second)
		with.wipe()
		with.start()
		c.noLeader(time.Minute)
		l.start()
		c.within(30*time.Second, "leader with everything", func() (ok bool) {
			if !l.store.IsLeader() && !behind.store.IsLeader() {
				return false
			}
			l.store.View(func(st *state.State) { ok = marked(st, "y") })
			behind.store.View(func(st *state.State) { ok = ok && marked(st, "y") })
			return ok
		})
	})
}

// The vote lies in the log's directory. Without it, a server must not go on
// under the name that it voted with.
func TestO42WipedLogAloneIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		c.do(mark("x"))
		s := c.follower()
		c.within(time.Second, "cluster id", func() bool { return s.store.ClusterID() != "" })
		cluster := s.store.ClusterID()
		s.crash()
		for _, name := range []string{"log", "snapshots"} {
			if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := New(s.config()); !errors.Is(err, ErrCorrupt) || !strings.Contains(fmt.Sprint(err), cluster) {
			t.Errorf("opened: %v", err)
		}
		if got := StoredClusterID(s.dir); got != cluster {
			t.Errorf("the directory belongs to cluster %q, want %q", got, cluster)
		}
	})
}

// O-43: who has state is not bootstrapped again, whatever asks for it.
func TestO43BootstrapOptionLeftOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		c.do(mark("x"))
		cluster, term := c.leader().store.ClusterID(), c.leader().store.Term()
		again := func(s *server) {
			t.Helper()
			s.c.net.isolate(s.addr, false)
			s.open()
			if err := s.store.Bootstrap(c.peers()); !errors.Is(err, ErrHasState) {
				t.Errorf("%s, before Run: %v", s.id, err)
			}
			s.run()
			if err := s.store.Bootstrap(c.peers()); !errors.Is(err, ErrHasState) {
				t.Errorf("%s, while running: %v", s.id, err)
			}
		}
		for n := 1; n <= 3; n++ {
			for _, s := range c.servers[:n] {
				s.crash()
			}
			for _, s := range c.servers[:n] {
				again(s)
			}
			c.do(mark(fmt.Sprint("round", n)))
		}
		// The others cannot be reached.
		s := c.servers[0]
		s.crash()
		c.servers[1].crash()
		c.servers[2].crash()
		again(s)
		c.noLeader(30 * time.Second)
		c.servers[1].start()
		c.servers[2].start()
		c.do(mark("end"))
		c.hasAll("x", "round1", "round2", "round3", "end")
		for _, s := range c.servers {
			if s.store.ClusterID() != cluster || s.store.Term() <= term {
				t.Errorf("%s: cluster %q, term %d; before %q, %d", s.id, s.store.ClusterID(), s.store.Term(), cluster, term)
			}
		}
	})
}

// O-44: neither takes the other in, by whatever way they meet.
func TestO44TwoClustersWithHistoriesRefuseEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newCluster(t, 1, onDisk)
		defer a.stopAll()
		b := &cluster{t: t, net: a.net}
		other := b.newServer("10.0.1.1:7401", onDisk)
		other.id = "b1"
		other.open()
		if err := other.store.Bootstrap(b.peers()); err != nil {
			t.Fatal(err)
		}
		other.run()
		defer b.stopAll()
		a.do(mark("x"))
		b.do(mark("y"))
		one := a.leader()
		ids := []string{one.store.ClusterID(), other.store.ClusterID()}
		names := func(what, text string) {
			t.Helper()
			if !strings.Contains(text, ids[0]) || !strings.Contains(text, ids[1]) {
				t.Errorf("%s: %q does not name clusters %s and %s", what, text, ids[0], ids[1])
			}
		}
		var refused *PeerError
		err := one.store.AddPeer(t.Context(), other.peer())
		if !errors.As(err, &refused) {
			t.Errorf("added a server of another cluster: %v", err)
		}
		names("add", fmt.Sprint(err))
		names("the other way", fmt.Sprint(other.store.AddPeer(t.Context(), one.peer())))

		// It did not run when it was added: then it refuses when it is called.
		other.crash()
		if err := one.store.AddPeer(t.Context(), other.peer()); err != nil {
			t.Fatal(err)
		}
		other.start()
		b.leader()
		a.within(10*time.Second, "refusal", func() bool { return one.store.Status().Refused != "" })
		names("status", one.store.Status().Refused)
		time.Sleep(time.Minute)
		a.do(mark("x2"))
		b.do(mark("y2"))
		one.store.View(func(st *state.State) {
			if marked(st, "y") || !marked(st, "x") || st.ClusterID() != ids[0] {
				t.Error("the first cluster has changed")
			}
		})
		other.store.View(func(st *state.State) {
			if marked(st, "x") || !marked(st, "y") || st.ClusterID() != ids[1] {
				t.Error("the second cluster has changed")
			}
		})
		if err := one.store.RemovePeer(t.Context(), other.peer()); err != nil {
			t.Errorf("remove it again: %v", err)
		}
	})
}

// Two servers run under one name. Only the one whose data directory is in the
// configuration is heard, wherever the name leads.
func TestTwoServersUnderOneName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, byGossip)
		defer c.stopAll()
		c.do(mark("x"))
		f := c.follower()
		twin := c.newServer("10.0.0.66:7401", onDisk, byGossip)
		twin.id = f.id
		twin.open()
		c.gossip.Store(f.peer().raftID(), twin.addr) // and everyone is sent there
		twin.run()
		term := c.leader().store.Term()
		for range 30 {
			c.do(nudge())
			time.Sleep(time.Second)
		}
		if got := c.leader().store.Term(); got != term {
			t.Errorf("term %d, before %d", got, term)
		}
		if twin.store.HasState() {
			t.Error("the twin has been sent the log")
		}
		f.crash()
		f.start()
		c.gossip.Store(f.peer().raftID(), twin.addr)
		c.do(mark("y"))
		c.within(10*time.Second, "the entry on the real one", func() (ok bool) {
			f.store.View(func(st *state.State) { ok = marked(st, "y") })
			return ok
		})
	})
}

func TestStoreIDBelongsToTheDirectory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		defer c.stopAll()
		c.do(mark("x"))
		s := c.servers[0]
		self, cluster := s.store.Self(), s.store.ClusterID()
		if len(self.Store) != 12 || self.ID != s.id || self.RaftAddr != s.addr || cluster == "" {
			t.Errorf("it is %+v of cluster %q", self, cluster)
		}
		s.crash()
		s.start()
		if s.store.Self().Store != self.Store || s.store.ClusterID() != cluster {
			t.Errorf("after a restart %v of cluster %q, before %v of %q", s.store.Self(), s.store.ClusterID(), self, cluster)
		}
		c.leader()
		s.crash()
		for name, content := range map[string]string{"store-id": "abc\n", "cluster-id": "of another cluster\n"} {
			path := filepath.Join(s.dir, name)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			store, err := New(s.config())
			if err == nil { // it tells when the log has been read
				err = store.Run(t.Context())
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("with another %s: %v", name, err)
			}
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.start()
	})
}
