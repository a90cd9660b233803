package sidecar

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// marginOf is what the worker takes off the TTL, as its documentation says.
func marginOf(ttl time.Duration) time.Duration { return max(ttl/20, 250*time.Millisecond) }

// deadline is until when commands may live as far as a keep-alive has proven:
// its send time plus TTL less the margin, on the boot clock. It is the last
// line, for when this process cannot act: contexts end a stop grace earlier.
type deadline struct {
	clock bootclock.Clock
	tell  func(until time.Duration) // the keeper

	mu      sync.Mutex
	sent    time.Duration
	ttl     time.Duration
	until   time.Duration
	changed chan struct{} // closed at each change
}

func newDeadline(clock bootclock.Clock, ttl time.Duration, tell func(time.Duration)) *deadline {
	return &deadline{clock: clock, ttl: ttl, tell: tell, changed: make(chan struct{})}
}

// proven takes the send time of an acknowledged keep-alive, or a time before
// the session was asked for.
func (d *deadline) proven(sent time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = max(d.sent, sent)
	d.setLocked()
}

// setTTL takes the TTL of the session, which another one may have changed.
func (d *deadline) setTTL(ttl time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ttl > 0 && ttl != d.ttl {
		d.ttl = ttl
		d.setLocked()
	}
}

func (d *deadline) setLocked() {
	until := d.sent + d.ttl - marginOf(d.ttl)
	if until == d.until {
		return
	}
	d.until = until
	d.tell(until)
	close(d.changed)
	d.changed = make(chan struct{})
}

// ahead waits until the deadline is in the future. It is not, for up to a
// quarter of the TTL, when a session has been opened anew: the first keep-alive
// of that one has yet to be acknowledged.
func (d *deadline) ahead(ctx context.Context, stop <-chan struct{}) (until time.Duration, ok bool) {
	for {
		d.mu.Lock()
		until, changed := d.until, d.changed
		d.mu.Unlock()
		if until > d.clock.Now() {
			return until, true
		}
		select {
		case <-changed:
		case <-stop:
			return 0, false
		case <-ctx.Done():
			return 0, false
		}
	}
}
