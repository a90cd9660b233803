package state

import (
	"math"
	"time"
)

const sweepEvery = 10 * time.Second

// advance moves the logical clock by what the leader measured since its
// previous clock entry. The first one of a term counts nothing, since what
// passed between two leaders was measured by neither, and one that was built
// in another term counts nothing either. So the clock never runs ahead of
// real time, and a session never expires early.
func (s *State) advance(term uint64, elapsed time.Duration) {
	if term == s.term && s.clockTerm == s.term && elapsed > 0 {
		s.clock += min(elapsed, MaxElapsed)
	}
	s.clockTerm = s.term
	for _, x := range s.fresh {
		x.fresh = false
		x.renewed = s.clock
		x.Deadline = max(x.Deadline, later(s.clock, x.TTL))
	}
	clear(s.fresh)
	s.fresh = s.fresh[:0]
	if s.clock >= s.nextSweep {
		s.nextSweep = s.clock + sweepEvery
		s.sweep()
	}
}

// refresh lets the deadline of a session count from the next clock entry. One
// that was opened, or renewed in an entry whose time did not count, was so at
// some time after the last clock entry: the next one adds time from before
// it, and the session would expire early by as much.
func (s *State) refresh(x *Session) {
	if !x.fresh {
		x.fresh = true
		s.fresh = append(s.fresh, x)
	}
}

// sweep clears away what has aged: slots past their time, suspects that have
// proved themselves, workers that have not been seen for long.
func (s *State) sweep() {
	for _, k := range s.keyspaceOrder {
		k.dropSlots()
		s.absolve(k)
	}
	s.pruneWorkers()
}

// later is a reading of the clock d after now, at most the last one there is:
// a lease may be granted for longer than the clock can tell.
func later(now Clock, d time.Duration) Clock {
	if now > math.MaxInt64-d {
		return math.MaxInt64
	}
	return now + d
}

// seconds is the clock as the lease tables keep it.
func (s *State) seconds() uint32 { return seconds(s.clock) }

func seconds(c Clock) uint32 { return uint32(c / time.Second) }

// youngAt says whether a lease that began at since was still on probation
// when its session was last known to live, both in seconds of the clock.
func youngAt(since, alive uint32) bool {
	return since+uint32(ProbationTime/time.Second) > alive
}
