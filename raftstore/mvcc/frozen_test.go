package mvcc

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestFrozenBesideWriter reads copies while the store is written, compacted and
// frozen again.
func TestFrozenBesideWriter(t *testing.T) {
	s := New()
	for i := range 2000 {
		do1(t, s, oput(fmt.Sprintf("k%03d", i%500), fmt.Sprint(i)))
	}
	var readers sync.WaitGroup
	for round := range 8 {
		f := s.Freeze()
		want := streams(f)
		readers.Go(func() {
			for range 3 {
				if got := streams(f); got != want {
					t.Error("a frozen copy moved")
				}
			}
		})
		for i := range 1000 {
			do1(t, s, oput(fmt.Sprintf("k%03d", i%600), fmt.Sprint(i)))
			if i%50 == 0 {
				do1(t, s, odel(fmt.Sprintf("k%03d", i), ""))
			}
		}
		if err := s.Compact(s.Revision() - int64(round*100)); err != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestFreezeBesideReaders takes copies from several goroutines at once.
func TestFreezeBesideReaders(t *testing.T) {
	s := filled(t, 1000)
	want := streams(s.Freeze())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 5 {
				if s.Get(k("k000001")) == nil || streams(s.Freeze()) != want {
					t.Error("the copy differs")
				}
			}
		})
	}
	readers.Wait()
}

