package demo

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func measured(records ...Record) Measures {
	ev := evidence(records...)
	return Measure(ev, Tenures(ev, threeSeconds, 100*second))
}

// run is a start and, a hundredth of a second later, the running handler.
func run(process string, sec float64, partition uint32, token uint64) []Record {
	return []Record{at(process, sec, KindStart, partition, token), at(process, sec+0.01, KindRunning, partition, token)}
}

func TestTakeoverRunsFromTheSignalToTheNextHandler(t *testing.T) {
	for _, signal := range []Kind{KindKill, KindStop} {
		m := measured(slices.Concat(
			run("w1.1", 1, 5, 10), run("w1.1", 1, 6, 11), run("w1.1", 1, 7, 12), []Record{at("w1.1", 2, KindEnd, 7, 12)},
			[]Record{at("w1.1", 3, signal, 0, 0), at("w1.1", 3.1, KindDead, 0, 0)},
			run("w2.1", 4, 5, 13), run("w3.1", 5, 6, 14),
			run("w3.1", 3.5, 7, 15), // had been given back before
		)...)
		got := m.Crash
		if signal == KindStop {
			got = m.Pause
		}
		want := []time.Duration{1010 * time.Millisecond, 2010 * time.Millisecond}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", signal, got, want)
		}
		if len(m.Missing) != 0 {
			t.Errorf("%s: missing %v", signal, m.Missing)
		}
	}
}

func TestAPartitionNobodyTookOverIsMissed(t *testing.T) {
	m := measured(slices.Concat(
		run("w1.1", 1, 5, 10),
		[]Record{at("w1.1", 3, KindKill, 0, 0), at("w1.1", 3.1, KindDead, 0, 0), at("w2.1", 4, KindStart, 5, 13)}, // its handler never ran
	)...)
	if len(m.Crash) != 0 || len(m.Missing) != 1 || !strings.Contains(m.Missing[0], "orders/5") {
		t.Fatalf("crash %v, missing %q", m.Crash, m.Missing)
	}
}

func TestHandoffRunsFromTheDrainToTheNextHandler(t *testing.T) {
	drain := func(sec float64, partition uint32, token uint64, cause string) Record {
		r := at(DriverProcess, sec, KindDrain, partition, token)
		r.Cause = cause
		return r
	}
	m := measured(slices.Concat(
		run("w1.1", 1, 5, 10), run("w1.1", 1, 6, 11), run("w1.1", 1, 7, 12),
		[]Record{drain(3, 5, 10, "leave"), drain(3, 6, 11, "leave"), drain(3, 7, 12, "restart")},
		run("w2.1", 3.02, 5, 13), // a handoff
		run("w1.1", 3.5, 6, 14),  // back in the same process: none
		run("w2.1", 3.5, 7, 15),  // a restart: none
	)...)
	if want := []time.Duration{30 * time.Millisecond}; !slices.Equal(m.Handoff, want) {
		t.Fatalf("handoffs %v, want %v", m.Handoff, want)
	}
}

func TestFailoverNeedsAKeepAliveSentAfterTheKill(t *testing.T) {
	m := measured(
		ack("w1.1", 2.995), // on its way: the dead leader's answer
		at("", 3, KindLeaderKill, 0, 0),
		ack("w1.1", 4.5), ack("w2.1", 4.2),
	)
	if want := []time.Duration{1210 * time.Millisecond}; !slices.Equal(m.Failover, want) {
		t.Fatalf("failover %v, want %v", m.Failover, want)
	}
	if m = measured(ack("w1.1", 2.995), at("", 3, KindLeaderKill, 0, 0)); len(m.Missing) != 1 {
		t.Fatalf("a failover that never came is not missed: %+v", m)
	}
}

func TestMovesOfALeaderChangeAreCounted(t *testing.T) {
	m := measured(slices.Concat(
		run("w1.1", 1, 5, 10),
		[]Record{at("", 3, KindLeaderKill, 0, 0)},
		run("w2.1", 4, 5, 11),
		[]Record{at("", 6, KindLeaderSettled, 0, 0)},
		run("w1.1", 7, 5, 12), // not its doing any more
	)...)
	if m.LeaderChangeMoves != 1 {
		t.Fatalf("%d moves, want 1", m.LeaderChangeMoves)
	}
}

func TestRestartedPartitionsComeBackToTheSameWorker(t *testing.T) {
	records := slices.Concat(
		run("w1.1", 1, 5, 10), run("w1.1", 1, 6, 11), run("w2.1", 1, 7, 12),
		[]Record{at("w1.1", 3, KindRestart, 0, 0), at("w1.1", 3.1, KindEnd, 5, 10), at("w1.1", 3.1, KindEnd, 6, 11), at("w1.1", 3.2, KindDead, 0, 0)},
		run("w1.2", 4, 5, 13),
		run("w3.1", 3.3, 6, 14), run("w1.2", 5, 6, 15), // by way of a stranger
		run("w3.1", 3.5, 7, 16), // was not its own
		[]Record{at("w1.1", 6, KindRestarted, 0, 0)},
		run("w3.1", 7, 5, 17), // after the window
	)
	m := measured(records...)
	if m.ThirdPartyGrants != 1 || len(m.Missing) != 0 {
		t.Fatalf("%d grants to third parties, missing %v; want 1, nothing", m.ThirdPartyGrants, m.Missing)
	}
	if want := []time.Duration{910 * time.Millisecond, 1910 * time.Millisecond}; !slices.Equal(m.Unowned, want) {
		t.Fatalf("unowned for %v, want %v", m.Unowned, want)
	}
}

func TestMovesAreCountedByCause(t *testing.T) {
	move := func(cause string) Record {
		r := at(DriverProcess, 1, KindMove, 0, 0)
		r.Cause = cause
		return r
	}
	m := measured(move("initial"), move("initial"), move("crash"))
	if len(m.Moves) != 2 || m.Moves["initial"] != 2 || m.Moves["crash"] != 1 {
		t.Fatalf("moves %v", m.Moves)
	}
}
