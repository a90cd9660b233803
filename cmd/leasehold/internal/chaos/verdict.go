package chaos

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/latency"
)

// What the runner adds to the driver's evidence.
const (
	kindFault     demo.Kind = "fault"     // Cause says which
	kindRecovered demo.Kind = "recovered" // all is written to again; Sent is when the fault was healed
	kindProblem   demo.Kind = "problem"   // a broken promise that only the driver saw, Cause says which
	kindLeads     demo.Kind = "leads"     // server Worker says that it leads in term Token
)

// Verdict is what a run has left behind.
type Verdict struct {
	Mode                          demo.Mode
	Seed                          int64
	Took                          time.Duration
	Faults                        map[string]int
	Orders                        int // accepted writes
	Rejected                      int // stale writes that the guard refused
	Contexts                      int // intervals in which a worker held a partition
	Overlaps, OverlapsWhilePaused int
	Grants                        int // tokens compared with the one before
	Takeovers                     int // grants because a worker was gone
	Waited                        int // takeovers held against the TTL of who was there before
	Terms                         int // of leaders that were seen
	Crash                         latency.Summary
	Recovery                      latency.Summary
	// Problems are what breaks the promises, in words; empty when they hold.
	Problems []string
}

// OK says whether every promise held.
func (v *Verdict) OK() bool { return len(v.Problems) == 0 }

// faults is how many there were.
func (v *Verdict) faults() (n int) {
	for _, of := range v.Faults {
		n += of
	}
	return n
}

// PerHour is how many faults an hour there were.
func (v *Verdict) PerHour() float64 { return float64(v.faults()) / v.Took.Hours() }

// Print writes the counts, and what is wrong.
func (v *Verdict) Print(w io.Writer) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("%s takeover, seed %d: %d faults in %v, %.0f an hour", v.Mode, v.Seed, v.faults(), v.Took.Round(time.Second), v.PerHour())
	var kinds []string
	for _, f := range slices.Sorted(maps.Keys(v.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", f, v.Faults[f]))
	}
	line("  faults      %s", strings.Join(kinds, ", "))
	line("  ops         %d orders accepted, %d stale writes rejected", v.Orders, v.Rejected)
	line("  intervals   %d contexts, %d pairs live at once, %d more while one was paused", v.Contexts, v.Overlaps, v.OverlapsWhilePaused)
	line("  takeovers   %d of %d grants; %d held against the TTL; crash → next handler p50 %.0f ms, max %.0f ms",
		v.Takeovers, v.Grants, v.Waited, v.Crash.P50, v.Crash.Max)
	line("  leaders     in %d terms", v.Terms)
	line("  recovery    heal → all written to p50 %.0f ms, p99 %.0f ms, max %.0f ms", v.Recovery.P50, v.Recovery.P99, v.Recovery.Max)
	for _, p := range v.Problems {
		line("  PROBLEM     %s", p)
	}
}

func (v *Verdict) blame(broken bool, format string, args ...any) {
	if broken && len(v.Problems) < 40 {
		v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
	}
}

// Judge says what the ledger and the evidence of a run prove. It is pure.
func Judge(run RunRecord, audit demo.Audit, ev demo.Evidence) Verdict {
	all := demo.Tenures(ev, demo.Deadlines{TTL: ttl}, run.End)
	overlaps, m := demo.CountOverlaps(all), demo.Measure(ev, all)
	v := Verdict{
		Mode: run.Mode, Seed: run.Seed, Took: run.Took, Faults: map[string]int{}, Orders: audit.Written, Rejected: m.StaleRejected,
		Contexts: overlaps.Checked, Overlaps: overlaps.Live, OverlapsWhilePaused: overlaps.Paused, Crash: latency.Summarise(m.Crash),
		Takeovers: m.Moves["expired"] + m.Moves["crash"],
	}
	v.ledger(audit)
	v.driver(ev[demo.DriverProcess])
	v.grants(ev[demo.DriverProcess], all)
	if run.Mode == demo.Strict {
		v.overlaps(overlaps)
		v.waits(ev, all)
	}
	v.notEmpty(run)
	return v
}

// ledger: every order once and in sequence, no write under an older token.
func (v *Verdict) ledger(a demo.Audit) {
	v.blame(a.Missing > 0, "%d orders are missing", a.Missing)
	v.blame(a.Duplicated > 0, "%d orders were written twice", a.Duplicated)
	v.blame(a.OutOfSequence > 0, "%d orders are out of sequence", a.OutOfSequence)
	v.blame(a.TokenRegressions > 0, "%d writes were accepted below an accepted token", a.TokenRegressions)
	v.blame(a.Foreign > 0, "%d rows are no orders that were sent", a.Foreign)
	for _, example := range a.Examples {
		v.blame(true, "%s", example)
	}
}

