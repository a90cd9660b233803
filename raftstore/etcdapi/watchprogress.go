package etcdapi

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// allWatchers is the id of an answer that concerns all watchers of a stream, and
// of one that concerns none.
const allWatchers = -1

// askProgress makes the stream say, once, up to where all its watchers have been
// told everything. The mark waits until none is behind and the hub has reached
// what the state had when it was asked. As in etcd, there is none for a stream
// without watchers, or with one whose start lies in the future.
func (h *hub) askProgress(s *watchStream) {
	var now int64
	h.view(func(p past) { now = p.Revision() })
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.wake()
	if len(s.watchers) == 0 {
		return
	}
	for _, w := range s.watchers {
		if w.start > now {
			return
		}
	}
	s.wanted = max(s.wanted, now)
	h.waiting[s] = struct{}{}
	h.settle(s)
}

// settle sends the mark that was asked for, if it holds: live watchers have all up
// to h.revision in the queue, ahead of it.
func (h *hub) settle(s *watchStream) {
	if s.wanted == 0 || s.lagging > 0 || h.revision < s.wanted {
		return
	}
	s.wanted = 0
	delete(h.waiting, s)
	for _, w := range s.watchers {
		if w.start > h.revision {
			return
		}
	}
	s.control(&pb.WatchResponse{Header: h.limits.packing.header(h.revision), WatchId: allWatchers})
	h.touch(s)
}

func (h *hub) settleAll() {
	for s := range h.waiting {
		h.settle(s)
	}
}

// tellQuiet tells the watchers that asked for it, and have heard nothing since the
// last time, how far they are. It is the
// sender that asks, so that a stream that is not read is left alone.
func (h *hub) tellQuiet(s *watchStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.wake()
	for _, w := range s.watchers {
		if w.notify && !w.busy && w.state == watcherLive && w.start <= h.revision {
			s.control(&pb.WatchResponse{Header: h.limits.packing.header(h.revision), WatchId: w.id})
			h.touch(s)
		}
		w.busy = false
	}
}
