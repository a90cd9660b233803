package etcdapi

import (
	"testing"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// unwritten is a store whose state knows the cluster, but that has not written
// its id down yet.
type unwritten struct {
	Store
	state *state.State
}

func (unwritten) ClusterID() string              { return "" }
func (u unwritten) View(view func(*state.State)) { view(u.state) }

// The number of the cluster is the same from the first answer on.
func TestClusterNumberIsThatOfTheState(t *testing.T) {
	st := state.New()
	st.Apply(1, 1, &state.Batch{Commands: []state.Command{&state.Bootstrap{ClusterID: "c", FirstToken: 1}}})
	a := &API{cfg: Config{Store: unwritten{state: st}}, self: newIdentity("s1", "x")}
	if got, want := a.clusterID(), number("cluster/c"); got != want {
		t.Errorf("cluster is %x, want %x", got, want)
	}
}
