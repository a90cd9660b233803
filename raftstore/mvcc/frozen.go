package mvcc

import "iter"

// Frozen is a copy of the store at one moment, O(1) to take, that stays as it
// is while the store goes on. Any goroutine may read it.
type Frozen struct {
	meta    Meta
	tree    *tree
	history history
}

// Freeze may run beside readers.
func (s *Store) Freeze() *Frozen {
	s.freezing.Lock()
	defer s.freezing.Unlock()
	s.generation++
	return &Frozen{Meta{s.revision, s.compacted}, s.tree.Clone(), s.history}
}

// Meta is what a Frozen is besides its records.
type Meta struct {
	Revision int64
	// Compacted is -1 before the first compaction.
	Compacted int64
}

// Meta of the copy.
func (f *Frozen) Meta() Meta { return f.meta }

// Base yields, in key order, what was there at the compacted revision.
func (f *Frozen) Base() iter.Seq[*KeyValue] {
	return func(yield func(*KeyValue) bool) {
		f.tree.Ascend(func(n node) bool {
			kv := n.it.at(f.meta.Compacted).pair()
			return kv == nil || yield(kv)
		})
	}
}

// Log yields the events from the compacted revision on, in order: its own are
// told again, because a watch may begin at it. Equal stores yield equal events.
func (f *Frozen) Log() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for i := range f.history.n {
			if !yield(f.history.at(i).event()) {
				return
			}
		}
	}
}
