package queue

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestOrderIsAListWithRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o order
		var list []*member
		rev := int64(1)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2: // at the end, or with the last revision
				rev += rapid.Int64Range(0, 1).Draw(t, "later")
				list = addTo(&o, list, rev)
			case 3: // older than the last
				list = addTo(&o, list, rapid.Int64Range(1, rev).Draw(t, "older"))
			default:
				if len(list) > 0 {
					i := rapid.IntRange(0, len(list)-1).Draw(t, "leaves")
					o.remove(list[i])
					list = slices.Delete(list, i, i+1)
				}
			}
			if o.n != len(list) {
				t.Fatalf("%d members, want %d", o.n, len(list))
			}
			for i, m := range list {
				if o.rank(m) != i || o.ranked(i) != m {
					t.Fatalf("rank %d of %s, want %d; at it is %v", o.rank(m), m.key, i, o.ranked(i))
				}
			}
			if o.ranked(-1) != nil || o.ranked(len(list)) != nil {
				t.Fatal("somebody is outside")
			}
		}
	})
}

func addTo(o *order, list []*member, rev int64) []*member {
	key := fmt.Sprintf("k%d-%d", rev, len(list))
	for slices.ContainsFunc(list, func(m *member) bool { return m.key == key }) {
		key += "x"
	}
	m := &member{key: key, kv: &mvcc.KeyValue{Key: []byte(key), CreateRevision: rev}}
	o.add(m)
	at, _ := slices.BinarySearchFunc(list, m, before)
	return slices.Insert(list, at, m)
}

func FuzzParseKey(f *testing.F) {
	for _, key := range []string{"a/1", "a//b", "/ff", "a/0", "a/-1", "a/--1", "a/-8000000000000000", "a/ffffffffffffffff", "a/7fffffffffffffff", "a", ""} {
		f.Add([]byte(key))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		name, session, ok := ParseKey(key)
		if !ok {
			return
		}
		if back := KeyOf(name, session); !bytes.Equal(back, key) {
			t.Fatalf("%q is %q of %x, whose key is %q", key, name, session, back)
		}
	})
}

func TestKeysOfSessions(t *testing.T) {
	negative := int64(-0x1f)
	for _, id := range []state.SessionID{1, 0xab, 1<<63 - 1, 1 << 63, state.SessionID(negative)} {
		key := KeyOf([]byte("a/b"), id)
		if want := fmt.Sprintf("a/b/%x", int64(id)); string(key) != want {
			t.Errorf("key %q, want %q", key, want)
		}
		name, session, ok := ParseKey(key)
		if !ok || string(name) != "a/b" || session != id {
			t.Errorf("%q is %q of %x, %v", key, name, session, ok)
		}
	}
	for _, key := range []string{"", "a", "a/", "a/0", "a/01", "a/A", "a/g", "a/-", "a/-0", "a/ffffffffffffffff", "a/8000000000000000", "a/11111111111111111"} {
		if _, _, ok := ParseKey([]byte(key)); ok {
			t.Errorf("%q is taken for a place", key)
		}
	}
}
