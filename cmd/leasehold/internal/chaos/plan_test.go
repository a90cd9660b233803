package chaos

import (
	"reflect"
	"slices"
	"testing"
)

func TestThePlanIsFixedByItsSeed(t *testing.T) {
	different := false
	for seed := range int64(20) {
		short, long := Plan(seed, 40), Plan(seed, 200)
		if !reflect.DeepEqual(short, long[:40]) {
			t.Fatalf("seed %d: a longer plan begins otherwise", seed)
		}
		different = different || !reflect.DeepEqual(short, Plan(seed+1, 40))
	}
	if !different {
		t.Fatal("all seeds give the same plan")
	}
}

func TestThePlanHasEveryFaultAndAStoppedWorkerSoon(t *testing.T) {
	for seed := range int64(50) {
		plan := Plan(seed, 3+len(serverFaults)+len(workerFaults))
		pairs := 0
		var first, all []Fault
		for i, s := range plan {
			if i < 3 {
				first = append(first, s.Fault)
			} else {
				all = append(all, s.Fault)
			}
			if s.With != "" {
				pairs++
				if !compatible(s.Fault, s.With) || slices.Contains(serverFaults, s.Fault) == slices.Contains(serverFaults, s.With) {
					t.Errorf("seed %d: %s comes with %s", seed, s.Fault, s.With)
				}
			}
		}
		for _, f := range []Fault{StopWorker, KillWorker, KillLeader} {
			if !slices.Contains(first, f) {
				t.Errorf("seed %d: no %s at first: %v", seed, f, first)
			}
		}
		for _, f := range slices.Concat(serverFaults, workerFaults) {
			if !slices.Contains(all, f) {
				t.Errorf("seed %d: no %s in a round", seed, f)
			}
		}
		if pairs == 0 {
			t.Errorf("seed %d: never two faults at once", seed)
		}
	}
}

// Promise 3 holds while clocks differ by less than 1 %.
func TestThePlanKeepsClocksWithinThePromise(t *testing.T) {
	for seed := range int64(50) {
		for _, s := range Plan(seed, 300) {
			if s.Fault == ServerClocks && s.With == WorkerClocks || s.Fault == WorkerClocks && s.With == ServerClocks {
				t.Fatalf("seed %d: %v", seed, s)
			}
		}
	}
}

func TestThePlanLeavesOutWhatCannotBeDone(t *testing.T) {
	for _, s := range Plan(1, 300, cuts...) {
		if slices.Contains(cuts, s.Fault) || slices.Contains(cuts, s.With) {
			t.Fatalf("%v is planned without a network", s)
		}
	}
}
