package etcdapi

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// past is what the hub reads of the store of keys, which says what each method
// promises.
type past interface {
	Revision() int64
	Compacted() int64
	Events(from, to int64, key, end []byte, limit int, buf []mvcc.Event) ([]mvcc.Event, int64, error)
}

// hubLimits bound what watching costs.
type hubLimits struct {
	queue     int // bytes that wait for one stream; what does not fit is read again later
	events    int // events read under the state's lock at once
	revisions int // revisions looked through under the state's lock at once
	packing   packing
	progress  time.Duration // how often watchers that want it are told that nothing happened
	controls  int           // answers that wait for one stream before it takes no more requests
}

// defaultLimits: a stream that is not read holds at most 4 MiB of events, one
// message more (about 1 MiB, or what one revision has), and 24 bytes for each watcher.
func defaultLimits() hubLimits {
	return hubLimits{
		queue: 4 << 20, events: 1024, revisions: 4096, controls: 1024,
		packing: packing{message: 1 << 20}, progress: 10 * time.Minute,
	}
}

// hub tells all watchers of this server what happens to the keys. One goroutine
// reads each event once, finds who watches its key, and puts one encoding of it
// into the queue of every stream concerned; see watchStream for the rest.
//
// A watcher is live (the hub tells it everything from its next revision on),
// behind (its stream reads history for it), or dead. What it has been told plus
// what is in its stream's queue is always everything below some revision: there
// is no hole, because it becomes behind at the first message that does not fit
// and live only under the lock, when it has been told all that the hub has.
//
// Lock order: hub.mu, then watchStream.mu, then the state's lock last of all.
type hub struct {
	view   func(func(past)) // under the state's read lock
	limits hubLimits

	mu       sync.Mutex
	revision int64 // live watchers have been told all up to here
	live     groups
	streams  map[*watchStream]struct{} // all that are open
	waiting  map[*watchStream]struct{} // streams that want to know their progress
	touched  []*watchStream            // to be woken
	lost     atomic.Uint64             // watchers compacted away, since somebody asked
	buf      []mvcc.Event              // of the goroutine of run alone
}

func newHub(view func(func(past)), limits hubLimits) *hub {
	h := &hub{view: view, limits: limits, live: newGroups(), streams: map[*watchStream]struct{}{}, waiting: map[*watchStream]struct{}{}}
	view(func(p past) { h.revision = p.Revision() })
	return h
}

