package queue

import "container/heap"

// outcome of a wait: in, unless one of the fields says otherwise.
type outcome struct {
	lost    bool // the key is gone
	stopped bool // the server is
	ahead   int  // of one who would not wait
}

// waiter is one call that waits for one place. Its fields are guarded by
// Queues.mu, but for done, which the call reads.
type waiter struct {
	line    *line
	member  *member // nil until it stands at its place
	key     []byte
	created int64 // the create revision of key
	since   int64 // the state must have this revision before it is looked at
	slots   int
	noWait  bool
	duty    bool // the key must be deleted if the call is given up
	waited  bool // it was not among the first at once, as far as this server knew
	late    int  // its index in Queues.late, -1: not in it
	settled bool
	done    chan outcome // capacity 1
}

func (w *waiter) settle(o outcome) {
	if w.settled {
		return
	}
	w.settled = true
	w.done <- o
}

// lateHeap holds the waiters whose place this server's state does not have yet,
// by the revision that it needs.
type lateHeap []*waiter

var _ heap.Interface = (*lateHeap)(nil)

func (h lateHeap) Len() int           { return len(h) }
func (h lateHeap) Less(i, j int) bool { return h[i].since < h[j].since }
func (h lateHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].late, h[j].late = i, j
}

// Push is heap's.
func (h *lateHeap) Push(x any) {
	w := x.(*waiter)
	w.late = len(*h)
	*h = append(*h, w)
}

// Pop is heap's.
func (h *lateHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.late = -1
	return w
}
