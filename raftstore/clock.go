package raftstore

import (
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// leaderClock turns the leader's own clock into the Elapsed of clock commands.
//
// Only the goroutine that builds entries stamps commands, in the order in which
// the entries enter the log, so each stretch of time is written at most once.
// A stretch that goes into an entry that is not written is lost, which makes
// expiry later, never earlier; it must not be carried over, because a renewal
// that was built in between would not have it under its deadline.
type leaderClock struct {
	clock Clock

	mu      sync.Mutex
	term    uint64
	started bool          // a clock command of this term has been stamped
	built   time.Duration // reading at the last stamp
	applied time.Duration // reading at the stamp of the last entry applied
}

// begin starts a term: its first clock command will say 0.
func (c *leaderClock) begin(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.term, c.started, c.built, c.applied = term, false, now, now
}

// stamp fills in term and elapsed of the clock commands among cmds, and
// returns the reading (0: there are none).
func (c *leaderClock) stamp(cmds []state.Command) time.Duration {
	var reading time.Duration
	for _, cmd := range cmds {
		var term *uint64
		var elapsed *time.Duration
		switch cmd := cmd.(type) {
		case *state.KeepAlive:
			term, elapsed = &cmd.Term, &cmd.Elapsed
		case *state.Tick:
			term, elapsed = &cmd.Term, &cmd.Elapsed
		case *state.Expire:
			term, elapsed = &cmd.Term, &cmd.Elapsed
		default:
			continue
		}
		c.mu.Lock()
		reading = c.clock.Now()
		*term, *elapsed = c.term, 0
		if c.started {
			*elapsed = reading - c.built
		}
		c.started, c.built = true, reading
		c.mu.Unlock()
	}
	return reading
}

// confirm notes that the entry stamped at reading has been applied.
func (c *leaderClock) confirm(reading time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = max(c.applied, reading)
}

// sinceBuilt is the time since the last stamp of this term, or since its start.
func (c *leaderClock) sinceBuilt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.Now() - c.built
}

// ahead is how far the logical clock would move if an entry were written now.
func (c *leaderClock) ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return 0
	}
	return min(c.clock.Now()-c.applied, state.MaxElapsed)
}
