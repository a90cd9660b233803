package raftstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// bubble runs f with fake time and ends a minute after it, so that whatever it
// left behind shows.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t)
		time.Sleep(time.Minute)
	})
}

func TestElectProposeReadOnThreeServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		l := c.leader()
		if took := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); took > 5*time.Second {
			t.Errorf("the first leader took %v", took)
		}
		ks := c.keyspace("orders", 8, testTTL)
		c.session(1, "orders")
		rs := c.do(&state.Grant{Term: l.store.Term(), Keyspace: ks, Cause: state.CauseInitial,
			Items: []state.GrantItem{{Partition: 3, Session: 1}}})
		if len(rs[0].Tokens) != 1 || rs[0].Tokens[0] <= FirstToken(testWall().Add(-48*time.Hour)) {
			t.Fatalf("tokens %v: not above the first of this cluster", rs[0].Tokens)
		}
		var seen state.Token
		if err := l.store.Read(context.Background(), func(st *state.State) {
			k, _ := st.Keyspace(ks)
			seen = k.Lease(3).Token
		}); err != nil || seen != rs[0].Tokens[0] {
			t.Fatalf("read token %d, %v; granted %d", seen, err, rs[0].Tokens[0])
		}
		for _, s := range c.servers {
			c.within(time.Second, "the grant on every server", func() (ok bool) {
				s.store.View(func(st *state.State) {
					k, found := st.Keyspace(ks)
					ok = found && k.Lease(3).Token == seen
				})
				return ok
			})
			if s == l {
				continue
			}
			var not *NotLeaderError
			if _, err := s.store.Propose(t.Context(), &state.Tick{}); !errors.As(err, &not) || not.LeaderID != l.id {
				t.Errorf("propose at a follower: %v", err)
			}
			if err := s.store.Read(t.Context(), func(*state.State) {}); !errors.As(err, &not) {
				t.Errorf("read at a follower: %v", err)
			}
			if _, err := s.store.KeepAlive(t.Context(), 1); !errors.As(err, &not) {
				t.Errorf("keep-alive at a follower: %v", err)
			}
		}
		c.check()
	})
}
