package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// How claims are made.
const (
	maxClaimBatch = 512
	claimTimeout  = 10 * time.Second // of one batch
	minClaimPause = 25 * time.Millisecond
	maxClaimPause = 2 * time.Second
	claimSayEvery = 10 * time.Second // between log lines about a guard in trouble
)

// claimer claims the tokens of one Run's leases, a batch at a time. After an
// error the batch goes to the end of the queue and the next one is half as big:
// a single stamp that the resource cannot take does not stop the others.
type claimer struct {
	guard fence.Guard
	mail  *mailbox[*Lease]
	queue []*Lease
	size  int
	pause time.Duration
	said  time.Duration
}

func newClaimer(g fence.Guard) *claimer {
	return &claimer{guard: g, mail: newMailbox[*Lease](), size: maxClaimBatch}
}

func (c *claimer) put(l *Lease) { c.mail.put(l) }

// claim is the claimer's goroutine.
func (e *engine) claim(c *claimer) {
	for e.ctx.Err() == nil {
		c.queue = append(c.queue, c.mail.take(nil)...)
		batch := c.next()
		if len(batch) == 0 {
			select {
			case <-c.mail.signal:
				continue
			case <-e.ctx.Done():
				return
			}
		}
		stamps := make([]fence.Stamp, len(batch))
		for i, l := range batch {
			stamps[i] = l.Stamp()
		}
		err := c.try(fence.NewContext(e.ctx, fence.Stamp{}, batch[0].TTL()), stamps)
		if !e.guardCounts.Load() {
			fence.Count(counter{e.metrics, &e.core.fencing}, len(stamps), err)
		}
		var refused *fence.ClaimError
		if err != nil && !errors.As(err, &refused) {
			if !e.claimFailed(c, batch, err) {
				return
			}
			continue
		}
		c.pause, c.size = 0, min(2*c.size, maxClaimBatch)
		stale := make(map[fence.Stamp]*fence.StaleError)
		if refused != nil {
			for _, s := range refused.Refused {
				stale[s.Stamp] = s
			}
		}
		e.post(func(now reading) {
			for i, l := range batch {
				e.core.claimed(l, stale[stamps[i]], now)
			}
		})
	}
}

// next takes the next batch, leaving out leases that have ended.
func (c *claimer) next() []*Lease {
	var batch []*Lease
	for len(c.queue) > 0 && len(batch) < c.size {
		l := c.queue[0]
		c.queue[0] = nil
		c.queue = c.queue[1:]
		if l.ended() == nil {
			batch = append(batch, l)
		}
	}
	return batch
}

// try asks the guard once.
func (c *claimer) try(ctx context.Context, stamps []fence.Stamp) (err error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("guard panicked: %v", v)
		}
	}()
	return c.guard.Claim(ctx, stamps)
}

// claimFailed waits before the next try. It returns false when there will be none.
func (e *engine) claimFailed(c *claimer, batch []*Lease, err error) bool {
	e.metrics.ClaimRetried()
	c.queue = append(c.queue, batch...)
	c.size = max(len(batch)/2, 1)
	c.pause = min(max(2*c.pause, minClaimPause), maxClaimPause)
	if now := e.tenure.clock.Now(); c.said == 0 || now-c.said >= claimSayEvery {
		c.said = max(now, 1)
		e.notes.say(logLine{slog.LevelWarn, "claim is not answered: trying again while the leases last", []any{
			"worker", e.id, "keyspace", batch[0].space.name, "leases", len(c.queue), "cause", err}})
	}
	return sleep(e.ctx, c.pause/2+rand.N(c.pause))
}

// counter counts a guard's decisions for the servers and for the metrics.
type counter struct {
	metrics *metrics.Worker
	tally   *fence.Tally
}

// FencingChecked implements fence.Counter.
func (c counter) FencingChecked(n int) {
	c.tally.FencingChecked(n)
	c.metrics.FencingChecked(n)
}

// FencingRejected implements fence.Counter.
func (c counter) FencingRejected(reason string) {
	c.tally.FencingRejected(reason)
	if reason == fence.ReasonStale {
		reason = "stale_token" // the metrics' word
	}
	c.metrics.FencingRejected(reason)
}
