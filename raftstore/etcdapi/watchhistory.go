package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// chunk is a piece of history for watchers of one spec. The sender keeps the last
// one: watchers that fell behind together read the same.
type chunk struct {
	spec     spec
	from     int64
	next     int64 // all before is told; where to go on
	payloads []*payload
	lost     int64 // not 0: events before this revision are gone, and from is
}

// read reads the events that sp wants from a revision on. It takes the state's
// lock for a bounded time, and returns about one message.
func (h *hub) read(sp spec, from int64) chunk {
	c := chunk{spec: sp, from: from, next: from}
	var events []mvcc.Event
	key, end := sp.bounds()
	h.view(func(p past) {
		now := p.Revision()
		to := now
		if sp.ranged {
			to = min(now, from+int64(h.limits.revisions)-1)
		}
		if to < from {
			return
		}
		var first, compacted int64
		if events, c.next, first, compacted = told(p, from, to, key, end, h.limits.events, nil); first > from {
			c.lost = compacted
		}
	})
	if c.lost != 0 || len(events) == 0 {
		return c
	}
	events, c.next = cut(events, c.next, h.limits.packing.message)
	hits := make([]int, len(events))
	for i := range hits {
		hits[i] = i
	}
	c.payloads = h.limits.packing.payloads(newBatch(events), &sp, hits, c.next-1)
	return c
}

// cut shortens events to about so many bytes, whole revisions, and returns where
// to go on.
func cut(events []mvcc.Event, next int64, bytes int) ([]mvcc.Event, int64) {
	size := 0
	for i := range events {
		if size >= bytes && events[i].Revision() != events[i-1].Revision() {
			return events[:i], events[i].Revision()
		}
		for _, kv := range [...]*mvcc.KeyValue{events[i].KV, events[i].Prev} {
			if kv != nil {
				size += len(kv.Key) + len(kv.Value)
			}
		}
	}
	return events, next
}

// catchUp sends a watcher that is behind the next piece of its history, and makes
// it live if that was the last. Only the sender calls it.
func (s *watchStream) catchUp(w *watcher, last *chunk, write func(*pb.WatchResponse) error) error {
	s.h.mu.Lock()
	from, dead := w.next, w.state != watcherBehind
	s.h.mu.Unlock()
	if dead {
		return nil
	}
	if last.spec != w.spec || last.from != from || last.next == from {
		*last = s.h.read(w.spec, from)
	}
	payloads, ok := s.h.caughtUp(w, last)
	if !ok {
		return nil
	}
	for _, p := range payloads {
		if err := sendPayload(w.id, p, write); err != nil {
			return err
		}
	}
	return nil
}

// caughtUp notes that a watcher is about to be sent a chunk, and returns its
// payloads, unless the watcher has been cancelled meanwhile.
func (h *hub) caughtUp(w *watcher, c *chunk) ([]*payload, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.wake()
	if w.state != watcherBehind {
		return nil, false
	}
	w.stream.lagging--
	if c.lost != 0 {
		h.compacted(w, c.lost)
		h.settle(w.stream)
		return nil, false
	}
	w.next = c.next
	w.busy = w.busy || len(c.payloads) > 0
	h.follow(w)
	h.settle(w.stream)
	return c.payloads, true
}
