package worker

import (
	"log/slog"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Bounds of how often the clock is looked at. A single timer for the deadline
// would fire late after a suspend; a look every so often cannot be far off.
const (
	minPoll = 50 * time.Millisecond
	maxPoll = time.Second
)

// pollOf is a fifth of the margin.
func pollOf(ttl time.Duration) time.Duration {
	return min(max(marginOf(ttl)/5, minPoll), maxPoll)
}

// patienceOf is how long a stream may leave a keep-alive without an answer. One
// that was answered another way does not count: the stream must do its part, or
// leases granted and drained go unheard.
func patienceOf(ttl time.Duration) time.Duration { return max(ttl/4, time.Second) }

// streamAnswered notes that the stream acknowledged a keep-alive.
func (c *core) streamAnswered() { c.askedAt = 0 }

// tick does what the time has come for. It ends every step.
func (c *core) tick(now reading) {
	s := &c.session
	c.pauses.look(now.boot)
	if s.opened {
		if s.lapsed(now.boot) && !c.lapsed {
			c.expire(now)
		}
		c.drainTimeouts(now)
		if !c.barred {
			c.warn(now)
			c.keepAlives(now)
		}
	}
	if len(c.ending) > 0 {
		c.overrunning(now)
	}
	c.sayRefused(now)
	c.leaveTick(now)
	c.flushReleases()
}

// wake is how long the loop may sleep if nothing else happens. It promises that
// the loop does not sleep for longer.
func (c *core) wake(now reading) time.Duration {
	s := &c.session
	d := pollOf(s.ttl)
	if s.opened {
		if c.attached {
			d = min(d, s.nextAt-now.boot)
		}
		if !c.lapsed {
			d = min(d, s.until-now.boot)
		}
	}
	d = max(d, time.Millisecond)
	c.pauses.promise(now.boot + d)
	return d
}

// warn says, before it is too late, that something is wrong.
func (c *core) warn(now reading) {
	s := &c.session
	if !c.overdue && s.overdue(now.boot) {
		c.overdue = true
		c.log(slog.LevelWarn, "renewal overdue: no keep-alive was acknowledged for half the TTL",
			"since", now.boot-s.confirmed.boot, "left", s.until-now.boot, "attached", c.attached)
	}
	if !c.jumped && now.jumped(s.confirmed) {
		c.jumped = true
		s.nextAt = now.boot
		c.log(slog.LevelWarn, "wall clock and boot clock disagree: leases are unconfirmed until the next keep-alive",
			"boot", now.boot-s.confirmed.boot, "wall", time.Duration(now.wall-s.confirmed.wall))
	}
}

func (c *core) drainTimeouts(now reading) {
	for l := range c.draining {
		if now.boot < l.slot.drainAt {
			continue
		}
		c.log(slog.LevelWarn, "handler did not return in the time to drain",
			"keyspace", l.space.name, "partition", l.partition, "token", uint64(l.token))
		c.end(l, ErrDrainTimeout, now)
	}
}

// keepAlives sends what is due: on the stream every quarter of the TTL, and
// round through another server when there is no stream or no answer.
func (c *core) keepAlives(now reading) {
	s := &c.session
	if c.attached && now.boot >= s.nextAt {
		s.nextAt = now.boot + intervalOf(s.ttl)
		if c.askedAt == 0 {
			c.askedAt = max(now.boot, 1)
		}
		c.out.send = append(c.out.send, &leaseholdv1.AttachRequest{
			Request: &leaseholdv1.AttachRequest_KeepAlive{KeepAlive: c.keepAlive(now)},
		})
	}
	silence := s.silence(now.boot)
	if c.attached && c.askedAt > 0 && now.boot-c.askedAt >= patienceOf(s.ttl) {
		c.drop("no answer to keep-alives")
	}
	due := silence >= s.ttl/8 || !c.attached && now.boot >= s.nextAt
	if due && !c.relaying && now.boot >= c.relayAt {
		c.relaying = true
		c.relayAt = now.boot + s.ttl/8
		if !c.attached {
			s.nextAt = now.boot + intervalOf(s.ttl)
		}
		c.out.relay = c.keepAlive(now)
	}
}

func (c *core) keepAlive(now reading) *leaseholdv1.KeepAliveRequest {
	c.told = c.lost
	return &leaseholdv1.KeepAliveRequest{
		SessionId:         c.session.id,
		Seq:               c.session.number(now),
		Running:           uint32(c.live),
		RunningHash:       c.hash,
		Overruns:          c.overruns,
		FencingChecks:     c.fencing.Checks(),
		FencingRejections: c.fencing.Rejections(),
		Ready:             uint32(max(c.ready.Load(), 0)),
		LongestPauseMs:    c.pauses.max().Milliseconds(),
		Rejections: &leaseholdv1.FencingRejections{
			StaleToken: c.fencing.Stale(), OtherOwner: c.fencing.OtherOwner(),
		},
		Lost:    c.lost.message(),
		Process: c.process,
	}
}

// drop closes the stream and has another one looked for.
func (c *core) drop(why string) {
	c.detached()
	c.out.drop = why
	c.log(slog.LevelWarn, "stream dropped", "cause", why)
}

// relayed takes the end of a keep-alive that went round.
func (c *core) relayed(session uint64, m *leaseholdv1.KeepAliveResponse, d *leaseholdv1.ErrorDetail, now reading) {
	c.relaying = false
	if session != c.session.id {
		return
	}
	if m != nil {
		c.acked(m, now)
		return
	}
	// The next try goes to another server, soon but not at once.
	c.relayAt = now.boot + time.Duration((0.5+c.rand())*float64(min(max(c.session.ttl/16, 100*time.Millisecond), time.Second)))
	switch verdictOf(d) {
	case verdictGone, verdictSuperseded, verdictEvicted:
		c.closed(d, now)
	case verdictOtherCluster:
		if !c.attached {
			c.closed(d, now)
		}
	}
}
