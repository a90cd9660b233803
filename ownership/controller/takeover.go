package controller

import (
	"time"
)

// Verdict is what gossip says about the process behind a session.
type Verdict uint8

// Unknown is also the verdict on a worker that does not gossip.
const (
	Unknown Verdict = iota
	Alive
	Suspected
	Dead
)

// String names the verdict as workers ls prints it.
func (v Verdict) String() string {
	switch v {
	case Alive:
		return "alive"
	case Suspected:
		return "suspect"
	case Dead:
		return "dead"
	}
	return "unknown"
}

// How long a broken stream may take to come back before it is a sign, and
// how often a worker that answered a probe is asked again meanwhile.
const (
	resumeFor    = 200 * time.Millisecond
	probeTimeout = 500 * time.Millisecond
	probeAgain   = time.Second
	missSlack    = 250 * time.Millisecond
)

// Signs is what is known about one session's liveness. Durations are ages.
type Signs struct {
	TTL time.Duration
	// Broken says that the session's stream has broken and not come back,
	// BrokenFor since when. A session that has not attached to this leader
	// yet is not broken.
	Broken    bool
	BrokenFor time.Duration
	// Silent is the time since the last keep-alive was committed.
	Silent time.Duration
	// Gossip is the member table's verdict on this process.
	Gossip Verdict
	// Probed says that a probe has ended since the stream broke or fell
	// silent, Answered what came of it, ProbedFor how long ago.
	Probed, Answered bool
	ProbedFor        time.Duration
}

// Judgement is what to do about a session.
type Judgement struct {
	// Dead: two independent signs agree, fenced leases may be taken back.
	Dead bool
	// Probe: ask gossip now.
	Probe bool
	// Wait: judge again after this long if nothing is heard; 0 for never.
	Wait time.Duration
}

// Judge decides whether a worker is known dead before its session has run
// out. It takes two independent signs: the stream broke and was not resumed,
// or two keep-alives in a row are missing; and gossip says dead, by its table
// or by a probe that nobody could get answered. One sign alone never suffices,
// and a worker without gossip is left to its TTL.
func Judge(s Signs) Judgement {
	missing := s.TTL/2 + missSlack // two intervals of TTL/4, and the way here
	broken := s.Broken && s.BrokenFor >= resumeFor
	silent := s.Silent >= missing
	dead := s.Gossip == Dead || s.Probed && !s.Answered

	var j Judgement
	switch {
	case s.Gossip == Unknown:
		return j
	case (broken || silent) && dead:
		j.Dead = true
		return j
	}
	if s.Broken || silent {
		// Ask at once, while the 200 ms run, so that the answer is there
		// when they are over.
		if s.Gossip != Dead && (!s.Probed || s.ProbedFor >= probeAgain) {
			j.Probe = true
		}
		j.Wait = probeAgain
	}
	if s.Broken && !broken {
		j.Wait = resumeFor - s.BrokenFor
	}
	if !silent && (j.Wait == 0 || missing-s.Silent < j.Wait) {
		j.Wait = missing - s.Silent
	}
	return j
}
