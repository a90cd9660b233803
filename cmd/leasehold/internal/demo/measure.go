package demo

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Measures are the durations and counts read from the evidence.
type Measures struct {
	Crash, Pause, Handoff, Failover []time.Duration
	LeaderChangeMoves               int
	ThirdPartyGrants                int
	StaleRejected                   int
	Moves                           map[string]int // grants by cause
	// Unowned is, per partition of a rolling restart, how long nobody ran it.
	Unowned []time.Duration
	// Missing says in words what should have been there to measure.
	Missing []string
}

// causeRestart marks the drains of a rolling restart, whose next handler is
// not somebody else's: they are no handoffs.
const causeRestart = "restart"

// Measure reads the figures. all must be ordered as Tenures returns them.
func Measure(ev Evidence, all []*Tenure) Measures {
	m := Measures{Moves: map[string]int{}}
	byPartition := map[uint32][]*Tenure{}
	for _, t := range all {
		byPartition[t.Partition] = append(byPartition[t.Partition], t)
	}
	for _, process := range slices.Sorted(maps.Keys(ev)) {
		for _, r := range ev[process] {
			if r.Kind == KindRejected {
				m.StaleRejected++
			}
		}
	}
	var leaderKill time.Duration
	driver := ev[DriverProcess]
	for i, r := range driver {
		switch r.Kind {
		case KindKill:
			m.Crash = append(m.Crash, m.takeovers(byPartition, r)...)
		case KindStop:
			m.Pause = append(m.Pause, m.takeovers(byPartition, r)...)
		case KindDrain:
			if d, ok := handoff(byPartition[r.Partition], r); ok {
				m.Handoff = append(m.Handoff, d)
			}
		case KindRestart:
			m.restart(byPartition, r, windowEnd(driver[i:], KindRestarted, r.Process))
		case KindLeaderKill:
			leaderKill = r.At
			if d, ok := failover(ev, r.At); ok {
				m.Failover = append(m.Failover, d)
			} else {
				m.Missing = append(m.Missing, "no keep-alive was acknowledged after the leader's death")
			}
		case KindLeaderSettled:
			for _, t := range all {
				if t.Start > leaderKill && t.Start <= r.At {
					m.LeaderChangeMoves++
				}
			}
		case KindMove:
			m.Moves[r.Cause]++
		}
	}
	return m
}

// takeovers are, for each partition that a process held when it was sent a
// signal, how long it took until a handler of another process ran.
func (m *Measures) takeovers(byPartition map[uint32][]*Tenure, signal Record) []time.Duration {
	var took []time.Duration
	for _, p := range slices.Sorted(maps.Keys(byPartition)) {
		held := heldAt(byPartition[p], signal.Process, signal.At)
		if held == nil {
			continue
		}
		next := nextRunning(byPartition[p], held.Token, func(t *Tenure) bool { return t.Process != signal.Process })
		if next == nil {
			m.Missing = append(m.Missing, fmt.Sprintf("orders/%d of %s was not taken over after its %s", p, signal.Process, signal.Kind))
			continue
		}
		took = append(took, next.Running-signal.At)
	}
	return took
}

// heldAt is what a process held of a partition at a time.
func heldAt(tenures []*Tenure, process string, at time.Duration) *Tenure {
	for _, t := range tenures {
		if t.Process == process && t.Start <= at && at < t.End {
			return t
		}
	}
	return nil
}

// nextRunning is the first handler that ran under a token above the given one.
func nextRunning(tenures []*Tenure, above uint64, match func(*Tenure) bool) *Tenure {
	var next *Tenure
	for _, t := range tenures {
		if t.Token > above && t.Running > 0 && match(t) && (next == nil || t.Running < next.Running) {
			next = t
		}
	}
	return next
}

// handoff is the time from a drain to the next handler, when that runs in
// another process.
func handoff(tenures []*Tenure, drain Record) (time.Duration, bool) {
	if drain.Cause == causeRestart {
		return 0, false
	}
	next := nextRunning(tenures, drain.Token, func(*Tenure) bool { return true })
	if next == nil {
		return 0, false
	}
	for _, t := range tenures {
		if t.Token == drain.Token && t.Process == next.Process {
			return 0, false
		}
	}
	return next.Running - drain.At, true
}

// restart looks where the partitions of a restarted worker went: each must
// come back to the same worker id.
func (m *Measures) restart(byPartition map[uint32][]*Tenure, signal Record, end time.Duration) {
	for _, p := range slices.Sorted(maps.Keys(byPartition)) {
		held := heldAt(byPartition[p], signal.Process, signal.At)
		if held == nil {
			continue
		}
		back := false
		for _, t := range byPartition[p] {
			if t.Token <= held.Token || t.Start > end {
				continue
			}
			if t.Worker != held.Worker {
				m.ThirdPartyGrants++
			} else if t.Running > 0 && !back {
				back = true
				m.Unowned = append(m.Unowned, t.Running-held.End)
			}
		}
		if !back {
			m.Missing = append(m.Missing, fmt.Sprintf("orders/%d did not come back to %s after its restart", p, held.Worker))
		}
	}
}

// windowEnd is when the driver wrote the record that closes a window.
func windowEnd(driver []Record, kind Kind, process string) time.Duration {
	for _, r := range driver {
		if r.Kind == kind && r.Process == process {
			return r.At
		}
	}
	return 1<<63 - 1
}

// failover is the time from the leader's death to the first acknowledgement,
// by any worker, of a keep-alive that was sent after it: the dead leader
// cannot have given that.
func failover(ev Evidence, kill time.Duration) (time.Duration, bool) {
	var first time.Duration
	for _, records := range ev {
		for _, r := range records {
			if r.Kind == KindAck && r.Sent >= kill && (first == 0 || r.At < first) {
				first = r.At
			}
		}
	}
	return first - kill, first != 0
}
