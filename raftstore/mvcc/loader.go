package mvcc

import (
	"bytes"
	"errors"
	"fmt"
)

// Loader builds a store from what a Frozen yielded: first all of its Base, then
// all of its Log. The slices become the store's own. Its errors, unlike the
// store's, tell of damage, not of a refusal; after one it is of no use.
type Loader struct {
	s    *Store
	last []byte // key of the last pair
	w    writer // of the revision of the last event
}

// NewLoader begins.
func NewLoader(m Meta) *Loader {
	s := New()
	s.revision, s.compacted = m.Revision, m.Compacted
	return &Loader{s: s}
}

// Base adds the next pair.
func (l *Loader) Base(kv *KeyValue) error {
	switch {
	case l.s.history.n > 0:
		return errors.New("pair after an event")
	case len(kv.Key) == 0:
		return errors.New("pair without a key")
	case l.last != nil && bytes.Compare(kv.Key, l.last) <= 0:
		return fmt.Errorf("key %q: not above the one before, %q", kv.Key, l.last)
	case kv.CreateRevision < 2 || kv.ModRevision < kv.CreateRevision || kv.ModRevision > l.s.compacted:
		return fmt.Errorf("key %q: made at revision %d, put at %d, of a store compacted at %d", kv.Key, kv.CreateRevision, kv.ModRevision, l.s.compacted)
	case kv.Version < 1:
		return fmt.Errorf("key %q: version %d", kv.Key, kv.Version)
	}
	l.last = kv.Key
	l.s.base(&version{kv: *kv})
	return nil
}

// Log adds the next event; only Delete and KV of it are looked at.
func (l *Loader) Log(e Event) error {
	kv := e.KV
	before := int64(0)
	if n := l.s.history.n; n > 0 {
		before = l.s.history.at(n - 1).revision()
	}
	switch {
	case len(kv.Key) == 0:
		return errors.New("event without a key")
	case kv.ModRevision < max(2, before, l.s.compacted) || kv.ModRevision > l.s.revision:
		return fmt.Errorf("key %q: event of revision %d after %d, of a store at %d, compacted at %d",
			kv.Key, kv.ModRevision, before, l.s.revision, l.s.compacted)
	}
	if kv.ModRevision != before {
		l.w = writer{s: l.s}
	}
	n, _ := l.s.tree.Get(node{key: kv.Key})
	if kv.ModRevision == l.s.compacted {
		return l.retold(n, e)
	}
	return l.change(n, e)
}

// retold adds an event of the compacted revision: a put is in the base already.
func (l *Loader) retold(n node, e Event) error {
	v := &version{kv: KeyValue{Key: e.KV.Key, ModRevision: e.KV.ModRevision}, del: true}
	switch {
	case e.Delete && n.it != nil:
		return fmt.Errorf("key %q: there, or deleted twice, at the compacted revision %d, which deletes it", e.KV.Key, l.s.compacted)
	case e.Delete:
		l.s.tree.ReplaceOrInsert(node{v.kv.Key, &item{last: v}})
		l.s.size += keyBytes + v.size()
	case n.it == nil || !n.it.last.kv.equal(e.KV):
		return fmt.Errorf("key %q: not there at the compacted revision %d, which puts it", e.KV.Key, l.s.compacted)
	default:
		v = n.it.last
	}
	v.sub = int32(l.s.history.n)
	l.s.history.append(entry{v: v})
	return nil
}

// change adds an event as a write would have made it.
func (l *Loader) change(n node, e Event) error {
	var before *version
	if n.it != nil {
		before = n.it.last.live()
	}
	if e.Delete {
		if before == nil {
			return fmt.Errorf("key %q: deleted at revision %d without being there", e.KV.Key, e.KV.ModRevision)
		}
		l.s.keys--
		l.w.add(n, &version{kv: KeyValue{Key: n.key, ModRevision: e.KV.ModRevision}, del: true}, before)
		return nil
	}
	v := &version{kv: *e.KV}
	if err := v.follows(before); err != nil {
		return err
	}
	if n.it != nil {
		v.kv.Key = n.key
	}
	if before == nil {
		l.s.keys++
	}
	l.w.add(n, v, before)
	return nil
}

// follows says whether a put can come after another, or after nothing.
func (v *version) follows(before *version) error {
	kv := &v.kv
	want := KeyValue{CreateRevision: kv.ModRevision, Version: 1, Token: kv.Token}
	if before != nil {
		want = KeyValue{CreateRevision: before.kv.CreateRevision, Version: before.kv.Version + 1, Token: before.kv.Token}
	}
	if kv.CreateRevision != want.CreateRevision || kv.Version != want.Version || kv.Token != want.Token {
		return fmt.Errorf("key %q at revision %d: made at %d, version %d, token %d; its history makes that %d, %d, %d", kv.Key, kv.ModRevision,
			kv.CreateRevision, kv.Version, kv.Token, want.CreateRevision, want.Version, want.Token)
	}
	return nil
}

// Store returns the store, checked.
func (l *Loader) Store() (*Store, error) {
	if err := l.s.Check(); err != nil {
		return nil, err
	}
	return l.s, nil
}
