package etcdapi

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	// How often the leader looks what may be forgotten: a twentieth of the age,
	// within these bounds. The count is looked at every mostLook at the latest.
	leastLook = time.Second
	mostLook  = 5 * time.Second
	// compactStep bounds how many revisions one log entry forgets, since nothing
	// else is applied meanwhile.
	compactStep = 100_000
)

// sample says which revision was the newest at a time of the boot clock.
type sample struct {
	at       time.Duration
	revision int64
}

// compactor is the leader's duty to forget superseded versions. It knows the
// age of revisions only from what it has seen itself: a new leader takes all for
// new, so that after a change of the leader more is kept, never less.
type compactor struct {
	age     time.Duration // 0: never
	keep    int64         // revisions; 0: no bound
	samples []sample      // in order
}

// look notes the newest revision and returns the one to compact at, or 0.
func (c *compactor) look(now time.Duration, newest, compacted int64) int64 {
	target := int64(0)
	if c.age > 0 {
		if n := len(c.samples); n == 0 || c.samples[n-1].revision != newest && now-c.samples[n-1].at >= c.every() {
			c.samples = append(c.samples, sample{now, newest})
		}
		old := 0
		for old < len(c.samples) && now-c.samples[old].at >= c.age {
			target = c.samples[old].revision
			old++
		}
		// The last that is old enough stays: it may have to be tried again.
		c.samples = c.samples[max(old-1, 0):]
	}
	// A tenth more, so that it is not done for a few at a time.
	if c.keep > 0 && newest-max(compacted, 0) > c.keep+c.keep/10 {
		target = max(target, newest-c.keep)
	}
	if target <= compacted || target <= 1 {
		return 0
	}
	return target
}

// every is the least time between samples: there are at most forty in an age.
func (c *compactor) every() time.Duration { return c.age / 40 }

func (c *compactor) interval() time.Duration {
	if c.age == 0 {
		return mostLook
	}
	return min(max(c.age/20, leastLook), mostLook)
}

// compact runs the duty until ctx ends. What goes wrong is tried again later.
func (a *API) compact(ctx context.Context) {
	c := &compactor{age: a.cfg.CompactAge, keep: a.cfg.CompactRevisions}
	if c.age == 0 && c.keep == 0 {
		return
	}
	tick := time.NewTicker(c.interval())
	defer tick.Stop()
	for {
		var newest, compacted int64
		a.cfg.Store.View(func(s *state.State) {
			if s.Feature() >= featureKeys {
				newest, compacted = s.Keys().Revision(), s.Keys().Compacted()
			}
		})
		if target := c.look(a.cfg.Clock(), newest, compacted); target > 0 {
			if err := a.compactTo(ctx, compacted, target); err != nil && ctx.Err() == nil {
				a.log.Warn("old versions of keys were not compacted, trying again", "revision", target, "cause", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// compactTo compacts in steps.
func (a *API) compactTo(ctx context.Context, from, to int64) error {
	for at := from; at < to; {
		at = min(max(at, 0)+compactStep, to)
		_, err := a.propose(ctx, &state.Compact{Revision: at})
		if err != nil && !errors.Is(err, mvcc.ErrCompacted) { // an operator was faster
			return err
		}
	}
	a.log.Debug("old versions of keys compacted", "revision", to)
	return nil
}
