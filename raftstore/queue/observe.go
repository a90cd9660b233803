package queue

import (
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Observer tells whenever the first of a queue, or its value, may have changed.
type Observer struct {
	q       *Queues
	line    *line
	changed chan struct{}
}

// Observe begins to look at a queue. Stop must be called in the end.
func (q *Queues) Observe(name []byte) *Observer {
	o := &Observer{q: q, changed: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	o.line = q.lineLocked(name)
	o.line.observers[o] = struct{}{}
	if q.stopped {
		o.signal()
	}
	return o
}

// Changed has one signal, however many changes there were.
func (o *Observer) Changed() <-chan struct{} { return o.changed }

func (o *Observer) signal() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// First is the pair of the first place, nil if nobody stands in the queue, and
// the revision of keys at which that is so. ErrStopped says that no change will
// be told any more.
func (o *Observer) First() (*mvcc.KeyValue, int64, error) {
	q := o.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return nil, 0, ErrStopped
	}
	q.syncLocked(nil)
	if m := o.line.order.ranked(0); m != nil {
		return m.kv, q.rev, nil
	}
	return nil, q.rev, nil
}

// Stop ends the observer.
func (o *Observer) Stop() {
	q := o.q
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(o.line.observers, o)
	q.dropLocked(o.line)
}

// First returns the pair of the first place in the queue of name, nil if nobody
// stands in it, and the revision of keys at which that is so.
func (q *Queues) First(name []byte) (first *mvcc.KeyValue, rev int64, err error) {
	q.store.View(func(s *state.State) {
		rev = s.Keys().Revision()
		err = places(s.Keys(), name, func(kv *mvcc.KeyValue) {
			if first == nil || compare(kv, first) < 0 {
				first = kv
			}
		})
	})
	return first, rev, err
}
