package worker

import (
	"errors"
	"log/slog"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// slot is what the loop keeps of a lease. A lease is live from its grant to the
// end of its context; it is held (space.held) until it has been given back.
//
//	granted → waiting → claiming → running → over
//	             └─ ended before it started ──┘
type slot struct {
	phase    phase
	live     bool
	claimed  bool
	draining bool
	overrun  bool
	serial   uint32        // of the last full list that had it
	endedAt  time.Duration // when the context ended
	overAt   time.Duration // when the handler counts as an overrun
	drainAt  time.Duration // when a drain's time is over
	cause    error         // why the context ended
}

// accept takes one granted lease.
func (c *core) accept(l *Lease, now reading) {
	sp, p := l.space, l.partition
	if cur := sp.held[p]; cur != nil {
		// The servers would not grant it anew if the old one were not over.
		c.end(cur, ErrRevoked, now)
		c.giveUp(cur)
	}
	c.highest = max(c.highest, l.token)
	l.draining = make(chan struct{})
	l.slot = slot{phase: phaseWaiting, live: true, serial: c.serial}
	sp.held[p] = l
	if c.tellGrants {
		c.out.granted = append(c.out.granted, l)
	}
	c.live++
	c.hash ^= leaseholdv1.LeaseHash(sp.id, p, uint64(l.token))
	r := c.runs[sp.name]
	old := sp.old[p]
	switch {
	case r == nil || c.leaving.on:
		c.refuse(l, "no handler for this keyspace", now)
	case old != nil && old.slot.overrun:
		c.refuse(l, "an old handler has not returned", now)
	default:
		c.tryStart(l, now)
	}
}

// refuse gives a lease back that was never started.
func (c *core) refuse(l *Lease, why string, now reading) {
	c.endLive(l, ErrReturned, now)
	c.release(l, leaseholdv1.ReleaseCause_RELEASE_CAUSE_REFUSED, why)
}

// tryStart moves a waiting lease on as far as it can go.
func (c *core) tryStart(l *Lease, now reading) {
	s := &l.slot
	if s.phase != phaseWaiting || !s.live || c.leaving.on || c.lapsed || c.session.lapsed(now.boot) {
		return
	}
	if l.space.old[l.partition] != nil {
		return
	}
	r := c.runs[l.space.name]
	if r == nil {
		return
	}
	if r.guard != nil && !s.claimed {
		s.phase = phaseClaiming
		c.out.claim = append(c.out.claim, l)
		return
	}
	s.phase = phaseRunning
	c.running++
	c.out.start = append(c.out.start, l)
}

// startWaiting looks again at all that could not start before.
func (c *core) startWaiting(now reading) {
	for _, sp := range c.spaces {
		for _, l := range sp.held {
			c.tryStart(l, now)
		}
	}
}

// claimed takes the answer of a guard: nil, or why it refused.
func (c *core) claimed(l *Lease, stale *fence.StaleError, now reading) {
	if l.slot.phase != phaseClaiming || !l.slot.live {
		return // ended meanwhile; the next owner claims a higher token
	}
	l.slot.phase = phaseWaiting
	if stale == nil {
		l.slot.claimed = true
		c.tryStart(l, now)
		return
	}
	c.log(slog.LevelWarn, "claim refused", "keyspace", l.space.name, "partition", l.partition,
		"token", uint64(l.token), "current", uint64(stale.Current), "cause", stale.Reason)
	c.endLive(l, ErrRevoked, now)
	c.release(l, leaseholdv1.ReleaseCause_RELEASE_CAUSE_CLAIM_REFUSED, stale.Error())
	if stale.Current > l.token {
		c.report(stale.Current)
	}
}

// drain asks the handler to finish within left.
func (c *core) drain(l *Lease, left time.Duration, now reading) {
	s := &l.slot
	if !s.live || s.draining {
		return
	}
	s.draining = true
	if s.phase != phaseRunning {
		c.endLive(l, ErrReturned, now)
		c.release(l, leaseholdv1.ReleaseCause_RELEASE_CAUSE_DRAINED, "")
		return
	}
	s.drainAt = now.boot + left
	l.drainBy.Store(now.wall + int64(left))
	close(l.draining)
	c.draining[l] = struct{}{}
}

// end ends a lease's context, or makes sure that it never starts, and gives the
// lease back as soon as its mode allows: a strict one when the handler has
// returned, a fenced one at once.
func (c *core) end(l *Lease, cause error, now reading) {
	if !l.slot.live {
		return
	}
	started := l.slot.phase == phaseRunning
	c.endLive(l, cause, now)
	if !started || l.space.fenced {
		c.release(l, leaseholdv1.ReleaseCause_RELEASE_CAUSE_ENDED, "")
	}
}

// endLive is the end of a context alone.
func (c *core) endLive(l *Lease, cause error, now reading) {
	s := &l.slot
	if !s.live {
		return
	}
	s.live = false
	s.endedAt, s.cause = now.boot, cause
	c.live--
	c.hash ^= leaseholdv1.LeaseHash(l.space.id, l.partition, uint64(l.token))
	l.cause.Store(&cause)
	delete(c.draining, l)
	if s.phase == phaseRunning {
		s.overAt = now.boot + c.overrunAfter()
		c.ending[l] = struct{}{}
		c.out.end = append(c.out.end, ended{l, now.boot})
		return
	}
	s.phase = phaseOver
}

// giveUp takes a lease out of those held. If its handler still runs, the
// partition waits for it.
func (c *core) giveUp(l *Lease) {
	sp := l.space
	if sp.held[l.partition] == l {
		delete(sp.held, l.partition)
	}
	if l.slot.phase == phaseRunning {
		sp.old[l.partition] = l
	}
}

// expire ends every context because the deadline has passed. Nothing that was
// not started is kept either: it is not held any more.
func (c *core) expire(now reading) {
	c.lapsed = true
	if c.live == 0 {
		return
	}
	c.log(slog.LevelError, "leases expired: no keep-alive was acknowledged in time",
		"leases", c.live, "since", now.boot-c.session.confirmed.boot)
	for _, sp := range c.spaces {
		for _, l := range sp.held {
			c.end(l, ErrExpired, now)
		}
	}
}

// overrunAfter is how long after the end of its context a handler counts as an
// overrun: before the servers can give the partition away.
func (c *core) overrunAfter() time.Duration {
	return c.session.grace + marginOf(c.session.ttl)/2
}

// overrunning finds handlers that have not returned in time.
func (c *core) overrunning(now reading) {
	for l := range c.ending {
		if l.slot.overrun || now.boot < l.slot.overAt {
			continue
		}
		l.slot.overrun = true
		c.overruns++
		c.out.overrun = append(c.out.overrun, overrun{l, now.boot - l.slot.endedAt})
		sp := l.space
		if sp.held[l.partition] == l {
			if errors.Is(l.slot.cause, ErrExpired) {
				// Time has ended it at the servers, or is about to. Holding on
				// would keep the partition from everybody for as long as the
				// session lives.
				c.release(l, leaseholdv1.ReleaseCause_RELEASE_CAUSE_ENDED, "")
			}
			continue
		}
		if next := sp.held[l.partition]; next != nil && next.slot.live {
			c.refuse(next, "an old handler has not returned", now)
		}
	}
}
