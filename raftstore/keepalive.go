package raftstore

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// maxRenewals is how many sessions one KeepAlive command renews: at most ten
// bytes each, about half an entry.
const maxRenewals = 12_000

// maxGather bounds how long a keep-alive waits for others.
const maxGather = 100 * time.Millisecond

// gatherFor is how long keep-alives are collected when the shortest TTL among
// the last ones was ttl: a hundredth of it. A worker's deadline counts from
// when it sent, so that the wait costs it nothing, and each entry less is a
// write and a sync less on every server.
func gatherFor(ttl time.Duration) time.Duration { return min(ttl/100, maxGather) }

// KeepAlive is what a renewal returns.
type KeepAlive struct {
	TTL         time.Duration
	Term, Index uint64 // of the log entry that renewed
}

// renewal is a session and who wants to know.
type renewal struct {
	id state.SessionID
	fn func(KeepAlive, error)
}

// keepAlives gathers renewals that arrive within a short time of each other
// into one command.
type keepAlives struct {
	s *Store

	mu      sync.Mutex
	waiting []renewal
	timer   *time.Timer // nil: nothing waits
	// gather is how long the next batch is collected, see gatherFor.
	gather time.Duration
}

// KeepAlive renews a session and returns when the renewal has been committed
// and applied. A session that is gone or barred is refused with a
// *state.Refusal; a *NotLeaderError or ErrUnknownOutcome says nothing about it.
func (s *Store) KeepAlive(ctx context.Context, id state.SessionID) (KeepAlive, error) {
	type answer struct {
		k   KeepAlive
		err error
	}
	ch := make(chan answer, 1)
	s.KeepAliveAsync(id, func(k KeepAlive, err error) { ch <- answer{k, err} })
	select {
	case a := <-ch:
		return a.k, a.err
	case <-ctx.Done():
		return KeepAlive{}, context.Cause(ctx)
	}
}

// KeepAliveAsync is KeepAlive with a callback, called exactly once. It may be
// called before KeepAliveAsync returns and must not block.
func (s *Store) KeepAliveAsync(id state.SessionID, fn func(KeepAlive, error)) {
	if !s.proposer.accepts() {
		fn(KeepAlive{}, s.proposer.refusal())
		return
	}
	s.keepAlives.add(renewal{id, fn})
}

func (k *keepAlives) add(r renewal) {
	k.mu.Lock()
	k.waiting = append(k.waiting, r)
	var full []renewal
	switch {
	case len(k.waiting) >= maxRenewals:
		full = k.takeLocked()
	case k.timer == nil:
		k.timer = time.AfterFunc(max(k.gather, k.s.cfg.KeepAliveGather), k.flush)
	}
	k.mu.Unlock()
	k.propose(full)
}

func (k *keepAlives) takeLocked() []renewal {
	batch := k.waiting
	k.waiting = nil
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
	return batch
}

// flush proposes what has been gathered.
func (k *keepAlives) flush() {
	k.mu.Lock()
	batch := k.takeLocked()
	k.mu.Unlock()
	k.propose(batch)
}

func (k *keepAlives) propose(batch []renewal) {
	if len(batch) == 0 {
		return
	}
	cmd := &state.KeepAlive{Sessions: make([]state.SessionID, len(batch))}
	for i := range batch {
		cmd.Sessions[i] = batch[i].id
	}
	p, err := newProposal([]state.Command{cmd}, 0)
	if err == nil {
		p.then = func(p *proposal) { k.answer(batch, p) }
		err = k.s.proposer.submit(p, laneUrgent)
	}
	if err != nil {
		k.fail(batch, err)
	}
}

func (k *keepAlives) answer(batch []renewal, p *proposal) {
	if p.err != nil {
		k.fail(batch, p.err)
		return
	}
	if r := &p.results[0]; r.Err != nil || len(r.Sessions) != len(batch) {
		// The whole command was void: its term is over.
		k.fail(batch, &NotLeaderError{LeaderID: k.s.proposer.leader()})
		return
	}
	renewed, shortest := 0, state.MaxTTL
	for i, r := range p.results[0].Sessions {
		if r.Err != nil {
			batch[i].fn(KeepAlive{}, r.Err)
			continue
		}
		renewed++
		shortest = min(shortest, time.Duration(r.TTLMillis)*time.Millisecond)
		batch[i].fn(KeepAlive{TTL: time.Duration(r.TTLMillis) * time.Millisecond, Term: p.term, Index: p.index}, nil)
	}
	k.mu.Lock()
	k.gather = gatherFor(shortest)
	k.mu.Unlock()
	k.count(renewed, "renewed")
	k.count(len(batch)-renewed, "refused")
}

func (k *keepAlives) fail(batch []renewal, err error) {
	for _, r := range batch {
		r.fn(KeepAlive{}, err)
	}
	k.count(len(batch), "failed")
}

func (k *keepAlives) count(n int, outcome string) {
	if n > 0 {
		k.s.cfg.Metrics.KeepAlives(n, outcome)
	}
}
