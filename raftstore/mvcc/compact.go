package mvcc

import "slices"

// Compact forgets what was superseded at or below revision: of each key the
// newest version at or below it is kept, unless that is a deletion below it.
// ErrCompacted refuses a revision at or below the last one, ErrFuture one above
// the present.
func (s *Store) Compact(revision int64) error {
	switch {
	case revision <= s.compacted:
		return ErrCompacted
	case revision > s.revision:
		return ErrFuture
	}
	s.compacted = revision
	s.trimItems()
	s.trimHistory()
	return nil
}

// trimItems visits every key that has a version to forget. Each has a change in
// the history at or below the revision; the history shows them one by one, the
// tree all at once but with the others.
func (s *Store) trimItems() {
	var t trimmer
	if n := s.history.from(s.compacted + 1); n < s.tree.Len()/4 {
		for i := range n {
			if n, ok := s.tree.Get(node{key: s.history.at(i).v.kv.Key}); ok {
				t.trim(s, n)
				t.end(s)
			}
		}
		return
	}
	s.tree.Ascend(func(n node) bool {
		t.trim(s, n)
		return true
	})
	t.end(s)
}

// trimmer collects what must not be changed during a walk over the tree.
type trimmer struct{ replaced, removed []node }

func (t *trimmer) trim(s *Store, n node) {
	it := n.it
	forget := it.from(s.compacted+1) - 1
	if forget < 0 {
		return
	}
	if v := it.index(forget); v.del && v.kv.ModRevision < s.compacted {
		forget++
	}
	if forget == 0 {
		return
	}
	for i := range forget {
		s.size -= it.index(i).size()
	}
	switch {
	case forget == it.len():
		s.size -= keyBytes
		t.removed = append(t.removed, n)
	case it.generation == s.generation:
		it.older = kept(it.older, forget)
	default:
		t.replaced = append(t.replaced, node{n.key, &item{generation: s.generation, last: it.last, older: kept(it.older, forget)}})
	}
}

// kept copies what is left, so that the rest is collected.
func kept(older []*version, forget int) []*version {
	if forget == len(older) {
		return nil
	}
	return slices.Clone(older[forget:])
}

func (t *trimmer) end(s *Store) {
	for _, n := range t.replaced {
		s.tree.ReplaceOrInsert(n)
	}
	for _, n := range t.removed {
		s.tree.Delete(n)
	}
	t.replaced, t.removed = t.replaced[:0], t.removed[:0]
}

// trimHistory keeps the changes from the compacted revision on; of that itself
// the last one of each key, and nothing of what was there before.
func (s *Store) trimHistory() {
	var h history
	for i := s.history.from(s.compacted); i < s.history.n; i++ {
		e := s.history.at(i)
		if e.revision() == s.compacted {
			if n, ok := s.tree.Get(node{key: e.v.kv.Key}); !ok || n.it.at(s.compacted) != e.v {
				continue
			}
			e.prev = nil
		}
		h.append(e)
	}
	s.history = h
}