// TestEqualStoresGiveEqualStreams, however they came about: one was compacted
// in steps with copies taken, one at once, one was loaded in between.
func TestEqualStoresGiveEqualStreams(t *testing.T) {
	write := func(s *Store, from, to int) {
		for i := from; i < to; i++ {
			do1(t, s, oput(fmt.Sprintf("k%02d", i*7%31), fmt.Sprint(i)))
			do1(t, s, odel(fmt.Sprintf("k%02d", i*3%31), ""))
			do1(t, s, oput("x", ""), oput("y", ""))
		}
	}
	compact := func(s *Store, revision int64) {
		if err := s.Compact(revision); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := New(), New(), New()
	write(a, 0, 40)
	a.Freeze()
	compact(a, 10)
	write(a, 40, 80)
	compact(a, 100)
	a.Freeze()
	compact(a, 101)

	write(b, 0, 80)
	compact(b, 101)

	write(c, 0, 60)
	compact(c, 101)
	c, err := load(c.Freeze())
	if err != nil {
		t.Fatal(err)
	}
	write(c, 60, 80)

	want := streams(a.Freeze())
	hash, _, _ := a.Hash(0)
	for name, s := range map[string]*Store{"at once": b, "loaded": c} {
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := streams(s.Freeze()); got != want {
			t.Errorf("%s: other records", name)
		}
		if h, _, _ := s.Hash(0); h != hash {
			t.Errorf("%s: hash %d, want %d", name, h, hash)
		}
		if s.Size() != a.Size() || s.Len() != a.Len() {
			t.Errorf("%s: %d bytes, %d keys; want %d, %d", name, s.Size(), s.Len(), a.Size(), a.Len())
		}
	}
}

// TestHash differs with every field, and is refused where nothing can be read.
func TestHash(t *testing.T) {
	base := func() *KeyValue {
		return &KeyValue{Key: k("a"), Value: k("x"), CreateRevision: 3, ModRevision: 4, Version: 2, Lease: 1, Token: 5}
	}
	hash := func(change func(*KeyValue)) uint32 {
		kv := base()
		change(kv)
		l := NewLoader(Meta{Revision: 9, Compacted: 9})
		if err := l.Base(kv); err != nil {
			t.Fatal(err)
		}
		s, err := l.Store()
		if err != nil {
			t.Fatal(err)
		}
		h, at, err := s.Hash(0)
		if err != nil || at != 9 {
			t.Fatal(at, err)
		}
		return h
	}
	seen := map[uint32]int{}
	for i, change := range []func(*KeyValue){
		func(*KeyValue) {},
		func(kv *KeyValue) { kv.Key = k("b") },
		func(kv *KeyValue) { kv.Value = k("y") },
		func(kv *KeyValue) { kv.Key, kv.Value = k("ax"), nil },
		func(kv *KeyValue) { kv.CreateRevision = 4 },
		func(kv *KeyValue) { kv.ModRevision = 5 },
		func(kv *KeyValue) { kv.Version = 3 },
		func(kv *KeyValue) { kv.Lease = 0 },
		func(kv *KeyValue) { kv.Token = 0 },
	} {
		h := hash(change)
		if j, again := seen[h]; again {
			t.Errorf("changes %d and %d have the same hash", i, j)
		}
		seen[h] = i
	}
	s := tenPuts(t)
	at9, _, _ := s.Hash(9)
	now, _, _ := s.Hash(13)
	do(t, s, oput("z", ""))
	if again, at, err := s.Hash(9); again != at9 || at != 9 || err != nil || at9 == now {
		t.Errorf("hash at 9: %d, then %d", at9, again)
	}
	s.Compact(5)
	for revision, want := range map[int64]error{4: ErrCompacted, 5: nil, 14: nil, 15: ErrFuture, 0: nil} {
		if _, _, err := s.Hash(revision); err != want {
			t.Errorf("hash at %d: %v, want %v", revision, err, want)
		}
	}
}

// TestRebase: what is kept keeps its fields; whoever watched or read before
// hears that history is gone, also if it goes on right after what it saw.
func TestRebase(t *testing.T) {
	for _, raise := range []int64{0, 3, 1000} {
		s := New()
		do(t, s, Op{Put: &PutOp{Key: k("leased"), Lease: 1}}, oput("a", "x"), oput("gone", ""))
		do(t, s, oput("a", "y"), odel("gone", ""))
		f := s.Freeze()
		before := streams(f)
		kept := *s.Get(k("a"))
		old := s.Revision()
		s.Rebase(raise, func(kv *KeyValue) bool { return kv.Lease != 0 })
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if s.Revision() != max(raise, old+2) || s.Compacted() != s.Revision() || s.Len() != 1 || s.tree.Len() != 1 {
			t.Errorf("raised to %d: at %d, compacted %d, %d keys", raise, s.Revision(), s.Compacted(), s.Len())
		}
		if got := s.Get(k("a")); print(*got) != print(kept) {
			t.Errorf("a is %s", print(got))
		}
		for _, from := range []int64{1, old, old + 1} {
			if _, _, err := s.Events(from, s.Revision(), k("a"), nil, 0, nil); err != ErrCompacted {
				t.Errorf("raised to %d: events from %d: %v", raise, from, err)
			}
		}
		if got := streams(f); got != before {
			t.Error("a frozen copy moved")
		}
		do(t, s, oput("a", "z"))
		if got, want := history1(t, s), fmt.Sprintf("%d put a=z (was y)", s.Revision()); got != want {
			t.Errorf("history %s, want %s", got, want)
		}
		if again, err := load(s.Freeze()); err != nil || streams(again.Freeze()) != streams(s.Freeze()) {
			t.Errorf("loaded: %v", err)
		}
	}
}

// TestLoaderRefusesDamage: each of these would make a store that no history
// leads to.
func TestLoaderRefusesDamage(t *testing.T) {
	kv := func(key string, create, mod, version int64) *KeyValue {
		return &KeyValue{Key: k(key), CreateRevision: create, ModRevision: mod, Version: version}
	}
	put := func(key string, create, mod, version int64) Event { return Event{KV: kv(key, create, mod, version)} }
	del := func(key string, mod int64) Event { return Event{Delete: true, KV: kv(key, 0, mod, 0)} }
	token := put("a", 4, 7, 3)
	token.KV.Token = 1
	for _, c := range []struct {
		what string
		meta Meta
		base []*KeyValue
		log  []Event
		want string
	}{
		{"nothing", Meta{1, -1}, nil, nil, ""},
		{"sound", Meta{8, 6}, []*KeyValue{kv("a", 4, 6, 2), kv("b", 2, 2, 1)}, []Event{put("a", 4, 6, 2), del("c", 6), put("a", 4, 7, 3), del("a", 8), put("c", 8, 8, 1)}, ""},
		{"revision 0", Meta{0, -1}, nil, nil, "store at revision 0"},
		{"compacted above", Meta{3, 4}, nil, nil, "compacted at 4"},
		{"compacted far below", Meta{3, -2}, nil, nil, "compacted at -2"},
		{"keys out of order", Meta{8, 6}, []*KeyValue{kv("b", 2, 2, 1), kv("a", 4, 6, 2)}, nil, "not above"},
		{"key twice", Meta{8, 6}, []*KeyValue{kv("b", 2, 2, 1), kv("b", 2, 2, 1)}, nil, "not above"},
		{"no key", Meta{8, 6}, []*KeyValue{kv("", 2, 2, 1)}, nil, "without a key"},
		{"made after its put", Meta{8, 6}, []*KeyValue{kv("b", 3, 2, 1)}, nil, "made at revision 3"},
		{"made at 1", Meta{8, 6}, []*KeyValue{kv("b", 1, 2, 1)}, nil, "made at revision 1"},
		{"put after the compaction", Meta{8, 6}, []*KeyValue{kv("b", 2, 7, 1)}, nil, "compacted at 6"},
		{"pair in a store never compacted", Meta{8, -1}, []*KeyValue{kv("b", 2, 2, 1)}, nil, "compacted at -1"},
		{"version 0", Meta{8, 6}, []*KeyValue{kv("b", 2, 2, 0)}, nil, "version 0"},
		{"hole at the beginning", Meta{3, -1}, nil, []Event{put("a", 3, 3, 1)}, "revision 3 after -1"},
		{"hole", Meta{4, -1}, nil, []Event{put("a", 2, 2, 1), put("b", 4, 4, 1)}, "revision 4 after 2"},
		{"end missing", Meta{4, -1}, nil, []Event{put("a", 2, 2, 1)}, "ends at revision 2 of 4"},
		{"backwards", Meta{3, -1}, nil, []Event{put("a", 3, 3, 1), put("b", 2, 2, 1)}, "event of revision 2 after 3"},
		{"future", Meta{2, -1}, nil, []Event{put("a", 3, 3, 1)}, "store at 2"},
		{"below the compaction", Meta{8, 6}, nil, []Event{put("a", 5, 5, 1)}, "compacted at 6"},
		{"event without key", Meta{2, -1}, nil, []Event{put("", 2, 2, 1)}, "without a key"},
		{"put that is not in the base", Meta{6, 6}, nil, []Event{put("a", 6, 6, 1)}, "not there"},
		{"put that is otherwise in the base", Meta{6, 6}, []*KeyValue{kv("a", 4, 6, 2)}, []Event{put("a", 4, 6, 3)}, "not there"},
		{"pair of the compaction without its event", Meta{6, 6}, []*KeyValue{kv("a", 4, 6, 2)}, nil, "history of 0 events"},
		{"event of the compaction twice", Meta{6, 6}, []*KeyValue{kv("a", 4, 6, 2)}, []Event{put("a", 4, 6, 2), put("a", 4, 6, 2)}, "history of 2 events"},
		{"deleted but there", Meta{6, 6}, []*KeyValue{kv("a", 4, 5, 2)}, []Event{del("a", 6)}, "which deletes it"},
		{"deleted twice", Meta{6, 6}, nil, []Event{del("a", 6), del("a", 6)}, "deleted twice"},
		{"deleted without being there", Meta{7, 6}, nil, []Event{del("a", 7)}, "without being there"},
		{"other birth", Meta{7, 6}, []*KeyValue{kv("a", 4, 5, 2)}, []Event{put("a", 3, 7, 3)}, "made at 3"},
		{"other version", Meta{7, 6}, []*KeyValue{kv("a", 4, 5, 2)}, []Event{put("a", 4, 7, 4)}, "version 4"},
		{"other token", Meta{7, 6}, []*KeyValue{kv("a", 4, 5, 2)}, []Event{token}, "token 1"},
		{"birth before", Meta{2, -1}, nil, []Event{put("a", 1, 2, 1)}, "made at 1"},
	} {
		l := NewLoader(c.meta)
		var err error
		for _, kv := range c.base {
			if err == nil {
				err = l.Base(kv)
			}
		}
		for _, e := range c.log {
			if err == nil {
				err = l.Log(e)
			}
		}
		if err == nil {
			_, err = l.Store()
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
	l := NewLoader(Meta{6, 5})
	if err := l.Log(put("a", 6, 6, 1)); err != nil {
		t.Fatal(err)
	}
	if err := l.Base(kv("b", 2, 2, 1)); err == nil {
		t.Error("a pair after an event was taken")
	}
}

// TestCheckFindsDamage: an invariant that is broken by hand is reported.
func TestCheckFindsDamage(t *testing.T) {
	item := func(s *Store, key string) *item {
		n, _ := s.tree.Get(node{key: k(key)})
		return n.it
	}
	for _, c := range []struct {
		what   string
		damage func(*Store)
	}{
		{"count of keys", func(s *Store) { s.keys++ }},
		{"size", func(s *Store) { s.size-- }},
		{"revision", func(s *Store) { s.revision++ }},
		{"generation", func(s *Store) { item(s, "a").generation = 9 }},
		{"version lost", func(s *Store) { it := item(s, "a"); it.older = it.older[1:] }},
		{"versions in the wrong order", func(s *Store) { it := item(s, "a"); it.older[1], it.older[2] = it.older[2], it.older[1] }},
		{"key lost", func(s *Store) { s.tree.Delete(node{key: k("a")}) }},
		{"version of another key", func(s *Store) { item(s, "a").last = &version{kv: *s.Get(k("c"))} }},
		{"event lost", func(s *Store) { s.history.n-- }},
		{"event in place of another", func(s *Store) { s.history.chunks[0][2] = s.history.chunks[0][3] }},
		{"wrong past", func(s *Store) { s.history.chunks[0][2].prev = nil }},
		{"wrong creation", func(s *Store) { item(s, "a").last.kv.CreateRevision++ }},
		{"wrong version number", func(s *Store) { item(s, "c").last.kv.Version++ }},
		{"deletion with a value", func(s *Store) { item(s, "b").last.kv.Value = k("x") }},
		{"superseded below the compaction", func(s *Store) { s.compacted = 7 }},
	} {
		s := tenPuts(t)
		do(t, s, oput("c", "x"))
		c.damage(s)
		if err := s.Check(); err == nil {
			t.Errorf("%s: not noticed", c.what)
		}
	}
}
