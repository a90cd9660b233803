package mvcc

import (
	"fmt"
	"strings"
	"testing"
)

// Short forms in which the tests below are written.
func k(s string) []byte { return []byte(s) }

func oput(key, value string) Op { return Op{Put: &PutOp{Key: k(key), Value: k(value)}} }

func odel(key, end string) Op { return Op{Delete: &DeleteOp{Key: k(key), End: k(end)}} }

func oget(key, end string) Op { return Op{Range: &RangeOp{Key: k(key), End: k(end)}} }

func onest(then, other []Op) Op { return Op{Txn: &Txn{Success: then, Failure: other}} }

func txnOf(ops ...Op) *Txn { return &Txn{Success: ops} }

func do(t testing.TB, s *Store, ops ...Op) Update {
	t.Helper()
	u, err := s.Txn(txnOf(ops...), leasesOneAndTwo, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return u
}

func history1(t testing.TB, s *Store) string {
	t.Helper()
	events, _, err := s.Events(max(1, s.Compacted()), s.Revision(), []byte{0}, []byte{0}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tell(events)
}

// tell prints events as "5 put a=x (was w)".
func tell(events []Event) string {
	var all []string
	for _, e := range events {
		line := fmt.Sprintf("%d put %s=%s", e.Revision(), e.KV.Key, e.KV.Value)
		if e.Delete {
			line = fmt.Sprintf("%d delete %s", e.Revision(), e.KV.Key)
		}
		if e.Prev != nil {
			line += fmt.Sprintf(" (was %s)", e.Prev.Value)
		}
		all = append(all, line)
	}
	return strings.Join(all, ", ")
}

// TestRevisions counts: 1 at first, then one more for each transaction that
// changes something, however much.
func TestRevisions(t *testing.T) {
	s := New()
	steps := []struct {
		what string
		ops  []Op
		want int64
	}{
		{"nothing", nil, 1},
		{"deleting what is not there", []Op{odel("a", ""), odel("a", "\x00")}, 1},
		{"reading", []Op{oget("a", "z")}, 1},
		{"the first put", []Op{oput("a", "x")}, 2},
		{"the same put again", []Op{oput("a", "x")}, 3},
		{"many changes", []Op{oput("b", "1"), oput("c", "2"), odel("a", "")}, 4},
		{"a nested put", []Op{onest([]Op{oput("d", "3")}, nil)}, 5},
		{"a branch that is not taken", []Op{{Txn: &Txn{Failure: []Op{oput("d", "3")}}}}, 5},
		{"deleting all", []Op{odel("\x00", "\x00")}, 6},
	}
	for _, step := range steps {
		do(t, s, step.ops...)
		if s.Revision() != step.want {
			t.Errorf("after %s: revision %d, want %d", step.what, s.Revision(), step.want)
		}
	}
	want := "2 put a=x, 3 put a=x (was x), 4 put b=1, 4 put c=2, 4 delete a (was x), 5 put d=3, 6 delete b (was 1), 6 delete c (was 2), 6 delete d (was 3)"
	if got := history1(t, s); got != want {
		t.Errorf("history\n got %s\nwant %s", got, want)
	}
}

// TestLifeOfAKey follows the fields of a pair.
func TestLifeOfAKey(t *testing.T) {
	s := New()
	put := func(op PutOp, token uint64) *KeyValue {
		op.Key = k("a")
		if _, err := s.Txn(txnOf(Op{Put: &op}), leasesOneAndTwo, token); err != nil {
			t.Fatal(err)
		}
		return s.Get(k("a"))
	}
	expect := func(kv *KeyValue, want KeyValue) {
		t.Helper()
		if want.Key = k("a"); print(*kv) != print(want) {
			t.Errorf("got %s, want %s", print(*kv), print(want))
		}
	}
	expect(put(PutOp{Value: k("x"), Lease: 1}, 7), KeyValue{Value: k("x"), CreateRevision: 2, ModRevision: 2, Version: 1, Lease: 1, Token: 7})
	expect(put(PutOp{Value: k("y"), IgnoreLease: true}, 8), KeyValue{Value: k("y"), CreateRevision: 2, ModRevision: 3, Version: 2, Lease: 1, Token: 7})
	expect(put(PutOp{IgnoreValue: true, Lease: 2}, 0), KeyValue{Value: k("y"), CreateRevision: 2, ModRevision: 4, Version: 3, Lease: 2, Token: 7})
	expect(put(PutOp{Value: k("z")}, 9), KeyValue{Value: k("z"), CreateRevision: 2, ModRevision: 5, Version: 4, Token: 7})
	do(t, s, odel("a", ""))
	if kv := s.Get(k("a")); kv != nil || s.Len() != 0 {
		t.Errorf("after its deletion: %s", print(kv))
	}
	expect(put(PutOp{}, 9), KeyValue{CreateRevision: 7, ModRevision: 7, Version: 1, Token: 9})
}

// TestInnerRevisions are the store's at each operation: the new one from the
// first change on, and for a put in any case. A nested transaction has none.
func TestInnerRevisions(t *testing.T) {
	s := New()
	u := do(t, s, oget("a", ""), odel("b", ""), onest([]Op{oget("a", ""), oput("a", "x"), oget("a", "")}, nil), odel("b", ""), oget("a", ""))
	r := u.Result.Ops
	got := fmt.Sprint(r[0].Revision, r[1].Revision, r[2].Revision, r[2].Txn.Ops[0].Revision, r[2].Txn.Ops[1].Revision, r[2].Txn.Ops[2].Revision, r[3].Revision, r[4].Revision)
	if want := "1 1 0 1 2 2 2 2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := r[4].Range.Count; n != 1 {
		t.Errorf("a read after the put sees %d keys", n)
	}
}

// TestComparesLookAtTheBeginning, nested ones too, while reads see what was
// written before them.
func TestComparesLookAtTheBeginning(t *testing.T) {
	s := New()
	absent := []Compare{{Key: k("a"), Target: CompareCreate, Number: 0}}
	u := do(t, s, oput("a", "x"), oget("a", ""), Op{Txn: &Txn{Compare: absent, Success: []Op{oget("a", "")}}})
	if r := u.Result.Ops; r[1].Range.Count != 1 || !r[2].Txn.Succeeded || r[2].Txn.Ops[0].Range.Count != 1 {
		t.Errorf("got %s", print(u.Result))
	}
}

func TestCompare(t *testing.T) {
	s := New()
	do(t, s, Op{Put: &PutOp{Key: k("a"), Value: k("x"), Lease: 1}})
	do(t, s, oput("b", "x"))
	do(t, s, oput("b", "y"))
	for _, c := range []struct {
		c    Compare
		want bool
	}{
		{Compare{Key: k("z"), Target: CompareCreate, Number: 0}, true},
		{Compare{Key: k("z"), Target: CompareVersion, Result: CompareLess, Number: 1}, true},
		{Compare{Key: k("z"), Target: CompareLease, Result: CompareNotEqual, Number: 0}, false},
		{Compare{Key: k("z"), Target: CompareValue}, false},
		{Compare{Key: k("z"), Target: CompareValue, Result: CompareNotEqual, Value: k("x")}, false},
		{Compare{Key: k("z"), Target: 9}, true},
		{Compare{Key: k("a"), Target: CompareValue, Result: 9}, true},
		{Compare{Key: k("a"), Target: CompareValue, Value: k("x")}, true},
		{Compare{Key: k("a"), Target: CompareValue, Result: CompareGreater, Value: k("w")}, true},
		{Compare{Key: k("a"), Target: CompareLease, Number: 1}, true},
		{Compare{Key: k("b"), Target: CompareVersion, Number: 2}, true},
		{Compare{Key: k("b"), Target: CompareMod, Number: 4}, true},
		{Compare{Key: k("b"), Target: CompareCreate, Number: 3}, true},
		{Compare{Key: k("a"), End: k("c"), Target: CompareCreate, Result: CompareGreater, Number: 1}, true},
		{Compare{Key: k("a"), End: k("c"), Target: CompareVersion, Number: 1}, false},
		{Compare{Key: k("a"), End: []byte{0}, Target: CompareMod, Result: CompareLess, Number: 5}, true},
		{Compare{Key: k("b"), End: k("a"), Target: CompareMod, Number: 0}, true},
	} {
		r, err := s.Read(&Txn{Compare: []Compare{c.c}})
		if err != nil || r.Succeeded != c.want {
			t.Errorf("%s: %v %v", print(c.c), r, err)
		}
	}
}

// TestTxnCheck lists what is refused before any key is looked at, and what is not.
func TestTxnCheck(t *testing.T) {
	reads := func(n int) (ops []Op) {
		for range n {
			ops = append(ops, oget("a", ""))
		}
		return ops
	}
	compares := func(n int) (all []Compare) {
		for range n {
			all = append(all, Compare{Key: k("a")})
		}
		return all
	}
	then := func(ops ...Op) []Op { return ops }
	for _, c := range []struct {
		what string
		t    *Txn
		want error
	}{
		{"nothing", &Txn{}, nil},
		{"128 of each", &Txn{Compare: compares(128), Success: reads(128), Failure: reads(128)}, nil},
		{"129 compares", &Txn{Compare: compares(129)}, ErrTooManyOps},
		{"129 operations", &Txn{Success: reads(129)}, ErrTooManyOps},
		{"129 other operations", &Txn{Failure: reads(129)}, ErrTooManyOps},
		{"nested in what is left", &Txn{Success: then(onest(reads(127), reads(127)))}, nil},
		{"nested in more than is left", &Txn{Success: then(onest(reads(128), nil))}, ErrTooManyOps},
		{"nested where the other list is long", &Txn{Success: then(onest(reads(1), nil)), Failure: reads(128)}, ErrTooManyOps},
		{"an empty one in nothing that is left", &Txn{Success: append(reads(127), onest(nil, nil))}, nil},
		{"size before key", &Txn{Compare: []Compare{{}}, Success: reads(129)}, ErrTooManyOps},
		{"compare without key", &Txn{Compare: []Compare{{}}}, ErrEmptyKey},
		{"range without key", txnOf(oget("", "z")), ErrEmptyKey},
		{"put without key", txnOf(oput("", "x")), ErrEmptyKey},
		{"delete without key", txnOf(odel("", "\x00")), ErrEmptyKey},
		{"nested, without key", &Txn{Failure: then(onest(nil, then(oput("", ""))))}, ErrEmptyKey},
		{"nothing in an operation", txnOf(Op{}), ErrKeyNotFound},
		{"key before duplicate", &Txn{Success: then(oput("a", ""), oput("a", "")), Failure: then(oput("", ""))}, ErrEmptyKey},
		{"value and ignored", txnOf(Op{Put: &PutOp{Key: k("a"), Value: k("x"), IgnoreValue: true}}), ErrValueProvided},
		{"lease and ignored", txnOf(Op{Put: &PutOp{Key: k("a"), Lease: 1, IgnoreLease: true}}), ErrLeaseProvided},
		{"sort target", txnOf(Op{Range: &RangeOp{Key: k("a"), Target: 5}}), ErrInvalidSort},
		{"sort order", txnOf(Op{Range: &RangeOp{Key: k("a"), Order: 3}}), ErrInvalidSort},

		{"two puts", txnOf(oput("a", ""), oput("a", "")), ErrDuplicateKey},
		{"two puts in the other branch", &Txn{Failure: then(oput("a", ""), oput("a", ""))}, ErrDuplicateKey},
		{"a put in each branch", &Txn{Success: then(oput("a", "")), Failure: then(oput("a", ""))}, nil},
		{"put and delete", txnOf(oput("a", ""), odel("a", "")), ErrDuplicateKey},
		{"delete and put", txnOf(odel("a", ""), oput("a", "")), ErrDuplicateKey},
		{"put in a deleted range", txnOf(oput("b", ""), odel("a", "c")), ErrDuplicateKey},
		{"put at the end of a deleted range", txnOf(oput("c", ""), odel("a", "c")), nil},
		{"put beside a deleted key", txnOf(oput("a\x00", ""), odel("a", "")), nil},
		{"deletes that overlap", txnOf(odel("a", "c"), odel("b", "d"), odel("a", "")), nil},
		{"put in two joined ranges", txnOf(odel("a", "c"), odel("c", "e"), odel("b", "d"), oput("d", "")), ErrDuplicateKey},
		{"put in a range that is none", txnOf(odel("c", "a"), oput("b", "")), nil},
		{"put and delete of all", txnOf(oput("b", ""), odel("\x00", "\x00")), nil},

		{"both branches of a nested one", txnOf(onest(then(oput("a", "")), then(oput("a", "")))), nil},
		{"nested and own", txnOf(onest(then(oput("a", "")), nil), oput("a", "")), ErrDuplicateKey},
		{"own and nested", txnOf(oput("a", ""), onest(nil, then(oput("a", "")))), ErrDuplicateKey},
		{"siblings", txnOf(onest(then(oput("a", "")), nil), onest(nil, then(oput("a", "")))), ErrDuplicateKey},
		{"inside a nested one", txnOf(onest(then(oput("a", ""), oput("a", "")), nil)), ErrDuplicateKey},
		{"grandchildren", txnOf(onest(then(onest(then(oput("a", "")), nil)), nil), onest(then(onest(nil, then(oput("a", "")))), nil)), ErrDuplicateKey},
		{"own delete after a nested put", txnOf(onest(then(oput("a", "")), nil), odel("a", "")), ErrDuplicateKey},
		{"delete by a sibling before", txnOf(onest(then(odel("a", "")), nil), onest(then(oput("a", "")), nil)), ErrDuplicateKey},
		{"delete by a sibling after", txnOf(onest(then(oput("a", "")), nil), onest(then(odel("a", "")), nil)), nil},
		{"put in one branch, deleted in the other", txnOf(onest(then(oput("a", "")), then(odel("a", "")))), nil},
		{"own put, nested delete", txnOf(oput("a", ""), onest(then(odel("a", "b")), nil)), ErrDuplicateKey},
	} {
		if got := c.t.Check(); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if got := modelCheck(c.t); got != c.want {
			t.Errorf("%s: the model says %v, want %v", c.what, got, c.want)
		}
		if _, err := New().Txn(c.t, nil, 0); err != c.want {
			t.Errorf("%s: Txn: %v, want %v", c.what, err, c.want)
		}
		if _, err := New().Read(c.t); c.want != nil && err != c.want {
			t.Errorf("%s: Read: %v, want %v", c.what, err, c.want)
		}
	}
}

// TestRefusalHasNoEffect: the first operation could be done each time, the last
// one cannot.
func TestRefusalHasNoEffect(t *testing.T) {
	s := New()
	do(t, s, oput("a", "1"))
	do(t, s, oput("a", "2"))
	do(t, s, oput("a", "3"))
	if err := s.Compact(3); err != nil {
		t.Fatal(err)
	}
	before := streams(s.Freeze())
	read := func(revision int64) Op { return Op{Range: &RangeOp{Key: k("a"), Revision: revision}} }
	for _, c := range []struct {
		what string
		op   Op
		want error
	}{
		{"unknown lease", Op{Put: &PutOp{Key: k("b"), Lease: 9}}, ErrLeaseNotFound},
		{"negative lease", Op{Put: &PutOp{Key: k("b"), Lease: -1}}, ErrLeaseNotFound},
		{"lease before key", Op{Put: &PutOp{Key: k("b"), Lease: 9, IgnoreValue: true}}, ErrLeaseNotFound},
		{"value of no key", Op{Put: &PutOp{Key: k("b"), IgnoreValue: true}}, ErrKeyNotFound},
		{"lease of no key", Op{Put: &PutOp{Key: k("b"), IgnoreLease: true}}, ErrKeyNotFound},
		{"value of a key that this transaction makes", onest([]Op{onest([]Op{oput("c", "x")}, nil), {Txn: &Txn{Success: []Op{{Put: &PutOp{Key: k("b"), IgnoreValue: true}}}}}}, nil), ErrKeyNotFound},
		{"compacted", read(2), ErrCompacted},
		{"negative", read(-1), ErrCompacted},
		{"future", read(5), ErrFuture},
		{"the revision of this transaction", onest([]Op{read(5)}, nil), ErrFuture},
		{"a value deleted before", onest([]Op{odel("\x00", "\x00"), {Put: &PutOp{Key: k("a"), IgnoreValue: true}}}, nil), ErrKeyNotFound},
	} {
		_, err := s.Txn(txnOf(oput("first", "x"), c.op), leasesOneAndTwo, 0)
		if err != c.want {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
		if after := streams(s.Freeze()); after != before {
			t.Fatalf("%s: refused, but now there is\n%s\nwas\n%s", c.what, after, before)
		}
		if _, err := s.Txn(&Txn{Success: []Op{oget("a", "")}, Failure: []Op{c.op}}, nil, 0); err != nil {
			t.Errorf("%s in a branch that is not taken: %v", c.what, err)
		}
	}
	for _, revision := range []int64{0, 3, 4} {
		do(t, s, oput("first", "x"), read(revision))
	}
}

// TestRangeForms: what the ends of a range mean.
func TestRangeForms(t *testing.T) {
	s := New()
	for _, key := range []string{"\x00", "a", "a\x00", "ab", "b", "\xff", "\xff\xff"} {
		do(t, s, oput(key, key))
	}
	for _, c := range []struct{ key, end, want string }{
		{"a", "", "a"},
		{"x", "", ""},
		{"a", "b", "a|a\x00|ab"},
		{"a", "a\x00", "a"},
		{"a", "a", ""},
		{"b", "a", ""},
		{"b", "\x00", "b|\xff|\xff\xff"},
		{"\x00", "\x00", "\x00|a|a\x00|ab|b|\xff|\xff\xff"},
		{"\x00", "b", "\x00|a|a\x00|ab"},
		{"\xff", "\x00", "\xff|\xff\xff"},
	} {
		r, err := s.Range(&RangeOp{Key: k(c.key), End: k(c.end)})
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, kv := range r.KVs {
			keys = append(keys, string(kv.Key))
		}
		if got := strings.Join(keys, "|"); got != c.want || int(r.Count) != len(keys) {
			t.Errorf("[%q,%q): %q of %d, want %q", c.key, c.end, got, r.Count, c.want)
		}
	}
	if _, err := s.Range(&RangeOp{}); err != ErrEmptyKey {
		t.Errorf("range without a key: %v", err)
	}
}

// TestRangeCuts: limit, more, count, order and filters together.
func TestRangeCuts(t *testing.T) {
	s := New()
	for _, key := range []string{"d", "c", "b", "a"} { // creates 2, 3, 4, 5
		do(t, s, oput(key, key))
	}
	do(t, s, oput("b", "b")) // version 2, mod 6
	for _, c := range []struct {
		op   RangeOp
		want string
	}{
		{RangeOp{}, "abcd 4"},
		{RangeOp{Limit: 2}, "ab more 4"},
		{RangeOp{Limit: 4}, "abcd 4"},
		{RangeOp{Limit: -1}, "abcd 4"},
		{RangeOp{CountOnly: true, Limit: 1}, " 4"},
		{RangeOp{Order: SortDescend, Limit: 1}, "d more 4"},
		{RangeOp{Order: SortAscend, Limit: 1}, "a more 4"},
		{RangeOp{Target: SortByCreate, Order: SortAscend, Limit: 1}, "d more 4"},
		{RangeOp{Target: SortByCreate, Order: SortDescend}, "abcd 4"},
		{RangeOp{Target: SortByCreate}, "dcba 4"},
		{RangeOp{Target: SortByCreate, Limit: 2}, "cb more 4"}, // of the first three keys
		{RangeOp{Target: SortByCreate, Limit: 2, MinModRevision: 1}, "dc more 4"},
		{RangeOp{Target: SortByMod, Order: SortDescend, Limit: 1}, "b more 4"},
		{RangeOp{Target: SortByVersion, Order: SortDescend, Limit: 1}, "b more 4"},
		{RangeOp{Target: SortByVersion, Order: SortAscend, Limit: 1}, "a more 4"},
		{RangeOp{Target: SortByValue, Order: SortDescend}, "dcba 4"},
		{RangeOp{MinCreateRevision: 3, MaxCreateRevision: 4}, "bc 4"},
		{RangeOp{MinModRevision: 6}, "b 4"},
		{RangeOp{MaxModRevision: 3}, "cd 4"},
		{RangeOp{MaxModRevision: 3, Limit: 1}, "c more 4"},
		{RangeOp{MaxModRevision: 3, Limit: 2}, "cd 4"},
		{RangeOp{MaxCreateRevision: 4, Target: SortByCreate, Order: SortDescend, Limit: 1}, "b more 4"},
		{RangeOp{Revision: 3}, "cd 2"},
		{RangeOp{Revision: -1}, "abcd 4"},
	} {
		c.op.Key, c.op.End = k("a"), k("z")
		r, err := s.Range(&c.op)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, kv := range r.KVs {
			got += string(kv.Key)
		}
		if r.More {
			got += " more"
		}
		if got = fmt.Sprintf("%s %d", got, r.Count); got != c.want {
			t.Errorf("%s: %q, want %q", print(c.op), got, c.want)
		}
	}
}

// TestDeleteKeys: in key order, whatever was given, at one revision.
func TestDeleteKeys(t *testing.T) {
	s := New()
	do(t, s, oput("a", "1"), oput("b", "2"), oput("c", "3"))
	if events := s.DeleteKeys([]string{"x"}); events != nil || s.Revision() != 2 {
		t.Errorf("deleting what is not there: %s, revision %d", tell(events), s.Revision())
	}
	if got, want := tell(s.DeleteKeys([]string{"c", "a", "x", "c"})), "3 delete a (was 1), 3 delete c (was 3)"; got != want || s.Revision() != 3 {
		t.Errorf("got %s, want %s", got, want)
	}
}
