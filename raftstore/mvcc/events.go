package mvcc

import (
	"cmp"
	"slices"
)

// Events appends to buf the events of the revisions from (at least 1) to to in order, of
// keys in [key, end) as in RangeOp, but at most about limit (0: no limit) and never a part of
// a revision. next is where to go on; it is above to, or above the present
// revision if that is less, when all is told. ErrCompacted says that from lies below what
// can be told.
//
// The compacted revision itself can be told, as in etcd: with the last change
// of each key, and without what was there before. Prev is always what was there
// before the revision, not an earlier change of the same one, and nil for a put
// that creates its key.
//
// One key costs what its own changes cost. A range costs what its keys and
// their changes cost, if they are few, or else a walk over all changes.
func (s *Store) Events(from, to int64, key, end []byte, limit int, buf []Event) (events []Event, next int64, err error) {
	if from < s.compacted {
		return buf, from, ErrCompacted
	}
	to = min(to, s.revision)
	if from > to {
		return buf, from, nil
	}
	t := teller{s: s, span: span{key, end}, from: from, to: to, limit: limit, events: buf, begun: len(buf)}
	next = t.tell()
	return t.events, next, nil
}

// teller is one call of Events.
type teller struct {
	s        *Store
	span     span
	from, to int64
	limit    int

	events []Event
	begun  int   // events that were there before
	last   int64 // revision of the last event
}

// full says that limit forbids an event of a revision.
func (t *teller) full(revision int64) bool {
	return t.limit > 0 && len(t.events)-t.begun >= t.limit && revision != t.last
}

func (t *teller) add(revision int64, e Event) {
	t.events, t.last = append(t.events, e), revision
}

func (t *teller) tell() (next int64) {
	if t.span.single() {
		n, ok := t.s.tree.Get(node{key: t.span.key})
		if !ok {
			return t.to + 1
		}
		return t.tellItem(n.it)
	}
	if !t.span.all() {
		if found, ok := t.gather(); ok {
			return t.tellFound(found)
		}
	}
	return t.walk()
}

func (t *teller) tellItem(it *item) (next int64) {
	for i := it.from(t.from); i < it.len(); i++ {
		v := it.index(i)
		revision := v.kv.ModRevision
		if revision > t.to {
			break
		}
		if t.full(revision) {
			return revision
		}
		t.add(revision, t.s.event(it, i))
	}
	return t.to + 1
}

// event tells the i-th version of an item.
func (s *Store) event(it *item, i int) Event {
	v := it.index(i)
	e := entry{v: v}
	if v.kv.ModRevision > s.compacted {
		e.prev = it.before(v)
	}
	return e.event()
}

// walk looks at every change.
func (t *teller) walk() (next int64) {
	h := &t.s.history
	for i := h.from(t.from); i < h.n; i++ {
		e := h.at(i)
		revision := e.revision()
		if revision > t.to {
			break
		}
		if t.full(revision) {
			return revision
		}
		if t.span.contains(e.v.kv.Key) {
			t.add(revision, e.event())
		}
	}
	return t.to + 1
}

type found struct {
	it *item
	i  int
}

func (f found) version() *version { return f.it.index(f.i) }

// Looking at a change in a walk costs so many times less than finding a key, or
// sorting a change.
const walkIsCheaperBy = 16

// gather finds the range's changes key by key, if they are few beside what a walk
// would look at.
func (t *teller) gather() (all []found, ok bool) {
	h := &t.s.history
	budget := (h.from(t.to+1) - h.from(t.from)) / walkIsCheaperBy
	t.span.visit(t.s.tree, func(_ []byte, it *item) bool {
		for i := it.from(t.from); i < it.len() && it.index(i).kv.ModRevision <= t.to; i++ {
			all = append(all, found{it, i})
			budget--
		}
		budget--
		return budget >= 0
	})
	if budget < 0 {
		return nil, false
	}
	slices.SortFunc(all, func(a, b found) int {
		v, o := a.version(), b.version()
		return cmp.Or(cmp.Compare(v.kv.ModRevision, o.kv.ModRevision), cmp.Compare(v.sub, o.sub))
	})
	return all, true
}

func (t *teller) tellFound(all []found) (next int64) {
	for _, f := range all {
		revision := f.version().kv.ModRevision
		if t.full(revision) {
			return revision
		}
		t.add(revision, t.s.event(f.it, f.i))
	}
	return t.to + 1
}