// run gives out events whenever wake says that there may be some, until ctx ends.
func (h *hub) run(ctx context.Context, wake <-chan struct{}) {
	for {
		for h.step() {
			if ctx.Err() != nil {
				return
			}
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

// everything is both bounds of the range of all keys.
var everything = []byte{0}

// step gives out the next events and reports whether there may be more.
func (h *hub) step() bool {
	h.mu.Lock()
	from, idle := h.revision+1, h.live.count == 0
	h.mu.Unlock()
	if idle {
		return h.skip()
	}
	var now, first, compacted int64
	var events []mvcc.Event
	next := from
	h.view(func(p past) {
		now = p.Revision()
		if now >= from {
			events, next, first, compacted = told(p, from, now, everything, everything, h.limits.events, h.buf[:0])
		}
	})
	defer h.clear(events)
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.wake()
	switch {
	case now < from:
		return false
	case first > from:
		h.lose(first, compacted)
	default:
		// Large values: no more of them at once than a stream takes.
		events, next = cut(events, next, h.limits.queue)
		h.deliver(newBatch(events), next-1)
	}
	return h.revision < now
}

// told reads events. first is above from when what is from there to first cannot
// be told any more, because history has been compacted up to compacted.
func told(p past, from, to int64, key, end []byte, limit int, buf []mvcc.Event) (events []mvcc.Event, next, first, compacted int64) {
	compacted = p.Compacted()
	if from < compacted {
		return nil, from, compacted, compacted
	}
	events, next, err := p.Events(from, to, key, end, limit, buf)
	if err != nil {
		return nil, from, compacted + 1, compacted
	}
	return events, next, from, compacted
}

// clear lets go of events.
func (h *hub) clear(events []mvcc.Event) {
	clear(events)
	if cap(events) > cap(h.buf) && cap(events) <= 4*h.limits.events {
		h.buf = events[:0]
	}
}

// skip goes on to the present when nobody is live.
func (h *hub) skip() bool {
	var now int64
	h.view(func(p past) { now = p.Revision() })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live.count > 0 {
		return true // as of just now
	}
	h.revision = max(h.revision, now)
	h.settleAll()
	return false
}

// deliver gives out a batch, which has all events up to revision.
func (h *hub) deliver(b *batch, revision int64) {
	var hit []*group
	for i := range b.events {
		h.live.at(b.events[i].KV.Key, func(g *group) {
			if len(g.hits) == 0 {
				hit = append(hit, g)
			}
			g.hits = append(g.hits, i)
		})
	}
	for _, g := range hit {
		h.tell(g, b, revision)
		g.hits = g.hits[:0]
	}
	h.revision = revision
	h.settleAll()
}

// tell queues what a batch has for a group.
func (h *hub) tell(g *group, b *batch, revision int64) {
	for _, p := range h.limits.packing.payloads(b, &g.spec, g.hits, revision) {
		// From the end: a member that falls behind leaves its place to the last.
		for i := len(g.members) - 1; i >= 0; i-- {
			w := g.members[i]
			mine := p
			if w.next > p.first {
				if mine = h.later(w, b, g.hits, p); mine == nil {
					continue
				}
			}
			if !w.stream.offer(w.id, mine) {
				h.fallBehind(w, mine.first)
				continue
			}
			w.busy = true
			h.touch(w.stream)
		}
	}
}

// later is the part of p that a watcher is to be told that begins after p does.
func (h *hub) later(w *watcher, b *batch, hits []int, p *payload) *payload {
	var mine []int
	for _, i := range hits {
		if r := b.events[i].Revision(); r >= w.next && r >= p.first && r <= p.last {
			mine = append(mine, i)
		}
	}
	packing := h.limits.packing
	packing.message = 1 << 62
	if made := packing.payloads(b, &w.spec, mine, p.last); len(made) > 0 {
		return made[0]
	}
	return nil
}

// lose goes on at first, when what comes before can no longer be told.
func (h *hub) lose(first, compacted int64) {
	var lost []*watcher
	for _, g := range h.live.bySpec {
		for _, w := range g.members {
			if max(w.next, h.revision+1) < first {
				lost = append(lost, w)
			}
		}
	}
	for _, w := range lost {
		h.live.remove(w)
		h.compacted(w, compacted)
	}
	h.revision = first - 1
	h.settleAll()
}

// compacted ends a watcher whose next events are gone.
func (h *hub) compacted(w *watcher, revision int64) {
	w.state = watcherDead
	h.lost.Add(1)
	w.stream.control(&pb.WatchResponse{
		Header: h.limits.packing.header(0), WatchId: w.id, Canceled: true, CompactRevision: revision,
	})
	h.touch(w.stream)
}

// fallBehind leaves a live watcher to its stream, from a revision on.
func (h *hub) fallBehind(w *watcher, next int64) {
	h.live.remove(w)
	w.state, w.next = watcherBehind, next
	w.stream.lagging++
	w.stream.later(w)
	h.touch(w.stream)
}

// follow makes w, which is in no list, live if it has been told all that the
// hub has given out, and else leaves it to its stream.
func (h *hub) follow(w *watcher) {
	if w.next > h.revision {
		w.state = watcherLive
		h.live.add(w)
		return
	}
	w.state = watcherBehind
	w.stream.lagging++
	w.stream.later(w)
	h.touch(w.stream)
}

// touch remembers to wake a stream.
func (h *hub) touch(s *watchStream) {
	if !s.touched {
		s.touched = true
		h.touched = append(h.touched, s)
	}
}

// wake wakes the streams that have something to do. Whoever takes the lock ends
// with it.
func (h *hub) wake() {
	for i, s := range h.touched {
		s.touched = false
		s.signal()
		h.touched[i] = nil
	}
	h.touched = h.touched[:0]
}
