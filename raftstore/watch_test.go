package raftstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestWatchResumesOverALeaderChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		c.keyspace("orders", 8, testTTL)
		var cluster string
		c.leader().store.View(func(st *state.State) { cluster = st.ClusterID() })
		seen := map[string]bool{}
		var after uint64
		for round := range 5 {
			l := c.leader()
			w := l.store.Watch(cluster, after)
			c.do(mark(fmt.Sprintf("a%d", round)))
			for !seen[fmt.Sprintf("a%d", round)] {
				events, err := w.Next(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range events {
					if e.Revision != after+1 {
						t.Fatalf("event %d after %d", e.Revision, after)
					}
					after = e.Revision
					if e.Kind == state.KindKeyspaceCreate {
						l.store.View(func(st *state.State) {
							if k, ok := st.Keyspace(e.Keyspace); ok {
								seen[k.Name] = true
							}
						})
					}
				}
			}
			w.Stop()
			c.do(mark(fmt.Sprintf("b%d", round))) // nobody watches
			if err := l.store.TransferLeadership(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for round := range 4 {
			if !seen[fmt.Sprintf("b%d", round)] {
				t.Errorf("event of round %d is missing", round)
			}
		}
	})
}

func TestSlowWatcherIsToldWhereToGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stopAll()
		c.keyspace("orders", 1<<16, testTTL)
		c.session(1, "orders")
		s := c.leader().store
		w := s.Watch("", 1)
		defer w.Stop()
		var err error
		for p := uint32(0); err == nil && p < 1<<16; p += 5000 {
			g := &state.Grant{Term: s.Term(), Keyspace: 1}
			for i := range uint32(5000) {
				if p+i < 1<<16 {
					g.Items = append(g.Items, state.GrantItem{Partition: p + i, Session: 1})
				}
			}
			c.do(g)
		}
		_, err = w.Next(t.Context(), nil)
		var refusal *state.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != state.ReasonCompacted || refusal.Revision == 0 {
			t.Fatalf("a reader that is 65,536 events behind: %v", err)
		}
		again := s.Watch("", refusal.Revision)
		defer again.Stop()
		if events, err := again.Next(t.Context(), nil); err != nil || events[0].Revision != refusal.Revision+1 {
			t.Errorf("from revision %d: %v", refusal.Revision, err)
		}
		other := s.Watch("another", 1)
		defer other.Stop()
		if _, err := other.Next(t.Context(), nil); state.ReasonOf(err) != state.ReasonCompacted {
			t.Errorf("a revision of another cluster: %v", err)
		}
	})
}

func TestWatcherWaitsAndEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stopAll()
		s := c.leader().store
		var rev uint64
		s.View(func(st *state.State) { rev = st.Revision() })
		w := s.Watch("", rev)
		defer w.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if _, err := w.Next(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) < time.Hour {
			t.Errorf("nothing happened for %v: %v", time.Since(start), err)
		}
	})
}
