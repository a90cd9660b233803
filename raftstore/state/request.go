package state

// requestWindow remembers the last RequestWindow request ids, so that a
// retried proposal is recognised for a while.
type requestWindow struct {
	ring []uint64 // grows to RequestWindow, then wraps
	next int      // where the oldest is, once it wraps
	seen map[uint64]struct{}
}

func newRequestWindow() requestWindow {
	return requestWindow{seen: make(map[uint64]struct{})}
}

// add remembers id and reports whether it was new.
func (w *requestWindow) add(id uint64) bool {
	if _, ok := w.seen[id]; ok {
		return false
	}
	w.seen[id] = struct{}{}
	if len(w.ring) < RequestWindow {
		w.ring = append(w.ring, id)
		return true
	}
	delete(w.seen, w.ring[w.next])
	w.ring[w.next] = id
	w.next = (w.next + 1) % len(w.ring)
	return true
}

// ordered returns a copy, oldest first.
func (w *requestWindow) ordered() []uint64 {
	ids := make([]uint64, 0, len(w.ring))
	ids = append(ids, w.ring[w.next:]...)
	return append(ids, w.ring[:w.next]...)
}
