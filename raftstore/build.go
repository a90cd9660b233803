package raftstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// entry is a log entry in the making or in flight.
type entry struct {
	parts   []part
	count   int // commands
	size    int
	large   bool          // its one command is
	ticks   int           // 1: starts with a Tick of ours, which nobody waits for
	reading time.Duration // of the leader's clock, when it carries time
	start   time.Time
}

// part is a run of commands of one proposal.
type part struct {
	p        *proposal
	from, to int
}

// applied is what the state machine answers to an entry.
type applied struct {
	results     []state.Result
	index, term uint64
}

// builder turns proposals into log entries. Its one goroutine decides the order
// of the log.
type builder struct {
	*proposer
	clock   *leaderClock
	wall    func() time.Time
	metrics Observer
	apply   func(data []byte) raft.ApplyFuture
	waiters sync.WaitGroup
}

// run builds until ctx ends.
func (b *builder) run(ctx context.Context) {
	for {
		if e := b.next(); e != nil {
			b.send(e)
			continue
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			return
		}
	}
}

// next takes what waits, up to the limit of one entry; nil if there is nothing
// or too much is in flight already.
func (b *builder) next() *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inflight >= urgentSlots || b.phase == phaseClosed {
		return nil
	}
	e := &entry{size: entryHead}
	if l := b.passed; l != laneStart && b.phase == phaseOpen && !b.large && b.inflight < plainSlots {
		b.passed = laneStart
		b.fillLocked(e, l) // it is the first there, and leaves no room
	}
	for l := range lanes {
		if b.phase == phaseStarting && l > laneStart {
			break
		}
		if l == lanePlain && b.inflight >= plainSlots {
			break
		}
		if !b.fillLocked(e, l) {
			break
		}
	}
	if len(e.parts) == 0 {
		return nil
	}
	b.inflight++
	return e
}

// fillLocked moves proposals of a lane into e and reports whether the lane is
// empty. A group goes whole into one entry if it fits into any.
func (b *builder) fillLocked(e *entry, l lane) bool {
	queue := b.queues[l]
	n := 0
	for ; n < len(queue); n++ {
		p := queue[n]
		if p.abandoned {
			b.settleLocked(p, units(len(p.cmds))-p.taken, context.Canceled, nil)
			continue
		}
		if len(p.cmds) == 0 {
			p.taken = 1
			e.parts = append(e.parts, part{p: p})
			continue
		}
		if e.size+p.size > maxEntry && !large(p.size) {
			break
		}
		from := p.taken
		for p.taken < len(p.cmds) && b.takesLocked(e, l, p.sizes[p.taken]) {
			e.size += p.sizes[p.taken]
			p.taken++
		}
		if p.taken > from {
			e.parts = append(e.parts, part{p: p, from: from, to: p.taken})
			e.count += p.taken - from
		}
		if p.taken < len(p.cmds) {
			break
		}
	}
	clear(queue[:n]) // let go of them
	if n == len(queue) {
		b.queues[l] = queue[:0]
		return true
	}
	b.queues[l] = queue[n:]
	return false
}

// takesLocked reports whether one more command of that size goes into e. A
// large one is alone there, and alone in flight: who is urgent waits for no more
// than one of them.
func (b *builder) takesLocked(e *entry, l lane, size int) bool {
	switch {
	case !large(size):
		return e.size+size <= maxEntry
	case e.size > entryHead:
		b.passed = l
		return false
	case b.large:
		return false
	}
	b.large, e.large = true, true
	return true
}

// send encodes e, hands it to Raft and leaves a goroutine waiting for it.
func (b *builder) send(e *entry) {
	e.start = time.Now()
	batch := state.Batch{Wall: b.wall()}
	batch.Commands = make([]state.Command, 0, e.count+2)
	for _, pt := range e.parts {
		batch.Commands = append(batch.Commands, pt.p.cmds[pt.from:pt.to]...)
	}
	before, after := needsTick(batch.Commands)
	if before {
		batch.Commands = slices.Insert(batch.Commands, 0, state.Command(&state.Tick{}))
		e.ticks = 1
	}
	if after {
		batch.Commands = append(batch.Commands, &state.Tick{})
	}
	n := e.ticks
	for _, pt := range e.parts {
		for i := pt.from; i < pt.to; i++ {
			if pt.p.request != 0 {
				if batch.Requests == nil {
					batch.Requests = make([]uint64, len(batch.Commands))
				}
				batch.Requests[n] = requestID(pt.p.request, i)
			}
			n++
		}
	}
	e.reading = b.clock.stamp(batch.Commands)
	var data []byte // stays nil for a mere barrier
	if e.count > 0 {
		b.metrics.BatchCommands(e.count)
		var err error
		if data, err = state.AppendBatch(make([]byte, 0, e.size), &batch); err != nil {
			b.settle(e, fmt.Errorf("encode entry: %w", err), nil, nil)
			return
		}
	}
	f := b.apply(data)
	b.waiters.Go(func() {
		err := f.Error()
		if err == nil {
			switch r := f.Response().(type) {
			case *applied:
				b.clock.confirm(e.reading)
				b.metrics.CommitSeconds(time.Since(e.start).Seconds())
				b.settle(e, nil, nil, r)
				return
			case error:
				err = r
			}
		}
		notWritten, unknown := b.classify(err)
		b.settle(e, notWritten, unknown, nil)
	})
}

// needsTick reports whether an entry should bring the clock up to date first,
// because a command in it counts time from the clock's reading, and last,
// because of a session whose deadline counts from the next clock command. No
// promise hangs on either: without them, time limits would be off by up to a
// tick.
func needsTick(cmds []state.Command) (before, after bool) {
	clock := false
	for _, c := range cmds {
		switch c.(type) {
		case *state.Tick, *state.KeepAlive, *state.Expire:
			clock, after = true, false
		case *state.OpenSession, *state.JoinKeyspace:
			before, after = before || !clock, true
		case *state.UpdateKeyspace, *state.CreateKeyspace, *state.Drain, *state.Grant, *state.Release:
			before = before || !clock
		}
	}
	return before, after
}

// classify sorts Raft's errors into those that say that nothing was written,
// and the others.
func (b *builder) classify(err error) (notWritten, unknown error) {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout):
		return &NotLeaderError{LeaderID: b.leader()}, nil
	default:
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
}

// settle gives the outcome of an entry to its proposals.
func (b *builder) settle(e *entry, notWritten, unknown error, r *applied) {
	b.mu.Lock()
	b.inflight--
	if e.large {
		b.large = false
	}
	var finished []*proposal
	at := e.ticks
	for _, pt := range e.parts {
		n := pt.to - pt.from
		if r != nil {
			of := r.results[at : at+n : at+n]
			switch {
			case n == len(pt.p.cmds): // the usual case: all in one entry
				pt.p.results = of
			case pt.p.results == nil:
				pt.p.results = make([]state.Result, len(pt.p.cmds))
				fallthrough
			default:
				copy(pt.p.results[pt.from:pt.to], of)
			}
			pt.p.index, pt.p.term = r.index, r.term
		}
		at += n
		if b.settleLocked(pt.p, units(n), notWritten, unknown) {
			finished = append(finished, pt.p)
		}
	}
	b.mu.Unlock()
	b.signal()
	finish(finished)
}

// quiet is closed when nothing is in flight any more.
func (b *builder) quiet() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		b.waiters.Wait()
		close(done)
	}()
	return done
}

// requestID derives the id of the i-th command of a request.
func requestID(request uint64, i int) uint64 {
	if i == 0 {
		return request
	}
	x := request + uint64(i)*0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) | 1
}
