package controller

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// checkJoin: a join moves no more than the newcomer's share, to it alone.
func checkJoin(t reporter, log []moved, id string, partitions, workers int) {
	t.Helper()
	bound := int(math.Ceil(1.05 * float64(partitions) / float64(workers)))
	if len(log) > bound {
		t.Errorf("join of %s as worker %d: %d of %d partitions moved, bound %d", id, workers, len(log), partitions, bound)
	}
	for _, m := range log {
		if m.to != id {
			t.Errorf("join of %s: partition %d moved from %s to %s", id, m.partition, m.from, m.to)
		}
	}
}

// checkEven: nobody is above 1.10 of the mean where whole partitions allow
// it, and nobody is left with nothing while another holds several.
func checkEven(t reporter, w *world) {
	t.Helper()
	held := w.held()
	mean := float64(len(w.owners)) / float64(len(held))
	least, most := len(w.owners), 0
	for _, n := range held {
		least, most = min(least, n), max(most, n)
	}
	if mean >= 20 && float64(most) > 1.10*mean {
		t.Errorf("%d partitions on %d workers: one holds %d, mean %.2f", len(w.owners), len(held), most, mean)
	}
	if least == 0 && most > 1 {
		t.Errorf("%d partitions on %d workers: one holds none, another %d", len(w.owners), len(held), most)
	}
	if float64(most) > math.Ceil(mean) && float64(most) > math.Floor(1.10*mean) {
		t.Errorf("%d partitions on %d workers: one holds %d, mean %.2f", len(w.owners), len(held), most, mean)
	}
	if mean >= 1 && float64(least) < math.Floor(0.90*mean) {
		t.Errorf("%d partitions on %d workers: one holds only %d, mean %.2f", len(w.owners), len(held), least, mean)
	}
}

// O-21: survivors do not swap when a worker joins.
func TestThirdWorkerJoinsAndSurvivorsDoNotSwap(t *testing.T) {
	w := newWorld(10, 2)
	w.reRing()
	w.settle()
	w.join("c", 0)
	w.reRing()
	w.now += time.Minute
	log := w.settle()
	if len(log) > 4 || len(log) < 3 {
		t.Errorf("%d of 10 partitions moved, want 3 or 4", len(log))
	}
	for _, m := range log {
		if m.to != "c" || m.cause != state.CauseJoin {
			t.Errorf("partition %d moved from %s to %s (%v)", m.partition, m.from, m.to, m.cause)
		}
	}

	var table strings.Builder
	fmt.Fprintf(&table, "P=271\n%8s %6s %6s %6s %6s %9s\n", "workers", "moved", "bound", "least", "most", "max/mean")
	w = newWorld(271, 1)
	w.reRing()
	w.settle()
	for n := 2; n <= 20; n++ {
		id := fmt.Sprintf("w%04d", n-1)
		w.join(id, 0)
		w.reRing()
		w.now += time.Minute
		log := w.settle()
		checkJoin(t, log, id, 271, n)
		checkEven(t, w)
		least, most := 271, 0
		for _, k := range w.held() {
			least, most = min(least, k), max(most, k)
		}
		fmt.Fprintf(&table, "%8d %6d %6d %6d %6d %9.3f\n", n, len(log),
			int(math.Ceil(1.05*271/float64(n))), least, most, float64(most)*float64(n)/271)
	}
	golden(t, "testdata/join-271.txt", table.String())
}

// O-22, as far as it is the planner's: only the leaver's partitions move.
func TestOneWorkerLeavesAndNobodyElseIsInterrupted(t *testing.T) {
	for _, c := range []struct{ partitions, workers int }{{3, 3}, {30, 10}, {271, 7}, {4096, 50}} {
		w := newWorld(c.partitions, c.workers)
		w.reRing()
		w.settle()
		leaver := w.workers[1].ID
		had := w.held()[leaver]
		w.workers[1].Standing = Leaving
		w.changed = w.now
		w.reRing()
		log := w.settle()
		if len(log) != had {
			t.Errorf("P=%d: %s held %d, %d moved", c.partitions, leaver, had, len(log))
		}
		for _, m := range log {
			if m.from != leaver || m.cause != state.CauseLeave {
				t.Errorf("P=%d: partition %d moved from %s to %s (%v)", c.partitions, m.partition, m.from, m.to, m.cause)
			}
		}
	}
}

