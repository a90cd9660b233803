package queue

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Store is what Queues need of raftstore.Store.
type Store interface {
	View(fn func(*state.State))
	Notify(ch chan<- struct{}) (stop func())
}

// Queues are all queues in which somebody waits at this server. All methods may
// be called from any goroutine.
type Queues struct {
	store Store

	mu      sync.Mutex
	lines   map[string]*line
	late    lateHeap
	rev     int64 // the revision of keys that lines show; without lines, any
	stopped bool
	events  eventBuf

	delivered atomic.Uint64
}

// New returns queues without anybody in them.
func New(store Store) *Queues {
	return &Queues{store: store, lines: map[string]*line{}}
}

// Run follows the state until ctx ends; then every wait ends with ErrStopped, as
// do all later ones.
func (q *Queues) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	stop := q.store.Notify(changed)
	defer stop()
	defer q.stop()
	for {
		q.follow()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow brings the lines up to date, if there are any.
func (q *Queues) follow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) > 0 {
		q.syncLocked(nil)
	}
}

func (q *Queues) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	for _, w := range q.late {
		w.settle(outcome{stopped: true})
	}
	for _, l := range q.lines {
		for _, m := range l.byKey {
			for _, w := range m.waiters {
				w.settle(outcome{stopped: true})
			}
		}
		for o := range l.observers {
			o.signal()
		}
	}
}

// Delivered counts the waits that have ended with an answer: in, lost or ahead.
func (q *Queues) Delivered() uint64 { return q.delivered.Load() }

// Waiting counts the calls that wait now.
func (q *Queues) Waiting() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		n += l.waiters
	}
	return n
}

// enter lets a call wait at its place.
func (q *Queues) enter(name []byte, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.late = -1
	if q.stopped {
		w.settle(outcome{stopped: true})
		return
	}
	l := q.lineLocked(name)
	w.line = l
	l.waiters++
	l.limits[w.slots]++
	if q.rev < w.since {
		w.waited = true
		heap.Push(&q.late, w)
		return
	}
	l.join(w)
}

// ending is how a call's wait is over.
type ending int

const (
	endLost   ending = iota // nothing is there to be kept
	endIn                   // the caller is told that it is among the first
	endGaveUp               // the caller does not want the place any more
	endKept                 // the caller is told to come again: the place stays
)

// exit ends a call's wait. When the call gives up, it learns whether its place
// must go with it: it made the place, and nobody else of its session stands or has
// stood on it.
func (q *Queues) exit(w *waiter, how ending) (remove bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	remove = how == endGaveUp && w.duty
	l := w.line
	if l == nil {
		return remove
	}
	w.line = nil
	if w.late >= 0 {
		heap.Remove(&q.late, w.late)
	}
	if m := w.member; m != nil {
		l.leave(w)
		m.held = m.held || how == endIn
		if remove && m.held {
			remove = false
		} else if remove && len(m.waiters) > 0 {
			m.waiters[0].duty = true // the last one turns off the light
			remove = false
		}
	}
	l.waiters--
	if l.limits[w.slots]--; l.limits[w.slots] == 0 {
		delete(l.limits, w.slots)
	}
	q.dropLocked(l)
	return remove
}

// lineLocked returns the line of name as of now.
func (q *Queues) lineLocked(name []byte) *line {
	if l := q.lines[string(name)]; l != nil {
		q.syncLocked(nil)
		return l
	}
	l := newLine(string(name))
	q.syncLocked(l)
	q.lines[l.name] = l
	return l
}

func (q *Queues) dropLocked(l *line) {
	if l.idle() {
		delete(q.lines, l.name)
	}
}
