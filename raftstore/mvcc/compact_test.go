package mvcc

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

// tenPuts has revisions 2 to 11, all of one key, and other keys at 12 and 13.
func tenPuts(t testing.TB) *Store {
	s := New()
	for i := range 10 {
		do(t, s, oput("a", fmt.Sprint(i+2)))
	}
	do(t, s, oput("b", "12"))
	do(t, s, odel("b", ""))
	return s
}

// TestAtTheEdgeOfCompaction: reads and events below the compacted revision are
// refused, at it and above there is no gap.
func TestAtTheEdgeOfCompaction(t *testing.T) {
	s := tenPuts(t)
	if err := s.Compact(5); err != nil {
		t.Fatal(err)
	}
	for revision, want := range map[int64]error{-1: nil, 0: nil, 1: ErrCompacted, 4: ErrCompacted, 5: nil, 6: nil, 13: nil, 14: ErrFuture, 1013: ErrFuture} {
		r, err := s.Range(&RangeOp{Key: k("a"), Revision: revision})
		if err != want {
			t.Errorf("read at %d: %v, want %v", revision, err, want)
		}
		if value := fmt.Sprint(min(revision, 11)); err == nil && revision > 0 && string(r.KVs[0].Value) != value {
			t.Errorf("read at %d: %s", revision, r.KVs[0].Value)
		}
	}
	for from, want := range map[int64]string{
		5:  "5 put a=5, 6 put a=6 (was 5), 7 put a=7 (was 6)",
		6:  "6 put a=6 (was 5), 7 put a=7 (was 6)",
		13: "",
		14: "",
		99: "",
	} {
		events, next, err := s.Events(from, 7, k("a"), nil, 0, nil)
		if err != nil || tell(events) != want || next != max(from, 8) {
			t.Errorf("events from %d: %v, %s, next %d", from, err, tell(events), next)
		}
	}
	for _, from := range []int64{1, 4} {
		if events, next, err := s.Events(from, 13, k("a"), nil, 0, nil); err != ErrCompacted || events != nil || next != from {
			t.Errorf("events from %d: %v, %s", from, err, tell(events))
		}
	}
}

