package demo

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const second = time.Second

// at shortens evidence: kind, partition and token of a process at a second.
func at(process string, sec float64, kind Kind, partition uint32, token uint64) Record {
	worker, _, _ := cut(process)
	return Record{At: time.Duration(sec * float64(second)), Kind: kind, Process: process, Worker: worker, Partition: partition, Token: token}
}

func cut(process string) (worker, start string, ok bool) {
	for i := range process {
		if process[i] == '.' {
			return process[:i], process[i+1:], true
		}
	}
	return process, "", false
}

func ack(process string, sent float64) Record {
	r := at(process, sent+0.01, KindAck, 0, 0)
	r.Sent = time.Duration(sent * float64(second))
	return r
}

// evidence sorts records into files; those of the driver are about others.
func evidence(records ...Record) Evidence {
	ev := Evidence{}
	for _, r := range records {
		file := r.Process
		switch r.Kind {
		case KindKill, KindDead, KindStop, KindContinue, KindRestart, KindRestarted, KindLeaderKill, KindLeaderSettled, KindDrain, KindMove:
			file = DriverProcess
		}
		ev[file] = append(ev[file], r)
	}
	return ev
}

var threeSeconds = Deadlines{TTL: 3 * second} // margin 250 ms

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		name string
		ev   Evidence
		want Overlaps
	}{
		{"one after the other", evidence(
			at("w1.1", 1, KindStart, 5, 10), at("w1.1", 2, KindEnd, 5, 10),
			at("w2.1", 2, KindStart, 5, 11), at("w2.1", 3, KindEnd, 5, 11),
		), Overlaps{Checked: 2}},
		{"at once", evidence(
			at("w1.1", 1, KindStart, 5, 10), at("w1.1", 2.001, KindEnd, 5, 10),
			at("w2.1", 2, KindStart, 5, 11), at("w2.1", 3, KindEnd, 5, 11),
		), Overlaps{Checked: 2, Live: 1}},
		{"at once, other partition", evidence(
			at("w1.1", 1, KindStart, 5, 10), at("w1.1", 3, KindEnd, 5, 10),
			at("w2.1", 2, KindStart, 6, 11), at("w2.1", 3, KindEnd, 6, 11),
		), Overlaps{Checked: 2}},
		{"three at once are three pairs", evidence(
			at("w1.1", 1, KindStart, 5, 10), at("w2.1", 2, KindStart, 5, 11), at("w3.1", 3, KindStart, 5, 12),
		), Overlaps{Checked: 3, Live: 3}},
		{"a worker's next process is another process", evidence(
			at("w1.1", 1, KindStart, 5, 10), at("w1.1", 3, KindEnd, 5, 10), at("w1.2", 2, KindStart, 5, 11),
		), Overlaps{Checked: 2, Live: 1}},
		{"a killed process counts until it is dead", evidence(
			at("w1.1", 1, KindStart, 5, 10), at("w1.1", 2, KindKill, 0, 0), at("w1.1", 2.1, KindDead, 0, 0),
			at("w2.1", 2.05, KindStart, 5, 11), at("w2.1", 2.2, KindEnd, 5, 11),
			at("w3.1", 2.3, KindStart, 5, 12),
		), Overlaps{Checked: 3, Live: 1}},
		{"a stopped process counts up to its deadline", evidence(
			ack("w1.1", 1), at("w1.1", 1, KindStart, 5, 10), at("w1.1", 2, KindStop, 0, 0), at("w1.1", 8, KindContinue, 0, 0),
			at("w1.1", 8.1, KindEnd, 5, 10),
			at("w2.1", 3.7, KindStart, 5, 11), // deadline 1 + 3 − 0.25
		), Overlaps{Checked: 2, Live: 1}},
		{"the rest of the stop is told apart", evidence(
			ack("w1.1", 1), at("w1.1", 1, KindStart, 5, 10), at("w1.1", 2, KindStop, 0, 0), at("w1.1", 8, KindContinue, 0, 0),
			at("w1.1", 8.1, KindEnd, 5, 10),
			at("w2.1", 3.8, KindStart, 5, 11),
		), Overlaps{Checked: 2, Paused: 1}},
		{"a keep-alive acknowledged after the stop gives no deadline", evidence(
			ack("w1.1", 1), ack("w1.1", 8), at("w1.1", 1, KindStart, 5, 10),
			at("w1.1", 2, KindStop, 0, 0), at("w1.1", 8, KindContinue, 0, 0), at("w1.1", 8.1, KindEnd, 5, 10),
			at("w2.1", 3.8, KindStart, 5, 11), at("w2.1", 7, KindEnd, 5, 11),
		), Overlaps{Checked: 2, Paused: 1}},
		{"a stop within the deadline excuses nothing", evidence(
			ack("w1.1", 1), at("w1.1", 1, KindStart, 5, 10), at("w1.1", 2, KindStop, 0, 0), at("w1.1", 3, KindContinue, 0, 0),
			at("w1.1", 3.6, KindEnd, 5, 10),
			at("w2.1", 3.5, KindStart, 5, 11),
		), Overlaps{Checked: 2, Live: 1}},
		{"going on long after the stop is no pause", evidence(
			ack("w1.1", 1), at("w1.1", 1, KindStart, 5, 10), at("w1.1", 2, KindStop, 0, 0), at("w1.1", 8, KindContinue, 0, 0),
			at("w1.1", 9, KindEnd, 5, 10),
			at("w2.1", 3.8, KindStart, 5, 11),
		), Overlaps{Checked: 2, Live: 1}},
		{"a context without an end lasts", evidence(
			at("w1.1", 1, KindStart, 5, 10), at("w2.1", 90, KindStart, 5, 11),
		), Overlaps{Checked: 2, Live: 1}},
	} {
		got := CountOverlaps(Tenures(c.ev, threeSeconds, 100*second))
		got.Examples = nil
		if got.Checked != c.want.Checked || got.Live != c.want.Live || got.Paused != c.want.Paused {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// The sweep must find exactly what looking at every pair finds.
func TestTheSweepMissesNoPair(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var records []Record
		for i := range 40 {
			process := []string{"w1.1", "w2.1", "w3.1"}[rng.IntN(3)]
			from, p := rng.Float64()*20, uint32(rng.IntN(3))
			records = append(records, at(process, from, KindStart, p, uint64(i+1)), at(process, from+rng.Float64()*3, KindEnd, p, uint64(i+1)))
		}
		all := Tenures(evidence(records...), threeSeconds, 100*second)
		want := 0
		for i, a := range all {
			for _, b := range all[i+1:] {
				if a.Partition == b.Partition && a.Process != b.Process && a.Start < b.End && b.Start < a.End {
					want++
				}
			}
		}
		if got := CountOverlaps(all); got.Live != want {
			t.Fatalf("seed %d: %d pairs, want %d", seed, got.Live, want)
		}
	}
}

func TestPausesAreTakenOut(t *testing.T) {
	tenure := &Tenure{Start: 1, End: 10, Pauses: []span{{2, 4}, {3, 5}, {9, 20}}}
	if got, want := tenure.live(), []span{{1, 2}, {5, 9}}; !slices.Equal(got, want) {
		t.Fatalf("live %v, want %v", got, want)
	}
}
