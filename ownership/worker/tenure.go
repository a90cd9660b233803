package worker

import (
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// maxJump is how far wall clock and boot clock may drift apart between two
// keep-alives before a lease counts as unconfirmed. Time servers slew by less.
const maxJump = time.Second

// reading is one look at both clocks.
type reading struct {
	boot time.Duration
	wall int64 // Unix nanoseconds
}

// jumped reports whether the clocks disagree about the time since an earlier
// reading: the sign of a pause that neither the boot clock nor a timer saw.
func (r reading) jumped(since reading) bool {
	d := time.Duration(r.wall-since.wall) - (r.boot - since.boot)
	return d > maxJump || d < -maxJump
}

// tenure is until when this process may work. The loop writes it, anybody
// reads it without a lock.
type tenure struct {
	clock bootclock.Clock
	wall  func() time.Time
	p     atomic.Pointer[confirmed]
	ttl   atomic.Int64 // of the session, as a time.Duration
}

// confirmed is what the last acknowledged keep-alive proved.
type confirmed struct {
	until time.Duration // boot clock
	sent  reading
}

func (t *tenure) read() reading {
	return reading{boot: t.clock.Now(), wall: t.wall().UnixNano()}
}

func (t *tenure) set(until, ttl time.Duration, sent reading) {
	t.ttl.Store(int64(ttl))
	t.p.Store(&confirmed{until: until, sent: sent})
}

func (t *tenure) clear() { t.p.Store(nil) }

// deadline is when contexts end as things stand, on the boot clock.
func (t *tenure) deadline() (time.Duration, bool) {
	c := t.p.Load()
	if c == nil {
		return 0, false
	}
	return c.until, true
}

// check is the part of Lease.Check that all leases share.
func (t *tenure) check() error {
	c := t.p.Load()
	if c == nil {
		return ErrExpired
	}
	now := t.read()
	if now.boot >= c.until {
		return ErrExpired
	}
	if now.jumped(c.sent) {
		return ErrUnconfirmed
	}
	return nil
}
