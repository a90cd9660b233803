package controller

import (
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// ActionKind is what a drain in progress needs.
type ActionKind uint8

const (
	// Retarget says that the receiver cannot receive any more, or there was none.
	Retarget ActionKind = iota + 1
	// TimedOut says that the handoff timeout has passed in fenced mode: take it back.
	TimedOut
	// Stuck says that it has passed in strict mode; only the holder or its session's
	// end can end the lease. Reported, and nobody waits for it.
	Stuck
)

// String names the kind.
func (k ActionKind) String() string {
	switch k {
	case Retarget:
		return "retarget"
	case TimedOut:
		return "revoke"
	case Stuck:
		return "stuck"
	}
	return "none"
}

// Action is what Step says about one drain in progress.
type Action struct {
	Kind ActionKind
	Move state.Move
	// Overdue is how long the deadline has passed.
	Overdue time.Duration
}

// Handoffs is the input of Step: the drains of one keyspace.
type Handoffs struct {
	Now      state.Clock
	Takeover state.Takeover
	Deleting bool
	Moves    []state.Move
	Workers  []Worker
}

// Step looks at every drain in progress and says what it needs, in the order
// of the moves; most need nothing. Each is looked at alone, so that a handler
// that never returns holds up nobody else. It also returns when the next
// deadline falls, 0 for none.
func Step(in Handoffs) (actions []Action, wake state.Clock) {
	bySession := make(map[state.SessionID]*Worker, len(in.Workers))
	for i := range in.Workers {
		bySession[in.Workers[i].Session] = &in.Workers[i]
	}
	for _, m := range in.Moves {
		overdue := in.Now - m.Deadline
		switch {
		case overdue >= 0 && in.Takeover == state.Fenced:
			actions = append(actions, Action{Kind: TimedOut, Move: m, Overdue: overdue})
			continue
		case overdue >= 0:
			actions = append(actions, Action{Kind: Stuck, Move: m, Overdue: overdue})
		default:
			wake = earliest(wake, m.Deadline)
		}
		if m.Reserve || in.Deleting {
			continue // meant for nobody
		}
		if w := bySession[m.Target]; m.Target == 0 || w == nil || !w.mayReceive() || w.thoughtDead(in.Now) {
			actions = append(actions, Action{Kind: Retarget, Move: m})
		}
	}
	return actions, wake
}

// earliest is the lesser of two times of which 0 means never.
func earliest(a, b state.Clock) state.Clock {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// mayReceive is the part of a grant's condition that is about the worker.
func (w *Worker) mayReceive() bool { return w.Standing == Live && !w.Drained }

// thoughtDead and doubted are gossip's say: believed for one TTL. A session
// that lives longer than that has renewed since, so gossip is wrong.
func (w *Worker) thoughtDead(now state.Clock) bool {
	return w.Gossip == Dead && now < w.GossipUntil
}

func (w *Worker) doubted(now state.Clock) bool {
	return w.Gossip >= Suspected && now < w.GossipUntil
}

// unsettled says until when a worker that opens sessions over and over must
// stay before it is refilled; 0 when it need not.
func (w *Worker) unsettled(now state.Clock) state.Clock {
	n := len(w.Opens)
	if n < unstableOpens || now-w.Opens[n-unstableOpens] > unstableWithin {
		return 0
	}
	if until := w.Opened + stableFor; now < until {
		return until
	}
	return 0
}
