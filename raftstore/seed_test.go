package raftstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// saved is the state of a cluster that was, ready for a new one.
func saved(t *testing.T, s *server) *state.State {
	t.Helper()
	v, err := ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.State.Rebase(state.Rebase{ClusterID: NewClusterID(), Index: v.Index + 1, Term: v.Term + 1, First: FirstToken(testWall())}); err != nil {
		t.Fatal(err)
	}
	return v.State
}

// A seeded directory is one that New opens, with the state of before, higher
// tokens and a log that goes on; another server can be added to it.
func TestSeededServerGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		orders := c.keyspace("orders", 8, testTTL)
		c.session(1, "orders")
		rs := c.do(&state.Grant{Term: c.leader().store.Term(), Keyspace: orders, Cause: state.CauseInitial, Items: []state.GrantItem{{Partition: 3, Session: 1}}})
		before, old := rs[0].Tokens[0], c.servers[0].store.ClusterID()
		if err := c.servers[0].halt(); err != nil {
			t.Fatal(err)
		}
		st := saved(t, c.servers[0])
		index, term := st.Applied()
		id := st.ClusterID()
		dir := filepath.Join(t.TempDir(), "new")
		self, err := (&Seed{Dir: dir, ServerID: "n1", RaftAddr: "10.0.1.1:7401", State: st}).Write()
		if err != nil {
			t.Fatal(err)
		}

		n1 := &server{c: c, id: "n1", addr: "10.0.1.1:7401", dir: dir}
		n1.conf = func(conf *Config) { conf.Dir = n1.dir }
		n2 := &server{c: c, id: "n2", addr: "10.0.1.2:7401", dir: filepath.Join(t.TempDir(), "n2")}
		n2.conf = func(conf *Config) { conf.Dir = n2.dir }
		c.servers = []*server{n1, n2}
		defer c.stopAll()
		n2.open()
		n2.run()
		n1.open()
		if got := n1.store.Self(); got.String() != self.String() || !n1.store.HasState() {
			t.Errorf("opened as %+v, seeded as %+v", got, self)
		}
		begun := time.Now()
		n1.run()
		c.leader()
		if got := n1.store.ClusterID(); got != id || got == old {
			t.Errorf("cluster %s, want the new one %s; the old was %s", got, id, old)
		}
		if n1.store.Term() <= term {
			t.Errorf("term %d is not above %d", n1.store.Term(), term)
		}
		grant := func(session state.SessionID) (state.Token, error) {
			r, err := n1.store.Propose(t.Context(), openSession(session, "orders"),
				&state.Grant{Term: n1.store.Term(), Keyspace: orders, Cause: state.CauseInitial, Items: []state.GrantItem{{Partition: 3, LastToken: before, Session: session}}})
			if err != nil {
				return 0, err
			}
			if r[1].Err != nil {
				return 0, r[1].Err
			}
			return r[1].Tokens[0], nil
		}
		if _, err := grant(2); state.ReasonOf(err) != state.ReasonRestored {
			t.Errorf("granted while old leases may be believed in: %v", err)
		}
		c.within(testTTL+3*time.Second, "end of the hold", func() bool {
			held := true
			n1.store.View(func(st *state.State) { held = st.StrictHold() > 0 })
			return !held
		})
		if took := time.Since(begun); took < testTTL {
			t.Errorf("the hold was over after %v, the TTL is %v", took, testTTL)
		}
		token, err := grant(3)
		if err != nil || token <= before {
			t.Errorf("granted token %d after %d: %v", token, before, err)
		}
		if err := n1.store.AddPeer(t.Context(), n2.store.Self()); err != nil {
			t.Fatal(err)
		}
		c.within(30*time.Second, "copy on the second server", func() bool {
			ok := false
			n2.store.View(func(st *state.State) { at, _ := st.Applied(); ok = at > index && st.ClusterID() == id })
			return ok
		})
		c.check()
		if err := n1.halt(); err != nil {
			t.Fatal(err)
		}
		n1.start()
		c.leader()
		var last state.Token
		n1.store.View(func(st *state.State) { last = st.LastToken() })
		if last < token {
			t.Errorf("token %d after a restart, %d was granted", last, token)
		}
	})
}

// The hold runs also while nobody is there: its end does not wait for a worker.
func TestHoldEndsWithoutSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		c.keyspace("orders", 8, testTTL)
		if err := c.servers[0].halt(); err != nil {
			t.Fatal(err)
		}
		st := saved(t, c.servers[0])
		s := c.servers[0]
		s.dir = filepath.Join(t.TempDir(), "new")
		if _, err := (&Seed{Dir: s.dir, ServerID: s.id, RaftAddr: s.addr, State: st}).Write(); err != nil {
			t.Fatal(err)
		}
		s.start()
		defer c.stopAll()
		c.leader()
		time.Sleep(testTTL + 3*time.Second)
		s.store.View(func(st *state.State) {
			if left := st.StrictHold(); left > 0 {
				t.Errorf("%v are left of a hold of %v that began %v ago", left, testTTL, testTTL+3*time.Second)
			}
		})
	})
}

func TestSeedRefusesADirectoryWithSomethingInIt(t *testing.T) {
	s := written(t, 3)
	st := saved(t, s)
	for _, dir := range []string{s.dir, filepath.Dir(s.dir)} {
		_, err := (&Seed{Dir: dir, ServerID: "n1", RaftAddr: "10.0.1.1:7401", State: st}).Write()
		var full *NotEmptyError
		if !errors.As(err, &full) || full.Dir != dir {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := reopen(t, s); err != nil {
		t.Errorf("the refused directory was damaged: %v", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Seed{Dir: dir, ServerID: "n1", RaftAddr: "10.0.1.1:7401", State: st}).Write(); err != nil {
		t.Errorf("an empty file system: %v", err)
	}
}

// Power loss in the middle of a restore: nothing opens what is left.
func TestUnfinishedSeedIsRefused(t *testing.T) {
	s := written(t, 3)
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := (&Seed{Dir: dir, ServerID: s.id, RaftAddr: s.addr, State: saved(t, s)}).Write(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, unfinished), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.dir = dir
	if _, err := New(s.config()); !errors.Is(err, ErrUnfinished) {
		t.Errorf("opened: %v", err)
	}
	if _, err := ReadDir(dir); !errors.Is(err, ErrUnfinished) {
		t.Errorf("read: %v", err)
	}
}
