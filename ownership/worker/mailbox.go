package worker

import "sync"

// mailbox is an unbounded queue with a coalescing signal. Putting in never
// blocks: a handler, a stream and a claim must not wait for the loop, nor the
// loop for a stream. What waits in one is bounded by what its sender has.
type mailbox[T any] struct {
	signal chan struct{} // capacity 1: there is something

	mu    sync.Mutex
	items []T
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{signal: make(chan struct{}, 1)}
}

func (m *mailbox[T]) put(items ...T) {
	m.mu.Lock()
	m.items = append(m.items, items...)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// take returns what waits, in order. spare, if given, is used for what comes
// next.
func (m *mailbox[T]) take(spare []T) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = spare[:0]
	return items
}
