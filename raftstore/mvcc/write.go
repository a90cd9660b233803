package mvcc

import (
	"bytes"
	"slices"
)

// writer collects the changes of one revision. Nothing of what it does can
// fail: all checks come before it.
type writer struct {
	s      *Store
	token  uint64
	events []Event
}

// revision is the one that the changes get.
func (w *writer) revision() int64 { return w.s.revision + 1 }

// seen is the store's revision as the operations of a transaction see it.
func (w *writer) seen() int64 {
	if len(w.events) > 0 {
		return w.revision()
	}
	return w.s.revision
}

// end makes the changes a revision, if there are any.
func (w *writer) end() {
	w.s.revision = w.seen()
}

func (w *writer) put(op *PutOp) *PutResult {
	n, found := w.s.tree.Get(node{key: op.Key})
	var before *version
	if found {
		before = n.it.last.live()
	}
	v := &version{kv: KeyValue{Key: op.Key, Value: op.Value, Lease: op.Lease, ModRevision: w.revision(), Version: 1}}
	kv := &v.kv
	if found {
		kv.Key = n.key
	}
	if before != nil {
		kv.CreateRevision, kv.Version, kv.Token = before.kv.CreateRevision, before.kv.Version+1, before.kv.Token
		if op.IgnoreValue {
			kv.Value = before.kv.Value
		}
		if op.IgnoreLease {
			kv.Lease = before.kv.Lease
		}
	} else {
		kv.CreateRevision, kv.Token = w.revision(), w.token
		w.s.keys++
	}
	w.add(n, v, before)
	if op.PrevKV {
		return &PutResult{Prev: before.pair()}
	}
	return &PutResult{}
}

func (w *writer) delete(op *DeleteOp) *DeleteResult {
	r := &DeleteResult{}
	var doomed []node
	span{op.Key, op.End}.visit(w.s.tree, func(key []byte, it *item) bool {
		if !it.last.del {
			doomed = append(doomed, node{key, it})
		}
		return true
	})
	r.Deleted = int64(len(doomed))
	for _, n := range doomed {
		if op.PrevKV {
			r.Prev = append(r.Prev, n.it.last.pair())
		}
		w.remove(n)
	}
	return r
}

// remove deletes a key that is there.
func (w *writer) remove(n node) {
	w.s.keys--
	w.add(n, &version{kv: KeyValue{Key: n.key, ModRevision: w.revision()}, del: true}, n.it.last)
}

// add makes v the newest version of its key. n is where it stands in the tree,
// if it does, and before what was there.
func (w *writer) add(n node, v, before *version) {
	v.sub = int32(len(w.events))
	w.events = append(w.events, Event{Delete: v.del, KV: &v.kv, Prev: before.pair()})
	w.s.size += v.size()
	w.s.history.append(entry{v, n.it.before(v)})
	switch it := n.it; {
	case it == nil:
		w.s.size += keyBytes
		w.s.tree.ReplaceOrInsert(node{v.kv.Key, &item{generation: w.s.generation, last: v}})
	case it.generation == w.s.generation:
		it.older, it.last = append(it.older, it.last), v
	default:
		w.s.tree.ReplaceOrInsert(node{n.key, &item{generation: w.s.generation, last: v, older: append(it.older, it.last)}})
	}
}

// before is what was there before the revision of v, the next version of the
// item, if v does not create the key.
func (it *item) before(v *version) *version {
	if it == nil || (!v.del && v.kv.CreateRevision == v.kv.ModRevision) {
		return nil
	}
	return it.at(v.kv.ModRevision - 1).live()
}

// Bytes that a version takes beside its key and value, with its places in the
// item and in the history; and a key, with its item and its place in the tree.
const (
	versionBytes = 128
	keyBytes     = 96
)

func (v *version) size() int64 { return versionBytes + int64(len(v.kv.Key)+len(v.kv.Value)) }

// DeleteKeys deletes those of the keys that are there, in key order, at one
// revision; none leaves the revision alone.
func (s *Store) DeleteKeys(keys []string) []Event {
	if !slices.IsSorted(keys) {
		keys = slices.Sorted(slices.Values(keys))
	}
	w := &writer{s: s}
	for _, key := range keys {
		if n, ok := s.tree.Get(node{key: []byte(key)}); ok && !n.it.last.del {
			w.remove(n)
		}
	}
	w.end()
	return w.events
}

// equal compares what is visible of two pairs.
func (kv *KeyValue) equal(o *KeyValue) bool {
	return bytes.Equal(kv.Key, o.Key) && bytes.Equal(kv.Value, o.Value) && kv.CreateRevision == o.CreateRevision &&
		kv.ModRevision == o.ModRevision && kv.Version == o.Version && kv.Lease == o.Lease && kv.Token == o.Token
}
