package controller

import (
	"errors"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// readEvents goes through what has happened since it was called last: it marks
// the keyspaces that need a plan and remembers why partitions lost their
// owners. It says whether there was anything.
func (t *term) readEvents(now time.Duration) (moved bool) {
	for {
		var err error
		var newest uint64
		t.events = t.events[:0]
		t.c.cfg.Store.View(func(s *state.State) {
			newest = s.Revision()
			t.clock = max(t.clock, s.Now())
			if !t.begun && t.revision == 0 {
				t.revision = newest - min(newest, history)
			}
			if t.revision < newest {
				t.events, err = s.Events(t.revision, eventsAtOnce, t.events)
			}
		})
		if err != nil {
			// The ledger has moved on past what was read: look at everything.
			var r *state.Refusal
			if errors.As(err, &r) && r.Revision > t.revision {
				t.revision = r.Revision
			} else {
				t.revision = newest
			}
			t.dirtyAll()
			moved = true
			continue
		}
		for i := range t.events {
			t.note(&t.events[i], now)
		}
		if n := len(t.events); n > 0 {
			t.revision = t.events[n-1].Revision
			moved = true
		}
		if len(t.events) < eventsAtOnce {
			t.countMoves()
			t.clock = max(t.clock, t.viewClock())
			return moved
		}
	}
}

// viewClock carries the logical clock on to this moment.
func (t *term) viewClock() state.Clock {
	var now state.Clock
	t.c.cfg.Store.View(func(s *state.State) { now = s.Now() })
	return now + t.p.Ahead()
}

func (t *term) dirtyAll() {
	for _, s := range t.spaces {
		s.dirty = true
	}
}

// note takes in one event.
func (t *term) note(e *state.Event, now time.Duration) {
	if e.Keyspace == 0 {
		// A session or a worker: which keyspaces it concerns, the view knows.
		switch e.Kind {
		case state.KindLeader, state.KindTokenRaise:
			return
		case state.KindSessionBar:
			t.barred[e.Session] = e.Cause
		case state.KindSessionExpire, state.KindSessionClose:
			delete(t.barred, e.Session)
		}
		t.dirtyAll()
		return
	}
	s := t.space(e.Keyspace)
	s.dirty = true
	switch e.Kind {
	case state.KindGrant:
		t.noteGrant(s, e, now)
	case state.KindDrain:
		if _, ok := s.drainAt[e.Partition]; !ok {
			s.drainAt[e.Partition] = now
		}
	case state.KindRelease, state.KindExpire, state.KindRevoke:
		t.noteLoss(s, e, now)
	case state.KindKeyspaceGone:
		delete(t.spaces, e.Keyspace)
	}
}

// countMoves passes on what noteGrant has counted.
func (t *term) countMoves() {
	for _, s := range t.spaces {
		for c, n := range s.moved {
			if n > 0 {
				t.c.cfg.Metrics.Moved(s.name, state.Cause(c), n)
				s.moved[c] = 0
			}
		}
	}
}

func (t *term) noteGrant(s *space, e *state.Event, now time.Duration) {
	s.setLost(e.Partition, state.CauseNone)
	lost, wasLost := s.lostAt[e.Partition]
	drained, wasDrained := s.drainAt[e.Partition]
	delete(s.lostAt, e.Partition)
	delete(s.drainAt, e.Partition)
	if !t.begun || s.name == "" {
		return // what another leader did is counted there
	}
	if int(e.Cause) < len(s.moved) {
		s.moved[e.Cause]++
	}
	m := t.c.cfg.Metrics
	switch {
	case wasDrained:
		m.Handoff(s.name, e.Cause, now-drained)
	case wasLost:
		m.Takeover(s.name, e.Cause, now-lost)
	}
}

// noteLoss remembers why and since when a partition is unowned, and slows down
// one that is given back over and over.
func (t *term) noteLoss(s *space, e *state.Event, now time.Duration) {
	cause := e.Cause
	if c, ok := t.barred[e.Session]; ok && cause == state.CauseEnded {
		cause = c // its worker has noticed, and says no more than that
	}
	s.setLost(e.Partition, cause)
	since := now
	if w := t.watched[e.Session]; w != nil && e.Kind != state.KindRelease {
		since = w.since(now)
	}
	s.lostAt[e.Partition] = since
	if e.Kind != state.KindRelease {
		delete(s.drainAt, e.Partition)
		return
	}
	if drained, ok := s.drainAt[e.Partition]; ok && t.begun && s.name != "" {
		t.c.cfg.Metrics.Drained(s.name, now-drained)
	}
	switch e.Cause {
	case state.CauseYield, state.CauseRefused, state.CauseClaimRefused, state.CauseEnded:
	default:
		return
	}
	f := s.flaps[e.Partition]
	if f.count > 0 && t.clock-f.last > flapWithin {
		f.count = 0
	}
	f.count++
	f.last = t.clock
	s.flaps[e.Partition] = f
	if f.count > 1 {
		// The first time may be anything; from the second on it is a habit.
		s.hold[e.Partition] = t.clock + min(100*time.Millisecond<<min(f.count-2, 10), flapMost)
	}
}

// setLost keeps one byte per partition, once something has been lost.
func (s *space) setLost(p uint32, c state.Cause) {
	if int(p) >= len(s.lost) {
		if c == state.CauseNone {
			return
		}
		s.lost = append(s.lost, make([]state.Cause, int(p)+1-len(s.lost))...)
	}
	s.lost[p] = c
}

// prune drops timers that have passed.
func (s *space) prune(now state.Clock) {
	for p, until := range s.cool {
		if until <= now {
			delete(s.cool, p)
		}
	}
	for p, until := range s.hold {
		if until <= now {
			delete(s.hold, p)
		}
	}
	for p, f := range s.flaps {
		if now-f.last > flapWithin+flapMost {
			delete(s.flaps, p)
		}
	}
}
