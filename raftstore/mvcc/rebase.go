package mvcc

// Rebase raises the revision to at least revision, forgets all history and the
// keys that drop tells. What was read or watched before is compacted: the
// revision rises by two at least, so that whoever goes on right after the last
// one that it saw hears of it, too. Nothing is told of the dropped keys.
func (s *Store) Rebase(revision int64, drop func(*KeyValue) bool) {
	old := s.tree
	s.revision = max(revision, s.revision+2)
	s.compacted = s.revision
	s.tree, s.history = newTree(), history{}
	s.keys, s.size = 0, 0
	old.Ascend(func(n node) bool {
		if v := n.it.last.live(); v != nil && !drop(&v.kv) {
			s.base(v)
		}
		return true
	})
}

// base adds a version at or below the compacted revision under a new key.
func (s *Store) base(v *version) {
	s.tree.ReplaceOrInsert(node{v.kv.Key, &item{generation: s.generation, last: v}})
	s.keys++
	s.size += keyBytes + v.size()
}
