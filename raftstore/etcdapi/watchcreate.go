package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Why a watch is refused, in etcd's words.
const (
	emptyRange  = "mvcc: watcher range is empty"
	duplicateID = "mvcc: duplicate watch ID provided on the WatchStream"
)

// create answers a request for a watch: the answer that it is created is queued
// before anything else about it can be.
func (h *hub) create(s *watchStream, r *pb.WatchCreateRequest) {
	if r.StartRevision < 0 {
		h.refuse(s, rpctypes.ErrCompacted.Error())
		return
	}
	sp, ok := specOf(r)
	if !ok {
		h.refuse(s, emptyRange)
		return
	}
	if checkWatched(s.caller, &sp) != nil {
		h.refuse(s, rpctypes.ErrPermissionDenied.Error())
		return
	}
	w := &watcher{stream: s, spec: sp, start: r.StartRevision, notify: r.ProgressNotify}
	var now int64
	h.view(func(p past) { now = p.Revision() })
	if w.next = w.start; w.next == 0 {
		w.next = now + 1
	}
	var read chunk
	if w.next <= now {
		// Few are far behind; most have missed an event or two.
		read = h.read(sp, w.next)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.wake()
	if s.closed {
		return
	}
	if !s.name(w, r.WatchId) {
		h.refuseLocked(s, now, duplicateID)
		return
	}
	s.control(&pb.WatchResponse{Header: h.limits.packing.header(now), WatchId: w.id, Created: true})
	h.touch(s)
	switch {
	case read.lost != 0:
		h.compacted(w, read.lost)
		return
	case w.offer(&read):
		w.next = max(w.next, read.next)
		w.busy = len(read.payloads) > 0
	}
	h.follow(w)
}

// offer queues a piece of history that was read before w was known, all or none
// of it.
func (w *watcher) offer(c *chunk) bool {
	for i, p := range c.payloads {
		if !w.stream.offer(w.id, p) {
			if i > 0 {
				w.next = p.first
			}
			return false
		}
	}
	return true
}

// name gives w its id: the one asked for, or the next that is free for 0. It
// reports false for one that is taken.
func (s *watchStream) name(w *watcher, id int64) bool {
	if w.id = id; id == 0 {
		for s.watchers[s.nextID] != nil {
			s.nextID++
		}
		w.id = s.nextID
		s.nextID++
	} else if s.watchers[id] != nil {
		return false
	}
	s.watchers[w.id] = w
	return true
}

// refuse answers a request that makes no watch.
func (h *hub) refuse(s *watchStream, reason string) {
	var now int64
	h.view(func(p past) { now = p.Revision() })
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.wake()
	h.refuseLocked(s, now, reason)
}

func (h *hub) refuseLocked(s *watchStream, revision int64, reason string) {
	s.control(&pb.WatchResponse{
		Header: h.limits.packing.header(revision), WatchId: allWatchers, Created: true, Canceled: true, CancelReason: reason,
	})
	h.touch(s)
}

// cancel ends a watch at the client's wish; an id that is none is ignored.
func (h *hub) cancel(s *watchStream, id int64) {
	var now int64
	h.view(func(p past) { now = p.Revision() })
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.wake()
	w := s.watchers[id]
	if w == nil {
		return
	}
	delete(s.watchers, id)
	h.forget(w)
	s.control(&pb.WatchResponse{Header: h.limits.packing.header(now), WatchId: id, Canceled: true})
	h.touch(s)
	h.settle(s)
}

// forget ends a watcher whatever its state.
func (h *hub) forget(w *watcher) {
	switch w.state {
	case watcherLive:
		h.live.remove(w)
	case watcherBehind:
		w.stream.lagging--
	case watcherDead:
	}
	w.state = watcherDead
}

// drop ends a stream.
func (h *hub) drop(s *watchStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.closed = true
	delete(h.streams, s)
	delete(h.waiting, s)
	for _, w := range s.watchers {
		h.forget(w)
	}
	clear(s.watchers)
}
