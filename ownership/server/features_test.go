package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestCommonFeature(t *testing.T) {
	levels := map[string]state.Feature{"s1": 3, "s2": 2, "s3": 4}
	known := func(p raftstore.Peer) state.Feature { return levels[p.ID] }
	peers := func(ids ...string) (out []raftstore.PeerStatus) {
		for _, id := range ids {
			out = append(out, raftstore.PeerStatus{Peer: raftstore.Peer{ID: id}})
		}
		return out
	}
	for _, c := range []struct {
		peers []raftstore.PeerStatus
		want  state.Feature
	}{
		{peers("s1", "s2", "s3"), 2},
		{peers("s1", "s3"), 3},
		{peers("s3"), 4},
		{peers("s1", "silent", "s3"), 0}, // nobody knows what it can read
		{nil, 0},
	} {
		if got := commonFeature(c.peers, known); got != c.want {
			t.Errorf("of %v: level %d, want %d", c.peers, got, c.want)
		}
	}
}

// TestFeatureLevelRisesWhenAllServersKnowIt upgrades a cluster server by
// server, and then starts an old one.
func TestFeatureLevelRisesWhenAllServersKnowIt(t *testing.T) {
	c := newCluster(t, 3)
	next := state.MaxFeature + 1
	c.configs[0].hooks.feature, c.configs[1].hooks.feature = next, next
	c.startAll()
	createKeyspace(t, c.client(), "orders", 8, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	crew := newCrew(t, c.servers())
	crew.join("w1", "orders")
	eventually(t, 20*time.Second, "w1 holds all", func() bool { return crew.held("w1") == 8 })
	level := func(i int) (f state.Feature) {
		c.running[i].store.View(func(st *state.State) { f = st.Feature() })
		return f
	}
	eventually(t, 20*time.Second, "all servers are at the level that all know", func() bool {
		return level(0) == state.MaxFeature && level(1) == state.MaxFeature && level(2) == state.MaxFeature
	})
	// Long enough for two looks of the leader.
	settled := time.Now().Add(2500 * time.Millisecond)
	eventually(t, 20*time.Second, "the leader has looked", func() bool { return time.Now().After(settled) })
	if got := level(c.leader()); got != state.MaxFeature {
		t.Fatalf("level %d with an old server in the group", got)
	}
	before := crew.tokens()

	c.stopServer(2)
	c.configs[2].hooks.feature = next
	c.start(2)
	eventually(t, 20*time.Second, "all servers are at the next level", func() bool {
		return level(0) == next && level(1) == next && level(2) == next
	})
	for p, token := range crew.tokens() {
		if before[p] != token {
			t.Errorf("partition %d moved in an upgrade: token %d, then %d", p, before[p], token)
		}
	}

	// The old program on the new data: it stops, says why, and breaks nothing.
	c.stopServer(2)
	c.configs[2].hooks.feature = 0
	s, err := New(c.configs[2])
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err = s.Run(ctx)
	}
	var old *raftstore.UpgradeError
	if !errors.As(err, &old) || old.Feature != state.MaxFeature {
		t.Fatalf("the old program on new data: %v, want an *UpgradeError", err)
	}
	c.configs[2].hooks.feature = next
	c.start(2)
	eventually(t, 20*time.Second, "the server is back, its data untouched", func() bool { return level(2) == next })
	if crew.held("w1") != 8 {
		t.Errorf("w1 holds %d of 8 partitions", crew.held("w1"))
	}
}
