package queue

import "github.com/leasehold-dev/leasehold/raftstore/mvcc"

// member is one place of a queue as this server's state has it.
type member struct {
	key     string
	kv      *mvcc.KeyValue // its present version
	at      int            // in order.all
	waiters []*waiter      // calls that wait here for this place
	held    bool           // a call has been told that it is among the first
}

// line is the queue of one name. It is kept while somebody here waits or looks.
type line struct {
	name      string
	order     order
	byKey     map[string]*member
	waiters   int
	limits    map[int]int // how many waiters want to be among the first so many
	observers map[*Observer]struct{}
}

func newLine(name string) *line {
	return &line{name: name, byKey: map[string]*member{}, limits: map[int]int{}, observers: map[*Observer]struct{}{}}
}

func (l *line) idle() bool { return l.waiters == 0 && len(l.observers) == 0 }

// put notes the new version of a key of the form that belongs to this line.
func (l *line) put(kv *mvcc.KeyValue) {
	m := l.byKey[string(kv.Key)]
	switch {
	case !IsPlace(kv):
		l.delete(kv.Key) // it was taken from its session
	case m == nil:
		m = &member{key: string(kv.Key), kv: kv}
		l.byKey[m.key] = m
		l.order.add(m)
		l.look(l.order.rank(m) == 0)
	case m.kv.CreateRevision != kv.CreateRevision:
		l.delete(kv.Key)
		l.put(kv)
	default:
		m.kv = kv
		l.look(l.order.rank(m) == 0)
	}
}

// delete takes a place out: its own waiters have lost it, and those who are
// among the first by that are let in.
func (l *line) delete(key []byte) {
	m := l.byKey[string(key)]
	if m == nil {
		return
	}
	rank := l.order.rank(m)
	delete(l.byKey, m.key)
	l.order.remove(m)
	for _, w := range m.waiters {
		w.settle(outcome{lost: true})
	}
	for slots := range l.limits {
		if rank < slots {
			l.admit(l.order.ranked(slots-1), slots)
		}
	}
	l.look(rank == 0)
}

// admit lets those waiters of m in that are content with slots.
func (l *line) admit(m *member, slots int) {
	if m == nil {
		return
	}
	for _, w := range m.waiters {
		if w.slots == slots {
			w.settle(outcome{})
		}
	}
}

// look tells the observers that the first of the queue may have changed.
func (l *line) look(changed bool) {
	if !changed {
		return
	}
	for o := range l.observers {
		o.signal()
	}
}

// join puts a waiter at its place, and settles what is settled already.
func (l *line) join(w *waiter) {
	m := l.byKey[string(w.key)]
	if m == nil || m.kv.CreateRevision != w.created {
		w.settle(outcome{lost: true})
		return
	}
	w.member = m
	m.waiters = append(m.waiters, w)
	switch rank := l.order.rank(m); {
	case rank < w.slots:
		w.settle(outcome{})
	case w.noWait:
		w.settle(outcome{ahead: rank})
	default:
		w.waited = true
	}
}

// replace gives the line another content, and its waiters what that means for
// them.
func (l *line) replace(by *line) {
	old := l.byKey
	l.order, l.byKey = by.order, by.byKey
	for key, m := range old {
		is := l.byKey[key]
		if is == nil || is.kv.CreateRevision != m.kv.CreateRevision {
			for _, w := range m.waiters {
				w.settle(outcome{lost: true})
			}
			continue
		}
		is.waiters, is.held = m.waiters, m.held
		for _, w := range is.waiters {
			w.member = is
			if l.order.rank(is) < w.slots {
				w.settle(outcome{})
			}
		}
	}
	l.look(true)
}

// leave takes a waiter off its place.
func (l *line) leave(w *waiter) {
	m := w.member
	if m == nil {
		return
	}
	for i, other := range m.waiters {
		if other == w {
			m.waiters = append(m.waiters[:i], m.waiters[i+1:]...)
			break
		}
	}
	w.member = nil
}
