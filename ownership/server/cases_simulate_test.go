package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// What a simulation tells is what happens: for workers that come, that go, and
// that come and go at once, the same partitions move and the same workers have
// them in the end. The simulation itself moves nothing.
func TestSimulatedChangesComeTrue(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	for _, g := range []struct {
		name        string
		size        uint32
		workers     int
		come, leave []string
	}{
		{"one-comes", 32, 3, []string{"n1"}, nil},
		{"one-goes", 31, 4, nil, []string{"w2"}},
		{"two-come", 40, 3, []string{"n1", "n2"}, nil},
		{"one-for-one", 24, 3, []string{"n1"}, []string{"w3"}},
	} {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			id := func(s string) string { return g.name + "-" + s }
			createCold(t, cl, g.name, g.size, 10*time.Second)
			crew := newCrew(t, c.servers())
			var names []string
			for _, s := range ids(g.workers) {
				names = append(names, id(s))
			}
			stops := crew.joinAll(g.name, names...)
			eventually(t, 30*time.Second, "all is held", func() bool { return crew.held("") == int(g.size) })
			ask := &leaseholdv1.SimulateRingRequest{Keyspace: g.name}
			eventually(t, 30*time.Second, "nothing moves by itself", func() bool {
				still, err := cl.Ring().SimulateRing(t.Context(), ask)
				return err == nil && len(still.GetMoves()) == 0
			})
			for _, s := range g.come {
				ask.Add = append(ask.Add, &leaseholdv1.SimulatedWorker{Id: id(s)})
			}
			for _, s := range g.leave {
				ask.Remove = append(ask.Remove, id(s))
			}
			owners := ownersOf(t, cl, g.name)
			begin := c.revision(cl)
			told, err := cl.Ring().SimulateRing(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			if moved := grantsAfter(c, cl, begin, g.name); len(moved) > 0 || !maps.Equal(owners, ownersOf(t, cl, g.name)) {
				t.Fatalf("the simulation has moved %v", moved)
			}
			foreseen := map[uint32]bool{}
			for _, m := range told.GetMoves() {
				if m.GetFrom() != owners[m.GetPartition()] {
					t.Errorf("partition %d: told from %s, it is with %s", m.GetPartition(), m.GetFrom(), owners[m.GetPartition()])
				}
				owners[m.GetPartition()] = m.GetTo()
				foreseen[m.GetPartition()] = true
			}
			if len(foreseen) == 0 || int(told.GetKept())+len(foreseen) != int(g.size) {
				t.Errorf("%d moves and %d kept of %d", len(foreseen), told.GetKept(), g.size)
			}

			for _, s := range g.come {
				crew.join(id(s), g.name)
			}
			eventually(t, 10*time.Second, "those who come are there", func() bool { // before anybody goes
				workers := c.workersByID(cl)
				return !slices.ContainsFunc(g.come, func(s string) bool { return !workers[id(s)].GetAttached() })
			})
			for _, s := range g.leave {
				stops[id(s)]()
			}
			eventually(t, 60*time.Second, "as many have moved and nothing more moves", func() bool {
				still, err := cl.Ring().SimulateRing(t.Context(), &leaseholdv1.SimulateRingRequest{Keyspace: g.name})
				return err == nil && len(still.GetMoves()) == 0 && len(grantsAfter(c, cl, begin, g.name)) >= len(foreseen)
			})
			moved := grantsAfter(c, cl, begin, g.name)
			if want := slices.Sorted(maps.Keys(foreseen)); !slices.Equal(moved, want) {
				t.Errorf("told that %v would move, %v have", want, moved)
			}
			if got := ownersOf(t, cl, g.name); !maps.Equal(got, owners) {
				t.Errorf("owners differ: %s", difference(owners, got))
			}
			checkAfter(t, told, owners)
		})
	}
}

// checkAfter holds the figures of the simulation against the owners.
func checkAfter(t *testing.T, told *leaseholdv1.Simulation, owners map[uint32]string) {
	t.Helper()
	held := map[string]int64{}
	for _, id := range owners {
		held[id]++
	}
	for _, w := range told.GetAfter() {
		if w.GetHeld() != held[w.GetWorker()] {
			t.Errorf("%s: told to hold %d, holds %d", w.GetWorker(), w.GetHeld(), held[w.GetWorker()])
		}
		delete(held, w.GetWorker())
	}
	if len(held) > 0 {
		t.Errorf("not told of: %v", held)
	}
}

func ownersOf(t *testing.T, cl *client.Client, keyspace string) map[uint32]string {
	t.Helper()
	r, err := cl.Partitions().ListPartitions(t.Context(), &leaseholdv1.ListPartitionsRequest{Keyspace: keyspace})
	if err != nil {
		t.Fatal(err)
	}
	owners := map[uint32]string{}
	for _, p := range r.GetItems() {
		owners[p.GetPartition()] = p.GetOwner()
	}
	return owners
}

// grantsAfter are the partitions granted since, each once, by number.
func grantsAfter(c *cluster, cl *client.Client, revision uint64, keyspace string) (list []uint32) {
	for _, e := range c.eventsAfter(cl, revision, "grant") {
		if e.GetKeyspace() == keyspace {
			list = append(list, e.GetPartition())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func difference(want, got map[uint32]string) string {
	var parts []string
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if want[p] != got[p] {
			parts = append(parts, fmt.Sprintf("%d: told %s, is %s", p, want[p], got[p]))
		}
	}
	return strings.Join(parts, "; ")
}