// TestCompactRefusals: what is at or below the last one, and what is to come.
func TestCompactRefusals(t *testing.T) {
	s := tenPuts(t)
	for i, c := range []struct {
		revision int64
		want     error
	}{
		{-1, ErrCompacted}, {14, ErrFuture}, {0, nil}, {0, ErrCompacted}, {5, nil}, {5, ErrCompacted}, {4, ErrCompacted},
		{1 << 62, ErrFuture}, {13, nil}, {13, ErrCompacted}, {14, ErrFuture},
	} {
		if err := s.Compact(c.revision); err != c.want {
			t.Errorf("%d: compact %d: %v, want %v", i, c.revision, err, c.want)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Revision() != 13 {
		t.Errorf("compaction moved the revision to %d", s.Revision())
	}
}

// TestCompactionKeeps the newest version at or below the revision, a deletion
// only at it, and gives the rest back.
func TestCompactionKeeps(t *testing.T) {
	s := tenPuts(t)
	if err := s.Compact(13); err != nil {
		t.Fatal(err)
	}
	if kv := s.Get(k("a")); kv == nil || string(kv.Value) != "11" || kv.Version != 10 {
		t.Errorf("a is %s", print(kv))
	}
	if got, want := history1(t, s), "13 delete b"; got != want {
		t.Errorf("history %q, want %q", got, want)
	}
	do(t, s, oput("c", ""))
	if err := s.Compact(14); err != nil {
		t.Fatal(err)
	}
	if s.tree.Len() != 2 || s.Len() != 2 {
		t.Errorf("%d keys in the tree, %d there", s.tree.Len(), s.Len())
	}
	fresh := New()
	do(t, fresh, oput("a", "11"))
	do(t, fresh, oput("c", ""))
	if s.Size() != fresh.Size() {
		t.Errorf("size %d, of a store that never had more %d", s.Size(), fresh.Size())
	}
}

// TestBothInOneRevision: a key can be put and then deleted, or deleted with all
// from some key on and then put again, in one transaction.
func TestBothInOneRevision(t *testing.T) {
	s := New()
	do(t, s, oput("a", "old"))
	u := do(t, s, onest([]Op{oput("a", "new")}, nil), onest([]Op{odel("a", "")}, nil), oput("b", "x"))
	if got, want := tell(u.Events), "3 put a=new (was old), 3 delete a (was new), 3 put b=x"; got != want {
		t.Errorf("update %s, want %s", got, want)
	}
	u = do(t, s, odel("b", "\x00"), oput("b", "y"), oget("b", ""))
	if got, want := tell(u.Events), "4 delete b (was x), 4 put b=y"; got != want || u.Result.Ops[2].Range.Count != 1 {
		t.Errorf("update %s, want %s", got, want)
	}
	if kv := s.Get(k("b")); kv.CreateRevision != 4 || kv.Version != 1 {
		t.Errorf("b is %s", print(kv))
	}
	want := "2 put a=old, 3 put a=new (was old), 3 delete a (was old), 3 put b=x, 4 delete b (was x), 4 put b=y"
	if got := history1(t, s); got != want {
		t.Errorf("history\n got %s\nwant %s", got, want)
	}
	for _, c := range []struct {
		revision int64
		want     string
	}{
		{3, "3 delete a, 3 put b=x, 4 delete b (was x), 4 put b=y"},
		{4, "4 put b=y"},
	} {
		if err := s.Compact(c.revision); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if got := history1(t, s); got != c.want {
			t.Errorf("compacted at %d: history\n got %s\nwant %s", c.revision, got, c.want)
		}
	}
}

// TestEventsNeverSplitARevision, whatever the limit, and lose nothing.
func TestEventsNeverSplitARevision(t *testing.T) {
	s := New()
	do(t, s, oput("a", "1"), oput("b", "1"), oput("c", "1"))
	do(t, s, oput("b", "2"))
	do(t, s, odel("a", "\x00"))
	for limit := 1; limit < 8; limit++ {
		for _, r := range []span{{[]byte{0}, []byte{0}}, {k("a"), k("c")}, {k("b"), nil}} {
			var got []Event
			for from := int64(1); from <= s.Revision(); {
				events, next, err := s.Events(from, 9, r.key, r.end, limit, nil)
				if err != nil || next <= from {
					t.Fatalf("from %d: %v, next %d", from, err, next)
				}
				for _, e := range events {
					if e.Revision() >= next {
						t.Errorf("limit %d: event of %d, go on at %d", limit, e.Revision(), next)
					}
				}
				if whole, _, _ := s.Events(from, next-1, r.key, r.end, 0, nil); len(whole) != len(events) {
					t.Errorf("limit %d: %d events up to %d of %d", limit, len(events), next, len(whole))
				}
				got, from = append(got, events...), next
			}
			if want, _, _ := s.Events(1, s.Revision(), r.key, r.end, 0, nil); tell(got) != tell(want) {
				t.Errorf("limit %d: %s, want %s", limit, tell(got), tell(want))
			}
		}
	}
}

// TestLargeStoreAgainstModel goes where small stores do not: several levels of
// the tree, several pieces of history, a compaction key by key and one over the
// whole tree, events found key by key.
func TestLargeStoreAgainstModel(t *testing.T) {
	for seed := range int64(2) {
		r := rand.New(rand.NewSource(seed))
		p := &tandem{s: New(), m: newModel()}
		key := func() string { return fmt.Sprintf("k%03d", r.Intn(300)) }
		for i := range 2500 {
			var t1 Txn
			for n := r.Intn(3); n >= 0; n-- {
				if r.Intn(4) == 0 {
					t1.Success = append(t1.Success, odel(key(), []string{"", "l"}[r.Intn(40)/39]))
				} else {
					t1.Success = append(t1.Success, oput(key(), fmt.Sprint(i)))
				}
			}
			if t1.Check() != nil {
				continue
			}
			got, err := p.s.Txn(&t1, nil, uint64(i))
			want, _ := p.m.txn(&t1, nil, uint64(i))
			if err != nil || print(got.Events) != print(want.Events) {
				t.Fatalf("seed %d: %v %s\nwant %s", seed, err, print(got), print(want))
			}
			switch r.Intn(120) {
			case 0:
				p.freeze(nil)
			case 1:
				revision := max(p.m.compacted, 0) + 1 + r.Int63n(p.m.revision-max(p.m.compacted, 0))/2
				if err := p.s.Compact(revision); err != p.m.compact(revision) {
					t.Fatal(err)
				}
				p.checkAll(t)
			case 2:
				s, err := load(p.s.Freeze())
				if err != nil {
					t.Fatal(err)
				}
				p.s = s
			case 3, 4, 5:
				a, b := key(), key()
				from := max(1, p.m.compacted) + r.Int63n(p.m.revision)/8
				p.checkEvents(t, from, p.m.revision, k(a), k(a)[:r.Intn(2)*4], r.Intn(20))
				p.checkEvents(t, from, p.m.revision-r.Int63n(9), k(min(a, b)), k(max(a, b)), r.Intn(20))
				p.checkEvents(t, from, p.m.revision, k(a), k(a+"x"), 0)
			}
		}
		p.checkAll(t)
	}
}

func (p *tandem) checkAll(t testing.TB) {
	t.Helper()
	if err := p.s.Check(); err != nil {
		t.Fatal(err)
	}
	for _, revision := range []int64{p.m.compacted, (p.m.compacted + p.m.revision) / 2, p.m.revision} {
		if revision < 1 {
			continue
		}
		op := &RangeOp{Key: []byte{0}, End: []byte{0}, Revision: revision}
		got, err := p.s.Range(op)
		if err != nil || print(got) != print(p.m.rangeOf(op)) {
			t.Fatalf("at %d: %v %s", revision, err, print(got))
		}
	}
	p.checkEvents(t, max(1, p.m.compacted), p.m.revision, []byte{0}, []byte{0}, 0)
	for _, f := range p.frozen {
		if streams(f.f) != f.text {
			t.Fatal("a frozen copy moved")
		}
	}
	p.frozen = p.frozen[:0]
}

// TestEventsOfFewKeys are found without a walk, and are the same.
func TestEventsOfFewKeys(t *testing.T) {
	s := New()
	for i := range 4000 {
		key := fmt.Sprintf("k%03d", i*7%997) // the later key first: neither order is the other
		do1(t, s, oput(key+"b", "x"), oput(key, "x"), oput(fmt.Sprintf("m%03d", i*11%997), "x"))
	}
	for _, r := range []span{{k("k1"), k("k11")}, {k("k12"), k("k1200")}, {k("k99"), k("m01")}} {
		tl := &teller{s: s, span: r, from: 100, to: 3900}
		found, ok := tl.gather()
		if !ok || len(found) == 0 {
			t.Fatalf("[%s,%s): %d found, %v", r.key, r.end, len(found), ok)
		}
		next := tl.tellFound(found)
		walked := &teller{s: s, span: r, from: 100, to: 3900}
		if n := walked.walk(); n != next || !slices.EqualFunc(tl.events, walked.events, func(a, b Event) bool { return a == b }) {
			t.Errorf("[%s,%s): %d events by key, %d by walk", r.key, r.end, len(tl.events), len(walked.events))
		}
	}
	if _, ok := (&teller{s: s, span: span{k("k"), k("l")}, from: 1, to: 4001}).gather(); ok {
		t.Error("half of all changes were gathered key by key")
	}
}

// do1 is do without a check of the whole store.
func do1(t testing.TB, s *Store, ops ...Op) {
	t.Helper()
	if _, err := s.Txn(txnOf(ops...), nil, 0); err != nil {
		t.Fatal(err)
	}
}

// TestBigAnswersAllocateLittle: a count, and a limited range, of 100,000 keys
// allocate nothing for each.
func TestBigAnswersAllocateLittle(t *testing.T) {
	s := filled(t, 100_000)
	for _, op := range []*RangeOp{
		{Key: []byte{0}, End: []byte{0}, CountOnly: true},
		{Key: []byte{0}, End: []byte{0}, Limit: 10},
		{Key: k("k"), End: k("l"), Limit: 10, Revision: s.Revision()},
	} {
		if n := testing.AllocsPerRun(3, func() {
			if r, err := s.Range(op); err != nil || r.Count != 100_000 {
				t.Error(r, err)
			}
		}); n > 20 {
			t.Errorf("%s: %v allocations", print(op), n)
		}
	}
}
