package server

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// The leader looks when its term begins, not at its next tick: a client that
// comes with a fresh cluster can write keys. A busy machine may need a second
// cluster to show it.
func TestFreshClusterIsAtItsLevelAtOnce(t *testing.T) {
	var took time.Duration
	for range 4 {
		if took = timeToLevel(t); took < featureInterval {
			return
		}
	}
	t.Errorf("the level was raised %s after the leader came", took)
}

// timeToLevel forms a cluster and returns how long after its leader came the
// level was raised.
func timeToLevel(t *testing.T) time.Duration {
	t.Helper()
	c := newCluster(t, 3)
	defer c.stopAll()
	c.startAll()
	at := c.leader()
	eventually(t, 20*time.Second, "keys are known", func() bool {
		level := state.Feature(0)
		c.running[at].store.View(func(s *state.State) { level = s.Feature() })
		return level == state.MaxFeature
	})
	var led, raised int64
	c.running[at].store.View(func(s *state.State) {
		events, err := s.Events(0, state.LedgerSize, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			switch e.Kind {
			case state.KindLeader:
				if raised == 0 {
					led = e.Wall
				}
			case state.KindFeatureRaise:
				raised = e.Wall
			}
		}
	})
	if led == 0 || raised == 0 {
		t.Fatalf("the leader came at %d, the level was raised at %d", led, raised)
	}
	return time.Duration(raised-led) * time.Millisecond
}

// A lease of keys is a session, and counted as a worker nowhere.
func TestLeaseOfKeysIsNoWorker(t *testing.T) {
	c := newCluster(t, 1)
	c.startAll()
	cl, store := c.client(), c.running[c.leader()].store
	createKeyspace(t, cl, "orders", 8, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	crew := newCrew(t, c.servers())
	crew.join("w1", "orders")
	put := &mvcc.PutOp{Key: []byte("k"), Lease: 77}
	eventually(t, 20*time.Second, "keys are known", func() bool {
		r, err := store.Propose(t.Context(),
			&state.GrantLease{Session: 77, TTL: state.MaxLeaseTTL}, &state.GrantLease{Session: 78, TTL: 2},
			&state.Transact{Txn: mvcc.Txn{Success: []mvcc.Op{{Put: put}}}})
		if err != nil {
			t.Fatal(err)
		}
		return r[0].Err == nil && r[1].Err == nil && r[2].Err == nil
	})
	if k, err := store.KeepAlive(t.Context(), 77); err != nil || k.TTL != state.MaxLeaseTTL*time.Second {
		t.Errorf("renewed for %s, %v", k.TTL, err)
	}
	eventually(t, 20*time.Second, "w1 holds all", func() bool { return crew.held("w1") == 8 })
	ws, err := cl.Workers().ListWorkers(t.Context(), &leaseholdv1.ListWorkersRequest{})
	if err != nil || len(ws.GetItems()) != 1 || ws.GetItems()[0].GetId() != "w1" {
		t.Errorf("workers: %v, %v", ws.GetItems(), err)
	}
	if st := c.status(0); st.GetSessions() != 1 || st.GetWorkers() != 1 {
		t.Errorf("status counts %d sessions of %d workers", st.GetSessions(), st.GetWorkers())
	}
	eventually(t, 20*time.Second, "metrics count one session", func() bool {
		return strings.Contains(c.metrics(0), `leasehold_sessions{state="active"} 1`+"\n")
	})
	// The short one goes when its time is over, the long one's keeps.
	eventually(t, 20*time.Second, "one lease has run out", func() (gone bool) {
		store.View(func(s *state.State) {
			_, short := s.Session(78)
			_, long := s.Session(77)
			gone = !short
			if !long || s.Keys().Get([]byte("k")) == nil {
				t.Error("a lease of 285 years has run out")
			}
		})
		return gone
	})
	for _, e := range c.eventsAfter(cl, 0) {
		if id := e.GetSessionId(); id == 77 || id == 78 {
			t.Errorf("an event of ownership: %v", e)
		}
	}
}
