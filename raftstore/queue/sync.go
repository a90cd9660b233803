package queue

import (
	"container/heap"
	"fmt"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// chunk is about how many events are read under the store's lock at once.
const chunk = 4096

type eventBuf []mvcc.Event

// syncLocked brings all lines to the present revision. fresh, if not nil, is a line
// that is filled in the same look.
func (q *Queues) syncLocked(fresh *line) {
	for more := true; more; {
		compacted := false
		q.store.View(func(s *state.State) {
			keys := s.Keys()
			now := keys.Revision()
			q.events = q.events[:0]
			more = false
			switch {
			case len(q.lines) == 0 || q.rev == now:
			case q.rev > now:
				compacted = true
			default:
				events, next, err := keys.Events(q.rev+1, now, everything, everything, chunk, q.events)
				q.events = events
				if err != nil {
					compacted = true
				} else if next <= now {
					q.rev, more = next-1, true
					return
				}
			}
			q.rev = now
			if compacted {
				q.reload(keys)
			}
			if fresh != nil {
				fill(fresh, keys)
			}
		})
		q.apply(q.events)
	}
	q.lateLocked()
}

// everything, as both ends of a range, is the whole store.
var everything = []byte{0}

// apply passes events on to the lines of their keys.
func (q *Queues) apply(events []mvcc.Event) {
	for i := range events {
		e := &events[i]
		name, _, ok := ParseKey(e.KV.Key)
		if !ok {
			continue
		}
		l := q.lines[string(name)]
		switch {
		case l == nil:
		case e.Delete:
			l.delete(e.KV.Key)
		default:
			l.put(e.KV)
		}
	}
	clear(events) // let go of the keys
}

// reload makes the lines anew when the events between are gone: a snapshot came
// from the leader, or a compaction was quicker.
func (q *Queues) reload(keys *mvcc.Store) {
	for _, l := range q.lines {
		fresh := newLine(l.name)
		fill(fresh, keys)
		l.replace(fresh)
	}
}

// fill reads a queue from the keys.
func fill(l *line, keys *mvcc.Store) {
	var found []*member
	err := places(keys, []byte(l.name), func(kv *mvcc.KeyValue) {
		found = append(found, &member{key: string(kv.Key), kv: kv})
	})
	if err != nil { // the ranges are well-formed and read the present
		panic(fmt.Sprintf("read the queue of a name: %v", err))
	}
	sortMembers(found)
	for _, m := range found {
		l.byKey[m.key] = m
		l.order.push(m)
	}
}

// lateLocked looks at the waiters whose place has come into this server's state.
func (q *Queues) lateLocked() {
	for len(q.late) > 0 && q.late[0].since <= q.rev {
		w := heap.Pop(&q.late).(*waiter)
		w.line.join(w)
	}
}
