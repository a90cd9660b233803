package mvcc

import "bytes"

// span is a range of keys as the wire says it: the one key if end is empty,
// every key from key on if end is one zero byte, else [key, end).
type span struct{ key, end []byte }

func (r span) single() bool { return len(r.end) == 0 }

func (r span) open() bool { return len(r.end) == 1 && r.end[0] == 0 }

// all tells the whole store: every key is at or above one zero byte.
func (r span) all() bool { return r.open() && len(r.key) == 1 && r.key[0] == 0 }

// Bounds are the bounds of a range as the wire says it: its keys are those from
// from on and below to, and have no upper bound where to is nil. Whoever decides
// about a range decides about what Range, Txn and Events make of it.
func Bounds(key, end []byte) (from, to []byte) {
	switch r := (span{key, end}); {
	case r.single():
		return key, append(bytes.Clone(key), 0)
	case r.open():
		return key, nil
	}
	return key, end
}

func (r span) contains(key []byte) bool {
	switch {
	case r.single():
		return bytes.Equal(key, r.key)
	case bytes.Compare(key, r.key) < 0:
		return false
	}
	return r.open() || bytes.Compare(key, r.end) < 0
}

// visit calls fn for the items of the range in key order until it says no.
func (r span) visit(t *tree, fn func(key []byte, it *item) bool) {
	from := node{key: r.key}
	each := func(n node) bool { return fn(n.key, n.it) }
	switch {
	case r.single():
		if n, ok := t.Get(from); ok {
			fn(n.key, n.it)
		}
	case r.open():
		t.AscendGreaterOrEqual(from, each)
	default:
		t.AscendRange(from, node{key: r.end}, each)
	}
}
