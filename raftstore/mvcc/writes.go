package mvcc

import (
	"bytes"

	"github.com/google/btree"
)

// writes is what the operations of a branch may write: the keys that they put,
// and the ranges that they delete, disjoint. Both are ordered, so that two sets
// are compared and joined at the cost of the smaller one: a request may nest
// thousands of operations, and the check must not be what slows the log down.
// A nil tree is an empty one.
type writes struct {
	puts *btree.BTreeG[[]byte]
	dels *btree.BTreeG[span] // [key, end) by key; no other form
}

// written collects what a branch may write and says whether no key is put twice
// in it, nor put and deleted. Rules, all etcd's: the branches of one nested
// transaction may put the same key, for only one of them is done; a put in a
// nested transaction may be deleted by one that comes later in the list, but
// not by an earlier one, nor by a deletion of the list itself.
func written(ops []Op) (w writes, ok bool) {
	for i := range ops {
		if ops[i].kind() == opDelete {
			w.delete(ops[i].Delete)
		}
	}
	for i := range ops {
		if ops[i].kind() != opTxn {
			continue
		}
		then, ok1 := written(ops[i].Txn.Success)
		other, ok2 := written(ops[i].Txn.Failure)
		if !ok1 || !ok2 || w.collides(then) || w.collides(other) {
			return w, false
		}
		w.join(then)
		w.join(other)
	}
	for i := range ops {
		if ops[i].kind() == opPut && !w.put(ops[i].Put.Key) {
			return w, false
		}
	}
	return w, true
}

// put adds a key, unless it is there or in a deleted range.
func (w *writes) put(key []byte) bool {
	if w.deletes(key) {
		return false
	}
	if w.puts == nil {
		w.puts = btree.NewG(degree, func(a, b []byte) bool { return bytes.Compare(a, b) < 0 })
	}
	_, again := w.puts.ReplaceOrInsert(key)
	return !again
}

// delete adds a range. Etcd's check takes the end of one zero byte at its word,
// as a range without a key, and so do we: such a deletion may come with puts of
// its keys, before and after it.
func (w *writes) delete(op *DeleteOp) {
	r := span{op.Key, op.End}
	if r.single() {
		r.end = append(bytes.Clone(op.Key), 0)
	}
	w.deleteSpan(r)
}

// deleteSpan adds [key, end) and makes one range of it and those it touches.
func (w *writes) deleteSpan(r span) {
	if bytes.Compare(r.key, r.end) >= 0 {
		return
	}
	if w.dels == nil {
		w.dels = btree.NewG(degree, func(a, b span) bool { return bytes.Compare(a.key, b.key) < 0 })
	}
	for {
		o, ok := w.below(r.end)
		if !ok || bytes.Compare(o.end, r.key) < 0 {
			break
		}
		w.dels.Delete(o)
		if bytes.Compare(o.key, r.key) < 0 {
			r.key = o.key
		}
		if bytes.Compare(o.end, r.end) > 0 {
			r.end = o.end
		}
	}
	w.dels.ReplaceOrInsert(r)
}

// below is the last range that begins at or below a key.
func (w *writes) below(key []byte) (r span, ok bool) {
	w.dels.DescendLessOrEqual(span{key: key}, func(o span) bool {
		r, ok = o, true
		return false
	})
	return r, ok
}

func (w *writes) deletes(key []byte) bool {
	if w.dels == nil {
		return false
	}
	o, ok := w.below(key)
	return ok && bytes.Compare(key, o.end) < 0
}

// collides says whether a put of o is put or deleted by w.
func (w *writes) collides(o writes) bool {
	return w.putsAny(o) || w.deletesAny(o)
}

func (w *writes) putsAny(o writes) (found bool) {
	if w.puts == nil || o.puts == nil {
		return false
	}
	small, large := w.puts, o.puts
	if small.Len() > large.Len() {
		small, large = large, small
	}
	small.Ascend(func(key []byte) bool {
		found = large.Has(key)
		return !found
	})
	return found
}

func (w *writes) deletesAny(o writes) (found bool) {
	if w.dels == nil || o.puts == nil {
		return false
	}
	if o.puts.Len() < w.dels.Len() {
		o.puts.Ascend(func(key []byte) bool {
			found = w.deletes(key)
			return !found
		})
		return found
	}
	w.dels.Ascend(func(r span) bool {
		o.puts.AscendRange(r.key, r.end, func([]byte) bool {
			found = true
			return false
		})
		return !found
	})
	return found
}

// join adds all of o, which may be changed by it.
func (w *writes) join(o writes) {
	if o.puts != nil {
		if w.puts == nil || w.puts.Len() < o.puts.Len() {
			w.puts, o.puts = o.puts, w.puts
		}
		if o.puts != nil {
			o.puts.Ascend(func(key []byte) bool {
				w.puts.ReplaceOrInsert(key)
				return true
			})
		}
	}
	if o.dels != nil {
		if w.dels == nil || w.dels.Len() < o.dels.Len() {
			w.dels, o.dels = o.dels, w.dels
		}
		if o.dels != nil {
			o.dels.Ascend(func(r span) bool {
				w.deleteSpan(r)
				return true
			})
		}
	}
}
