package mvcc

import (
	"bytes"
	"sort"

	"github.com/google/btree"
)

// version is one put or deletion of a key. It is never changed once a method
// of the store has returned, so that readers, history and frozen copies share
// it. It holds no pointer to another version: what was compacted is collected.
type version struct {
	kv  KeyValue // of a deletion: Key and ModRevision alone
	del bool
	sub int32 // its place among the changes of its revision
}

// item is a key with all its kept versions, deletions included. It is changed
// in place while its generation is the store's, and replaced by a copy when a
// frozen copy may look at it.
type item struct {
	generation uint64
	last       *version
	// older ones, in order. A frozen copy shares the array up to the length it
	// saw; what is appended lies behind that.
	older []*version
}

// node is what the tree holds. The key is here so that a search need not
// follow the pointer.
type node struct {
	key []byte
	it  *item
}

type tree = btree.BTreeG[node]

const degree = 32

func newTree() *tree {
	return btree.NewG(degree, func(a, b node) bool { return bytes.Compare(a.key, b.key) < 0 })
}

// live is the version, or nil if it is a deletion.
func (v *version) live() *version {
	if v == nil || v.del {
		return nil
	}
	return v
}

// pair is the version's pair, or nil for no version or a deletion.
func (v *version) pair() *KeyValue {
	if v == nil || v.del {
		return nil
	}
	return &v.kv
}

// at is the newest version at or below a revision, nil if there is none.
func (it *item) at(revision int64) *version {
	if it.last.kv.ModRevision <= revision {
		return it.last
	}
	if i := it.after(revision); i > 0 {
		return it.older[i-1]
	}
	return nil
}

// after counts the older versions that are at or below a revision.
func (it *item) after(revision int64) int {
	return sort.Search(len(it.older), func(i int) bool { return it.older[i].kv.ModRevision > revision })
}

// len is the number of versions, index gives them in order.
func (it *item) len() int { return len(it.older) + 1 }

func (it *item) index(i int) *version {
	if i == len(it.older) {
		return it.last
	}
	return it.older[i]
}

// from is the index of the first version at or above a revision.
func (it *item) from(revision int64) int {
	if i := it.after(revision - 1); i < len(it.older) {
		return i
	}
	if it.last.kv.ModRevision >= revision {
		return len(it.older)
	}
	return len(it.older) + 1
}
