package worker

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Times of an orderly end.
const (
	// drainWait is how long the servers have to answer a leave with drains:
	// they choose the receivers first, and a release then is a handoff.
	drainWait = time.Second
	// goodbyeWait is how long the worker waits, with no handler left, for the
	// servers to confirm what it gave back. After it, the TTL ends the session.
	goodbyeWait = 5 * time.Second
	// lateGoodbye is the same for a session that is barred.
	lateGoodbye = time.Second
)

// leaving is the state of the end.
type leaving struct {
	on      bool
	restart bool
	local   bool // drained without the servers
	aborted bool
	closed  bool // the servers have confirmed

	since   time.Duration
	boundAt time.Duration // contexts that are left end then
	hardAt  time.Duration // after abort: nobody is waited for any longer
	idleAt  time.Duration // when the last handler had returned; 0: not yet
	err     error         // why, unless it was wished for
}

// leave begins the end. A second call can only bring it forward.
func (c *core) leave(restart bool, bound time.Duration, now reading) {
	v := &c.leaving
	if v.on {
		v.boundAt = min(v.boundAt, now.boot+bound)
		return
	}
	v.on, v.restart = true, restart
	v.since, v.boundAt = now.boot, now.boot+bound
	if !c.session.opened {
		if v.err == nil && !c.everOpened {
			v.err = errNoSession
		}
		return
	}
	c.log(slog.LevelInfo, "leaving", "leases", c.live, "restart", restart)
	c.sendLeave()
	// Nothing is started from now on.
	for _, sp := range c.spaces {
		for _, l := range sp.held {
			if l.slot.live && l.slot.phase != phaseRunning {
				c.drain(l, 0, now)
			}
		}
	}
}

func (c *core) sendLeave() {
	c.send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Leave{
		Leave: &leaseholdv1.LeaveSession{Restart: c.leaving.restart},
	}})
}

// abort ends all contexts that are left.
func (c *core) abort(cause error, now reading) {
	v := &c.leaving
	if v.aborted {
		return
	}
	v.aborted = true
	v.hardAt = now.boot + c.session.grace + marginOf(c.session.ttl)
	for _, sp := range c.spaces {
		for _, l := range sp.held {
			c.end(l, cause, now)
		}
	}
}

// leaveTick moves the end on.
func (c *core) leaveTick(now reading) {
	v := &c.leaving
	if !v.on || c.out.done {
		return
	}
	if !v.local && !v.aborted && now.boot >= v.since+drainWait {
		v.local = true
		for _, sp := range c.spaces {
			for _, l := range sp.held {
				c.drain(l, v.boundAt-now.boot, now)
			}
		}
	}
	if !v.aborted && now.boot >= v.boundAt {
		c.abort(ErrShutdown, now)
	}
	if c.running > 0 {
		if v.aborted && now.boot >= v.hardAt {
			c.finish(fmt.Errorf("stop worker: %w: %s", ErrHandlersRunning, c.stuck()))
		}
		return
	}
	if v.idleAt == 0 {
		v.idleAt = max(now.boot, 1)
	}
	wait := goodbyeWait
	owed := len(c.pending) > 0 || len(c.relKeys) > 0
	if c.barred {
		// Nobody confirms the releases of a barred session: they are on their
		// way when there is a stream.
		wait, owed = lateGoodbye, owed && !c.attached
	}
	switch {
	case v.closed, !c.session.opened && !c.opening, c.barred && !owed:
		// A session that may have been opened is closed first: nobody would
		// work under it for a TTL.
		c.finish(nil)
	case now.boot >= v.idleAt+wait:
		if v.err == nil {
			c.log(slog.LevelWarn, "left without the servers' confirmation: the session ends with its TTL")
		}
		c.finish(nil)
	}
}

func (c *core) finish(err error) {
	c.lastRefused()
	c.tenure.clear()
	c.out.done = true
	switch {
	case c.leaving.err == nil:
		c.out.err = err
	case err == nil:
		c.out.err = c.leaving.err
	default:
		c.out.err = fmt.Errorf("%w; %w", c.leaving.err, err)
	}
}

// stuck names the partitions whose handlers have not returned.
func (c *core) stuck() string {
	var names []string
	for l := range c.ending {
		names = append(names, fmt.Sprintf("%s/%d", l.space.name, l.partition))
	}
	slices.Sort(names)
	if len(names) > 8 {
		names = append(names[:8], fmt.Sprintf("and %d more", len(names)-8))
	}
	return strings.Join(names, ", ")
}
