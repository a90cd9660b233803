package demo

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// sound is a run in which every promise was kept.
func sound() (Audit, Overlaps, Measures) {
	return Audit{Written: 8}, Overlaps{Checked: 9, Paused: 2}, Measures{
		Crash: []time.Duration{3 * second}, Pause: []time.Duration{3 * second}, Handoff: []time.Duration{time.Millisecond},
		Failover: []time.Duration{second}, StaleRejected: 1, Moves: map[string]int{"initial": 2},
	}
}

var twoPartitions = &Source{Seed: 1, Partitions: 2, Pace: second}

func TestTheVerdictHoldsForASoundRun(t *testing.T) {
	a, o, m := sound()
	for _, mode := range []Mode{Fenced, Strict} {
		if r := judge(mode, 3*second, twoPartitions, a, o, m); !r.ok() {
			t.Errorf("%s: %q", mode, r.Problems)
		}
	}
}

func TestEveryBrokenPromiseBreaksTheVerdict(t *testing.T) {
	for name, spoil := range map[string]func(*Audit, *Overlaps, *Measures){
		"missing":            func(a *Audit, _ *Overlaps, _ *Measures) { a.Missing = 1 },
		"written twice":      func(a *Audit, _ *Overlaps, _ *Measures) { a.Duplicated = 1 },
		"out of sequence":    func(a *Audit, _ *Overlaps, _ *Measures) { a.OutOfSequence = 1 },
		"below an accepted":  func(a *Audit, _ *Overlaps, _ *Measures) { a.TokenRegressions = 1 },
		"no orders that":     func(a *Audit, _ *Overlaps, _ *Measures) { a.Foreign = 1 },
		"no order was":       func(a *Audit, _ *Overlaps, _ *Measures) { a.Written = 0 },
		"no stale write":     func(_ *Audit, _ *Overlaps, m *Measures) { m.StaleRejected = 0 },
		"live at once":       func(_ *Audit, o *Overlaps, _ *Measures) { o.Live = 1 },
		"in evidence":        func(_ *Audit, o *Overlaps, _ *Measures) { o.Checked = 1 },
		"moved when":         func(_ *Audit, _ *Overlaps, m *Measures) { m.LeaderChangeMoves = 1 },
		"after a crash":      func(_ *Audit, _ *Overlaps, m *Measures) { m.Crash = nil },
		"stopped worker":     func(_ *Audit, _ *Overlaps, m *Measures) { m.Pause = nil },
		"failover":           func(_ *Audit, _ *Overlaps, m *Measures) { m.Failover = nil },
		"was not taken over": func(_ *Audit, _ *Overlaps, m *Measures) { m.Missing = []string{"orders/1 was not taken over"} },
	} {
		a, o, m := sound()
		spoil(&a, &o, &m)
		r := judge(Strict, 3*second, twoPartitions, a, o, m)
		if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], name) {
			t.Errorf("%s: problems %q", name, r.Problems)
		}
	}
	a, o, m := sound()
	o.Live = 1
	if r := judge(Fenced, 3*second, twoPartitions, a, o, m); !r.ok() {
		t.Errorf("fenced takeover may overlap, the guard holds: %q", r.Problems)
	}
}

func TestTheResultHasExactlyTheAgreedFields(t *testing.T) {
	a, o, m := sound()
	raw, err := json.Marshal(Result{OK: true, Modes: []ModeResult{judge(Strict, 3*second, twoPartitions, a, o, m)}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"ok":true,"modes":[{"mode":"strict","ttl_ms":3000,"partitions":2,"orders_written":8,"orders_missing":0,"orders_duplicated":0,` +
		`"token_regressions":0,"stale_writes_rejected":1,"intervals_checked":9,"overlaps":0,"overlaps_while_paused":2,` +
		`"takeover_crash_ms":{"p50":3000,"p99":3000,"max":3000},"takeover_pause_ms":{"p50":3000,"p99":3000,"max":3000},` +
		`"handoff_ms":{"p50":1,"p99":1,"max":1},"leader_failover_ms":{"p50":1000,"p99":1000,"max":1000},` +
		`"leader_change_moves":0,"rolling_restart_third_party_grants":0,"moves":{"initial":2}}]}`
	if string(raw) != want {
		t.Fatalf("got  %s\nwant %s", raw, want)
	}
}

func TestTheStormIsFixedByItsSeed(t *testing.T) {
	different := false
	for seed := range int64(50) {
		steps := Storm(seed, 5)
		if !reflect.DeepEqual(steps, Storm(seed, 5)) {
			t.Fatalf("seed %d gives two storms", seed)
		}
		different = different || !reflect.DeepEqual(steps, Storm(seed+1, 5))
		var actions []Action
		gone := map[string]bool{}
		for _, s := range steps {
			actions = append(actions, s.Action)
			if gone[s.Worker] {
				t.Fatalf("seed %d: %s hits %s, which has gone", seed, s.Action, s.Worker)
			}
			if s.Action == ActionLeave || s.Action == ActionCrash {
				gone[s.Worker] = true
			}
		}
		if want := []Action{ActionJoin, ActionLeave, ActionKillLeader, ActionCrash, ActionZombie, ActionRolling}; !slices.Equal(actions, want) {
			t.Fatalf("seed %d: %v", seed, actions)
		}
		if rolled := steps[len(steps)-1].Workers; len(rolled) != 4 || slices.ContainsFunc(rolled, func(w string) bool { return gone[w] }) {
			t.Fatalf("seed %d: %v restart, %v have gone", seed, rolled, gone)
		}
	}
	if !different {
		t.Fatal("the seed decides nothing")
	}
	for seed := range int64(50) {
		if rolled := Storm(seed, MinWorkers)[5].Workers; len(rolled) != 2 {
			t.Fatalf("with %d workers %v are left", MinWorkers, rolled)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Modes: []Mode{Strict}, Partitions: 64, Workers: 5}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, bad := range map[string]Config{
		"--workers 2":         {Modes: good.Modes, Partitions: 64, Workers: 2},
		"--workers -1":        {Modes: good.Modes, Partitions: 64, Workers: -1},
		"--partitions 5":      {Modes: good.Modes, Partitions: 5, Workers: 5},
		"--partitions 0":      {Modes: good.Modes, Partitions: 0, Workers: 5},
		"--partitions 100000": {Modes: good.Modes, Partitions: 100000, Workers: 5},
		"no mode":             {Partitions: 64, Workers: 5},
	} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", bad, err, want)
		}
	}
}

func TestTheStoryIsPlainWhenPiped(t *testing.T) {
	moves := []Move{{Partition: 17, From: Holding{Worker: "w2", Token: 33}, To: Holding{Worker: "w4", Token: 34}, Took: 1234 * time.Millisecond}}
	for i := range 5 {
		moves = append(moves, Move{Partition: uint32(i), To: Holding{Worker: "w1", Token: 40}})
	}
	var plain, terminal bytes.Buffer
	NewTimeline(&plain, false).Moves(moves)
	NewTimeline(&terminal, true).Step("kill -9 of w2")
	for _, want := range []string{"orders/17: w2 → w4, token 33 → 34, 1.23s\n", "orders/0: nobody → w1", "… and 3 more, 3 to w1\n"} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("%q is not told:\n%s", want, plain.String())
		}
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(terminal.String(), "\x1b[1m") {
		t.Errorf("colours belong on a terminal only:\n%q\n%q", plain.String(), terminal.String())
	}
}