// Any history of joins, leaves and crashes keeps the bounds of DESIGN §6.
func TestMovementAndBalanceStayWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.SampledFrom([]int{1, 2, 5, 10, 64, 271, 1024}).Draw(t, "partitions")
		start := rapid.IntRange(1, 12).Draw(t, "workers")
		withRing := rapid.Bool().Draw(t, "ring")
		w := newWorld(partitions, start)
		reRing := func() {
			if withRing {
				w.reRing()
			}
		}
		reRing()
		w.settle()
		next := start
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			w.now += 11 * time.Minute
			if len(w.workers) < 2 || rapid.Bool().Draw(t, "join") {
				id := fmt.Sprintf("w%04d", next)
				next++
				w.join(id, 0)
				reRing()
				checkJoin(t, w.settle(), id, partitions, len(w.workers))
			} else {
				i := rapid.IntRange(0, len(w.workers)-1).Draw(t, "who")
				id := w.workers[i].ID
				had := w.held()[id]
				if rapid.Bool().Draw(t, "crash") {
					w.remove(id)
					reRing()
					log := w.settle()
					if len(log) != had {
						t.Fatalf("crash of %s, which held %d of %d: %d moved (%v)", id, had, partitions, len(log), w.held())
					}
				} else {
					w.workers[i].Standing, w.changed = Leaving, w.now
					reRing()
					log := w.settle()
					for _, m := range log {
						if m.from != id {
							t.Fatalf("leave of %s: partition %d moved from %s to %s (%v)", id, m.partition, m.from, m.to, m.cause)
						}
					}
					if len(log) != had {
						t.Fatalf("leave of %s, which held %d: %d moved", id, had, len(log))
					}
					w.remove(id)
				}
			}
			if slices.Contains(w.owners, -1) {
				t.Fatalf("a partition is unowned although there are %d workers", len(w.workers))
			}
			checkEven(t, w)
		}
	})
}

// Capacities weigh and are never exceeded, whatever they are.
func TestCapacityIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.SampledFrom([]int{1, 7, 64, 271}).Draw(t, "partitions")
		w := newWorld(partitions, 0)
		room := 0
		for i := range rapid.IntRange(1, 9).Draw(t, "workers") {
			c := rapid.Uint32Range(1, 120).Draw(t, "capacity")
			w.join(fmt.Sprintf("w%04d", i), c)
			room += int(c)
		}
		w.reRing()
		w.settle()
		total := 0
		for id, n := range w.held() {
			total += n
			if c := w.workers[w.find(id)].Capacity; n > int(c) {
				t.Fatalf("%s holds %d, capacity %d", id, n, c)
			}
		}
		if total != min(partitions, room) {
			t.Fatalf("%d of %d partitions have an owner, room for %d", total, partitions, room)
		}
		if out := Plan(w.input()); room < partitions && out.Rest.Code != CodeCapacity {
			t.Fatalf("reason is %q, want capacity", out.Rest.Code)
		}
	})
}

// O-26: what does not fit is unowned and named, and nothing thrashes.
func TestCapacityBelowThePartitionsDoesNotThrash(t *testing.T) {
	w := newWorld(121, 0)
	for i := range 3 {
		w.join(fmt.Sprintf("w%d", i), 40)
	}
	w.reRing()
	if log := w.settle(); len(log) != 120 {
		t.Fatalf("%d partitions were granted, want 120", len(log))
	}
	for range 300 {
		w.now += time.Second
		out := Plan(w.input())
		if len(out.Grants)+len(out.Drains) > 0 {
			t.Fatalf("at %v something moves: %+v", w.now, out)
		}
		if out.Rest.Code != CodeCapacity {
			t.Fatalf("reason is %q, want capacity", out.Rest.Code)
		}
	}
	w = newWorld(120, 0)
	for i := range 3 {
		w.join(fmt.Sprintf("w%d", i), 40)
	}
	if log := w.settle(); len(log) != 120 || Plan(w.input()).Rest.Code != CodeNone {
		t.Fatalf("120 partitions do not fit 3 times 40")
	}
}

// O-29: after any distribution each live worker ends with its share.
func TestNoLiveWorkerEndsUpWithNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(64, 5)
		for p := range w.owners {
			w.owners[p] = int32(rapid.IntRange(-1, 4).Draw(t, "owner"))
		}
		w.reRing()
		w.settle()
		checkEven(t, w)
	})
}

// reporter is what *testing.T and *rapid.T have in common here.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}
