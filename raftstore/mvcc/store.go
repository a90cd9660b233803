package mvcc

import (
	"iter"
	"sync"
)

// Store is the whole store. Methods that change it must not run beside any
// other; those that read may run beside each other.
type Store struct {
	revision  int64
	compacted int64 // -1 before the first compaction: revision 0 can be compacted once, as in etcd
	keys      int   // that are there now
	size      int64

	// freezing keeps two Freeze apart; it guards the change of generation and
	// the mark that Clone leaves in tree, both of which only writers read.
	freezing   sync.Mutex
	generation uint64

	tree    *tree
	history history
}

// New returns an empty store at revision 1.
func New() *Store { return &Store{revision: 1, compacted: -1, tree: newTree()} }

// Revision is that of the last change; 1 at first.
func (s *Store) Revision() int64 { return s.revision }

// Compacted is the revision below which nothing can be read; 0 at first.
func (s *Store) Compacted() int64 { return max(s.compacted, 0) }

// Len is the number of keys that are there now.
func (s *Store) Len() int { return s.keys }

// Size estimates the bytes that all kept versions and events take. It depends
// on what is kept alone: equal stores have equal sizes.
func (s *Store) Size() int64 { return s.size }

// Get returns a key's present version, or nil.
func (s *Store) Get(key []byte) *KeyValue {
	n, ok := s.tree.Get(node{key: key})
	if !ok {
		return nil
	}
	return n.it.last.pair()
}

// Keys yields the present keys in order.
func (s *Store) Keys() iter.Seq[*KeyValue] {
	return func(yield func(*KeyValue) bool) {
		s.tree.Ascend(func(n node) bool { return n.it.last.del || yield(&n.it.last.kv) })
	}
}
