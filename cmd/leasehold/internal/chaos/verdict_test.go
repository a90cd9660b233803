package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
)

const second = time.Second

// at shortens evidence: times are in seconds.
func at(process string, sec float64, kind demo.Kind, partition uint32, token uint64) demo.Record {
	worker, _, _ := strings.Cut(process, ".")
	return demo.Record{At: time.Duration(sec * float64(second)), Kind: kind, Process: process, Worker: worker, Partition: partition, Token: token}
}

func driven(r demo.Record, cause string) demo.Record {
	r.Cause = cause
	return r
}

// sound is a run in which w1 was stopped, w2 took over a TTL later, and w1's
// write was refused.
func sound() (RunRecord, demo.Audit, demo.Evidence) {
	acked := at("w1.1", 2, demo.KindAck, 0, 0)
	acked.Sent = 2 * second
	return RunRecord{Mode: demo.Strict, Seed: 7, Took: 30 * second, End: 40 * second, Source: demo.Source{Partitions: 1}}, demo.Audit{Written: 8}, demo.Evidence{
		demo.DriverProcess: {
			driven(at("w1.1", 1, demo.KindMove, 0, 10), "initial"),
			driven(at("driver", 2, kindFault, 0, 0), string(StopWorker)),
			at("s1", 2, kindLeads, 0, 3),
			at("w1.1", 2.5, demo.KindStop, 0, 0),
			driven(at("w2.1", 5.2, demo.KindMove, 0, 11), "expired"),
			at("w1.1", 7, demo.KindContinue, 0, 0),
			at("s2", 8, kindLeads, 0, 4),
			{At: 9 * second, Kind: kindRecovered, Sent: 7 * second},
		},
		"w1.1": {
			at("w1.1", 1, demo.KindStart, 0, 10), at("w1.1", 1, demo.KindRunning, 0, 10), acked,
			at("w1.1", 7.1, demo.KindRejected, 0, 10), at("w1.1", 7.1, demo.KindEnd, 0, 10),
		},
		"w2.1": {at("w2.1", 5.2, demo.KindStart, 0, 11), at("w2.1", 5.3, demo.KindRunning, 0, 11)},
	}
}

func TestASoundRunIsJudgedSo(t *testing.T) {
	v := Judge(sound())
	if !v.OK() {
		t.Fatalf("problems: %q", v.Problems)
	}
	if v.faults() != 1 || v.PerHour() != 120 || v.Orders != 8 || v.Rejected != 1 || v.Contexts != 2 || v.Grants != 2 || v.Takeovers != 1 ||
		v.Waited != 1 || v.Terms != 2 || v.OverlapsWhilePaused != 1 || v.Recovery.Max != 2000 {
		t.Errorf("counts: %+v", v)
	}
	var out strings.Builder
	v.Print(&out)
	for _, want := range []string{"seed 7: 1 faults in 30s, 120 an hour", "stop-worker 1", "8 orders accepted, 1 stale", "2 contexts", "1 of 2 grants", "2 terms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the counts do not have %q:\n%s", want, out.String())
		}
	}
}

func TestEveryBrokenPromiseIsAProblem(t *testing.T) {
	for want, spoil := range map[string]func(*RunRecord, *demo.Audit, demo.Evidence){
		"1 orders are missing":         func(_ *RunRecord, a *demo.Audit, _ demo.Evidence) { a.Missing = 1 },
		"were written twice":           func(_ *RunRecord, a *demo.Audit, _ demo.Evidence) { a.Duplicated = 1 },
		"are out of sequence":          func(_ *RunRecord, a *demo.Audit, _ demo.Evidence) { a.OutOfSequence = 1 },
		"below an accepted token":      func(_ *RunRecord, a *demo.Audit, _ demo.Evidence) { a.TokenRegressions = 1 },
		"are no orders that were sent": func(_ *RunRecord, a *demo.Audit, _ demo.Evidence) { a.Foreign = 1 },
		"no order was written":         func(_ *RunRecord, a *demo.Audit, _ demo.Evidence) { a.Written = 0 },
		"before the TTL": func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) {
			ev["w1.1"][2].Sent, ev["w1.1"][2].At = 2400*time.Millisecond, 2450*time.Millisecond
		},
		"were live at once": func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) {
			ev[demo.DriverProcess][3].At, ev[demo.DriverProcess][5].At = 20*second, 21*second // not stopped then
		},
		"token 9 was granted after 10": func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) {
			ev[demo.DriverProcess][4].Token, ev["w2.1"][0].Token, ev["w2.1"][1].Token = 9, 9, 9
		},
		"was never granted":       func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) { ev["w2.1"][0].Token = 12 },
		"which was granted to w2": func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) { ev["w2.1"][0].Worker = "w3" },
		"both run under token 11": func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) { ev["w2.2"] = ev["w2.1"] },
		"s1 and s2 both led":      func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) { ev[demo.DriverProcess][6].Token = 3 },
		"the servers differ": func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) {
			ev[demo.DriverProcess][6] = driven(demo.Record{Kind: kindProblem}, "the servers differ")
		},
		"no fault was made": func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) { ev[demo.DriverProcess][1].Kind = "" },
		"60 faults an hour": func(run *RunRecord, _ *demo.Audit, _ demo.Evidence) { run.Took = time.Minute },
		"of 9 partitions":   func(run *RunRecord, _ *demo.Audit, _ demo.Evidence) { run.Source.Partitions = 9 },
		"no leader was seen": func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) {
			ev[demo.DriverProcess][2].Kind, ev[demo.DriverProcess][6].Kind = "", ""
		},
		"no stale write was":        func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) { ev["w1.1"][3].Kind = "" },
		"no takeover was seen":      func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) { ev[demo.DriverProcess][4].Cause = "balance" },
		"only 1 grants are in evid": func(_ *RunRecord, _ *demo.Audit, ev demo.Evidence) { ev[demo.DriverProcess][0].Kind = "" },
	} {
		run, audit, ev := sound()
		spoil(&run, &audit, ev)
		v := Judge(run, audit, ev)
		if !strings.Contains(strings.Join(v.Problems, "\n"), want) {
			t.Errorf("%s: problems %q", want, v.Problems)
		}
	}
}

// A worker that has let go of a lease, or has said that it is about to, need
// not be waited for.
func TestAReleasedLeaseIsTakenOverAtOnce(t *testing.T) {
	for _, kind := range []demo.Kind{demo.KindEnd, demo.KindReturn, demo.KindDraining} {
		run, audit, ev := sound()
		ev["w1.1"][2].Sent, ev["w1.1"][2].At = 4*second, 4*second
		ev["w1.1"] = append(ev["w1.1"], at("w1.1", 5, kind, 0, 10))
		v := Judge(run, audit, ev)
		if v.Waited != 0 || strings.Contains(strings.Join(v.Problems, "\n"), "before the TTL") {
			t.Errorf("%s: %d waits, problems %q", kind, v.Waited, v.Problems)
		}
	}
}
