package raftstore

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
)

// AppliedIndex is the last log index that this server's state has seen. Raft
// keeps the entry with which a term begins from the state, so it may be one
// behind the log's end until the leader has announced itself.
func (s *Store) AppliedIndex() uint64 { return s.seenIndex.Load() }

// WaitApplied returns nil when this server's state shows everything up to index,
// which may be one that ReadIndex gave on another server. It returns ErrStopped
// when the store ends before that, and the cause of ctx when that ends.
func (s *Store) WaitApplied(ctx context.Context, index uint64) error {
	if s.seenIndex.Load() >= index {
		return nil
	}
	return s.applied.wait(ctx, index, s.seenIndex.Load)
}

// appliedWaiters are those that wait for the state to come as far as an index.
// A wake looks only at those that have reached theirs.
type appliedWaiters struct {
	count atomic.Int64 // of waiters: with none, a wake takes no lock

	mu    sync.Mutex
	queue waiterHeap
	ended bool
}

// appliedWaiter is one of them.
type appliedWaiter struct {
	index uint64
	at    int           // in the queue; -1: not in it any more
	done  chan struct{} // closed when it is reached, or the store has ended
	ended bool          // the store has ended before
}

// wait waits for reached to return index or more; wake must follow each rise.
func (a *appliedWaiters) wait(ctx context.Context, index uint64, reached func() uint64) error {
	w := &appliedWaiter{index: index, done: make(chan struct{})}
	a.mu.Lock()
	a.count.Add(1) // before the look below: a wake that finds none came before it
	switch {
	case reached() >= index:
		a.count.Add(-1)
		a.mu.Unlock()
		return nil
	case a.ended:
		a.count.Add(-1)
		a.mu.Unlock()
		return ErrStopped
	}
	heap.Push(&a.queue, w)
	a.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		a.mu.Lock()
		defer a.mu.Unlock()
		if w.at >= 0 {
			heap.Remove(&a.queue, w.at)
			a.count.Add(-1)
			return context.Cause(ctx)
		}
	}
	if w.ended {
		return ErrStopped
	}
	return nil
}

// wake lets go of those whose index is reached.
func (a *appliedWaiters) wake(reached uint64) {
	if a.count.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.queue) > 0 && a.queue[0].index <= reached {
		a.releaseLocked(heap.Pop(&a.queue).(*appliedWaiter))
	}
}

// end lets go of all, and of those that come later.
func (a *appliedWaiters) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for len(a.queue) > 0 {
		w := heap.Pop(&a.queue).(*appliedWaiter)
		w.ended = true
		a.releaseLocked(w)
	}
}

func (a *appliedWaiters) releaseLocked(w *appliedWaiter) {
	a.count.Add(-1)
	close(w.done)
}

// waiterHeap orders waiters by their index.
type waiterHeap []*appliedWaiter

func (h waiterHeap) Len() int           { return len(h) }
func (h waiterHeap) Less(i, j int) bool { return h[i].index < h[j].index }

// Swap exchanges two.
func (h waiterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push appends one.
func (h *waiterHeap) Push(x any) {
	w := x.(*appliedWaiter)
	w.at = len(*h)
	*h = append(*h, w)
}

// Pop removes the last one.
func (h *waiterHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.at = -1
	return w
}
