package server

import (
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// TestCredentialsBeginWhenTheLastServerIsUpgraded has one server of the release
// before credentials in the group: none can be made, partitions are owned as ever,
// and when that server runs this release they can, with no lease moved.
func TestCredentialsBeginWhenTheLastServerIsUpgraded(t *testing.T) {
	c := newCluster(t, 3)
	c.configs[2].hooks.feature = state.FeatureAccess - 1
	c.startAll()
	createKeyspace(t, c.client(), "orders", 8, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	crew := newCrew(t, c.servers())
	crew.join("w1", "orders")
	eventually(t, 20*time.Second, "w1 holds all", func() bool { return crew.held("w1") == 8 })
	before := crew.tokens()
	level := func() (f state.Feature) {
		c.running[0].store.View(func(st *state.State) { f = st.Feature() })
		return f
	}
	eventually(t, 20*time.Second, "the level that all know", func() bool { return level() == state.FeatureAccess-1 })
	create := func() error {
		_, err := c.client().Credentials().CreateCredential(t.Context(), &leaseholdv1.CreateCredentialRequest{Name: "ci", Role: leaseholdv1.Role_ROLE_READER})
		return err
	}
	// Longer than the leader waits between two looks.
	settled := time.Now().Add(2500 * time.Millisecond)
	eventually(t, 30*time.Second, "refusal with an old server in the group", func() bool {
		err := create()
		if err == nil {
			t.Fatal("a credential was made that an old server cannot know")
		}
		return leaseholdv1.ReasonOf(err) == leaseholdv1.ReasonFeature && time.Now().After(settled)
	})

	c.stopServer(2)
	c.configs[2].hooks.feature = state.MaxFeature
	c.start(2)
	eventually(t, 20*time.Second, "credentials begin", func() bool {
		err := create()
		return err == nil || leaseholdv1.ReasonOf(err) == leaseholdv1.ReasonExists // an answer was lost
	})
	for p, token := range crew.tokens() {
		if before[p] != token {
			t.Errorf("partition %d moved in an upgrade: token %d, then %d", p, before[p], token)
		}
	}
}
