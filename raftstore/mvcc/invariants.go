package mvcc

import (
	"bytes"
	"fmt"
)

// Check verifies every invariant, for tests and for Restore. It walks over the
// whole store.
func (s *Store) Check() error {
	if s.revision < 1 || s.compacted < -1 || s.compacted > s.revision {
		return fmt.Errorf("store at revision %d, compacted at %d", s.revision, s.compacted)
	}
	sum, err := s.checkTree()
	if err != nil {
		return err
	}
	if sum.keys != s.keys || sum.size != s.size {
		return fmt.Errorf("store counts %d keys and %d bytes; there are %d and %d", s.keys, s.size, sum.keys, sum.size)
	}
	return s.checkHistory(sum.told)
}

// tally is what a walk over the tree counts; told are the versions that the
// history must have.
type tally struct {
	keys, told int
	size       int64
}

func (s *Store) checkTree() (sum tally, err error) {
	var last []byte
	s.tree.Ascend(func(n node) bool {
		if len(n.key) == 0 || last != nil && bytes.Compare(n.key, last) <= 0 {
			err = fmt.Errorf("key %q after %q", n.key, last)
			return false
		}
		last = n.key
		if err = s.checkItem(n, &sum); err != nil {
			err = fmt.Errorf("key %q: %w", n.key, err)
		}
		return err == nil
	})
	return sum, err
}

func (s *Store) checkItem(n node, sum *tally) error {
	if n.it.generation > s.generation {
		return fmt.Errorf("generation %d in a store of %d", n.it.generation, s.generation)
	}
	sum.size += keyBytes
	if !n.it.last.del {
		sum.keys++
	}
	var before *version
	for i := range n.it.len() {
		v := n.it.index(i)
		if err := s.checkVersion(n.key, v, before); err != nil {
			return fmt.Errorf("revision %d: %w", v.kv.ModRevision, err)
		}
		if v.kv.ModRevision >= s.compacted {
			sum.told++
		}
		sum.size += v.size()
		before = v
	}
	return nil
}

func (s *Store) checkVersion(key []byte, v, before *version) error {
	kv := &v.kv
	switch {
	case !bytes.Equal(kv.Key, key):
		return fmt.Errorf("belongs to key %q", kv.Key)
	case kv.ModRevision < 2 || kv.ModRevision > s.revision:
		return fmt.Errorf("not one of a store at %d", s.revision)
	case before != nil && kv.ModRevision <= s.compacted:
		return fmt.Errorf("second version at or below the compacted revision %d", s.compacted)
	case before != nil && (kv.ModRevision < before.kv.ModRevision || kv.ModRevision == before.kv.ModRevision && v.sub <= before.sub):
		return fmt.Errorf("comes after revision %d", before.kv.ModRevision)
	case v.del && kv.ModRevision < s.compacted:
		return fmt.Errorf("deletion below the compacted revision %d", s.compacted)
	case v.del && (kv.Value != nil || kv.CreateRevision != 0 || kv.Version != 0 || kv.Lease != 0 || kv.Token != 0):
		return fmt.Errorf("deletion with more than a key")
	case v.del && kv.ModRevision > s.compacted && before.live() == nil:
		return fmt.Errorf("deletion of nothing")
	case v.del:
		return nil
	case kv.CreateRevision < 2 || kv.CreateRevision > kv.ModRevision || kv.Version < 1:
		return fmt.Errorf("made at %d, version %d", kv.CreateRevision, kv.Version)
	case kv.ModRevision > s.compacted:
		return v.follows(before.live())
	}
	return nil
}

// checkHistory compares the history with the tree: told versions, each in its
// place, and no revision without one.
func (s *Store) checkHistory(told int) error {
	h := &s.history
	if h.n != told || len(h.chunks) != (h.n+chunk-1)/chunk {
		return fmt.Errorf("history of %d events in %d pieces; the keys have %d", h.n, len(h.chunks), told)
	}
	next, last, sub := max(s.compacted+1, 2), s.compacted, int32(-1)
	for i := range h.n {
		e := h.at(i)
		revision := e.revision()
		switch {
		case revision == next:
			next, last = next+1, revision
		case revision != last:
			return fmt.Errorf("event %d: revision %d after %d", i, revision, last)
		case e.v.sub <= sub:
			return fmt.Errorf("event %d: change %d of revision %d after %d", i, e.v.sub, revision, sub)
		}
		sub = e.v.sub
		if err := s.checkEntry(e); err != nil {
			return fmt.Errorf("event %d: key %q, revision %d: %w", i, e.v.kv.Key, revision, err)
		}
	}
	if next != s.revision+1 {
		return fmt.Errorf("history ends at revision %d of %d", next-1, s.revision)
	}
	return nil
}

func (s *Store) checkEntry(e entry) error {
	n, ok := s.tree.Get(node{key: e.v.kv.Key})
	if !ok {
		return fmt.Errorf("not in the tree")
	}
	for i := n.it.from(e.revision()); i < n.it.len(); i++ {
		if n.it.index(i) != e.v {
			continue
		}
		if told := s.event(n.it, i); told.Prev != e.event().Prev {
			return fmt.Errorf("what was there before it differs")
		}
		return nil
	}
	return fmt.Errorf("not a version of the key")
}