// overlaps: no two contexts of a strict partition live at once.
func (v *Verdict) overlaps(o demo.Overlaps) {
	v.blame(o.Live > 0, "%d pairs of contexts were live at once", o.Live)
	for _, pair := range o.Examples {
		v.blame(true, "orders/%d: %s (token %d) and %s (token %d) were live at once",
			pair[0].Partition, pair[0].Process, pair[0].Token, pair[1].Process, pair[1].Token)
	}
}

// driver reads what the runner did and saw: its own problems, and at most one
// leader in each term.
func (v *Verdict) driver(records []demo.Record) {
	leaders := map[uint64]string{}
	var recovery []time.Duration
	for _, r := range records {
		switch r.Kind {
		case kindFault:
			v.Faults[r.Cause]++
		case kindProblem:
			v.blame(true, "%s", r.Cause)
		case kindRecovered:
			recovery = append(recovery, r.At-r.Sent)
		case kindLeads:
			other, ok := leaders[r.Token]
			v.blame(ok && other != r.Worker, "%s and %s both led in term %d", other, r.Worker, r.Token)
			leaders[r.Token] = r.Worker
		}
	}
	v.Terms, v.Recovery = len(leaders), latency.Summarise(recovery)
}

// grants: tokens only rise, over all partitions, and a context has a token
// that was granted to its worker, in one process only.
func (v *Verdict) grants(records []demo.Record, all []*demo.Tenure) {
	granted := map[uint64]demo.Record{}
	var last uint64
	for _, r := range records {
		if r.Kind != demo.KindMove {
			continue
		}
		v.Grants++
		v.blame(r.Token <= last, "orders/%d: token %d was granted after %d", r.Partition, r.Token, last)
		last = max(last, r.Token)
		granted[r.Token] = r
	}
	used := map[uint64]*demo.Tenure{}
	for _, t := range all {
		g, ok := granted[t.Token]
		v.blame(!ok, "orders/%d: %s runs under token %d, which was never granted", t.Partition, t.Process, t.Token)
		v.blame(ok && (g.Partition != t.Partition || g.Worker != t.Worker), "orders/%d: %s runs under token %d, which was granted to %s for orders/%d",
			t.Partition, t.Process, t.Token, g.Worker, g.Partition)
		if before := used[t.Token]; before != nil {
			v.blame(true, "orders/%d: %s and %s both run under token %d", t.Partition, before.Process, t.Process, t.Token)
		}
		used[t.Token] = t
	}
}

// waits: nobody takes over a strict partition before a TTL has passed since
// the last keep-alive of a worker that has not ended its context itself.
// Clocks may be 1 % apart.
func (v *Verdict) waits(ev demo.Evidence, all []*demo.Tenure) {
	const least = ttl - ttl/100
	byToken := slices.SortedFunc(slices.Values(all), func(a, b *demo.Tenure) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Token, b.Token))
	})
	for i, next := range byToken {
		if i == 0 || byToken[i-1].Partition != next.Partition {
			continue
		}
		held := byToken[i-1]
		sent, gaveUp := lastKeepAlive(ev[held.Process], held.Token, next.Start)
		if held.Process == next.Process || gaveUp || sent == 0 {
			continue
		}
		v.Waited++
		v.blame(next.Start < sent+least, "orders/%d: %s took over from %s %v after its last keep-alive, before the TTL of %v",
			next.Partition, next.Process, held.Process, next.Start-sent, ttl)
	}
}

// lastKeepAlive is when a process sent the last keep-alive that was
// acknowledged by then, and whether it had let go of a lease, or was about to.
func lastKeepAlive(records []demo.Record, token uint64, by time.Duration) (sent time.Duration, gaveUp bool) {
	for _, r := range records {
		if r.At > by {
			continue
		}
		switch r.Kind {
		case demo.KindAck:
			sent = max(sent, r.Sent)
		case demo.KindDraining, demo.KindEnd, demo.KindReturn:
			gaveUp = gaveUp || r.Token == token
		}
	}
	return sent, gaveUp
}

// minPerHour is how many faults an hour a run has at least.
const minPerHour = 300

// notEmpty: what held must have been put to the test.
func (v *Verdict) notEmpty(run RunRecord) {
	v.blame(v.Orders == 0, "no order was written")
	v.blame(v.faults() == 0, "no fault was made")
	v.blame(run.Took >= time.Minute && v.PerHour() < minPerHour, "%.0f faults an hour, fewer than %d", v.PerHour(), minPerHour)
	v.blame(v.Contexts < int(run.Source.Partitions), "only %d contexts are in evidence, of %d partitions", v.Contexts, run.Source.Partitions)
	v.blame(v.Grants < v.Contexts, "only %d grants are in evidence, of %d contexts", v.Grants, v.Contexts)
	v.blame(v.Terms == 0, "no leader was seen")
	v.blame(v.Faults[string(StopWorker)] > 0 && v.Rejected == 0, "no stale write was rejected")
	v.blame(v.Faults[string(KillWorker)]+v.Faults[string(StopWorker)] > 0 && v.Takeovers == 0, "no takeover was seen")
}
