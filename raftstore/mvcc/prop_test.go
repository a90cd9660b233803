package mvcc

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// print writes a value with everything that its pointers lead to.
func print(v any) string {
	var b strings.Builder
	printValue(&b, reflect.ValueOf(v))
	return b.String()
}

func printValue(b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		printValue(b, v.Elem())
	case reflect.Struct:
		b.WriteString("{")
		for i := range v.NumField() {
			fmt.Fprintf(b, "%s:", v.Type().Field(i).Name)
			printValue(b, v.Field(i))
			b.WriteString(" ")
		}
		b.WriteString("}")
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			fmt.Fprintf(b, "%q", v.Bytes())
			return
		}
		b.WriteString("[")
		for i := range v.Len() {
			printValue(b, v.Index(i))
			b.WriteString(" ")
		}
		b.WriteString("]")
	default:
		fmt.Fprint(b, v)
	}
}

var (
	smallKey = rapid.Custom(func(t *rapid.T) []byte {
		return []byte(rapid.SampledFrom([]string{"a", "a\x00", "b", "ba", "c", "\x00", "\xff"}).Draw(t, "key"))
	})
	smallEnd = rapid.Custom(func(t *rapid.T) []byte {
		return []byte(rapid.SampledFrom([]string{"", "", "", "\x00", "a", "b", "c", "\xff\xff"}).Draw(t, "end"))
	})
	smallValue = rapid.Custom(func(t *rapid.T) []byte {
		return []byte(rapid.SampledFrom([]string{"", "x", "y", "zz"}).Draw(t, "value"))
	})
	smallLease = rapid.SampledFrom([]int64{0, 0, 0, 1, 2, 9})
)

// leasesOneAndTwo exist in these tests.
func leasesOneAndTwo(id int64) bool { return id == 1 || id == 2 }

func drawRange(t *rapid.T, revision int64) *RangeOp {
	op := &RangeOp{Key: smallKey.Draw(t, "key"), End: smallEnd.Draw(t, "end"), KeysOnly: rapid.Bool().Draw(t, "keys only")}
	if rapid.Bool().Draw(t, "plain") {
		return op
	}
	op.Revision = rapid.Int64Range(-2, revision+1).Draw(t, "revision")
	op.Limit = rapid.Int64Range(-1, 4).Draw(t, "limit")
	op.Target = SortTarget(rapid.IntRange(0, 4).Draw(t, "target"))
	op.Order = SortOrder(rapid.IntRange(0, 2).Draw(t, "order"))
	op.CountOnly = rapid.IntRange(0, 3).Draw(t, "count only") == 0
	bound := rapid.OneOf(rapid.Just(int64(0)), rapid.Just(int64(0)), rapid.Int64Range(1, revision+1))
	op.MinModRevision, op.MaxModRevision = bound.Draw(t, "min mod"), bound.Draw(t, "max mod")
	op.MinCreateRevision, op.MaxCreateRevision = bound.Draw(t, "min create"), bound.Draw(t, "max create")
	return op
}

func drawPut(t *rapid.T) *PutOp {
	op := &PutOp{Key: smallKey.Draw(t, "key"), PrevKV: rapid.Bool().Draw(t, "prev")}
	if op.IgnoreValue = rapid.IntRange(0, 7).Draw(t, "ignore value") == 0; !op.IgnoreValue {
		op.Value = smallValue.Draw(t, "value")
	}
	if op.IgnoreLease = rapid.IntRange(0, 7).Draw(t, "ignore lease") == 0; !op.IgnoreLease {
		op.Lease = smallLease.Draw(t, "lease")
	}
	return op
}

func drawOps(t *rapid.T, revision int64, depth int) []Op {
	ops := make([]Op, rapid.IntRange(0, 3).Draw(t, "ops"))
	for i := range ops {
		switch k := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case k < 3:
			ops[i].Range = drawRange(t, revision)
		case k < 6:
			ops[i].Put = drawPut(t)
		case k < 8 || depth == 0:
			ops[i].Delete = &DeleteOp{Key: smallKey.Draw(t, "key"), End: smallEnd.Draw(t, "end"), PrevKV: rapid.Bool().Draw(t, "prev")}
		default:
			ops[i].Txn = drawTxn(t, revision, depth-1)
		}
	}
	return ops
}

func drawTxn(t *rapid.T, revision int64, depth int) *Txn {
	txn := &Txn{Compare: make([]Compare, rapid.IntRange(0, 2).Draw(t, "compares"))}
	for i := range txn.Compare {
		txn.Compare[i] = Compare{
			Key: smallKey.Draw(t, "key"), End: smallEnd.Draw(t, "end"),
			Target: CompareTarget(rapid.IntRange(0, 4).Draw(t, "target")), Result: CompareResult(rapid.IntRange(0, 3).Draw(t, "result")),
			Number: rapid.Int64Range(0, revision).Draw(t, "number"), Value: smallValue.Draw(t, "value"),
		}
	}
	txn.Success, txn.Failure = drawOps(t, revision, depth), drawOps(t, revision, depth)
	return txn
}

// pair is a store and the model that it must agree with.
type tandem struct {
	s      *Store
	m      *model
	token  uint64
	frozen []frozen
}

type frozen struct {
	f    *Frozen
	text string
}

func (p *tandem) txn(t *rapid.T) {
	txn := drawTxn(t, p.m.revision, 2)
	p.token++
	p.apply(t, txn, p.token*uint64(rapid.IntRange(0, 1).Draw(t, "with token")))
}

func (p *tandem) apply(t rapid.TB, txn *Txn, token uint64) {
	before := p.text()
	got, err := p.s.Txn(txn, leasesOneAndTwo, token)
	want, wantErr := p.m.txn(txn, leasesOneAndTwo, token)
	if err != wantErr || print(got) != print(want) {
		t.Fatalf("%s\n got %v %s\nwant %v %s", print(txn), err, print(got), wantErr, print(want))
	}
	if err != nil && p.text() != before {
		t.Fatalf("%s: %v, but the store changed", print(txn), err)
	}
	if txn.ReadOnly() != (len(wantWrites(txn)) == 0) {
		t.Fatalf("%s: read only %v", print(txn), txn.ReadOnly())
	}
	if txn.ReadOnly() {
		read, readErr := p.s.Read(txn)
		if readErr != err || err == nil && print(read) != print(got.Result) {
			t.Fatalf("%s\nread %v %s\n txn %v %s", print(txn), readErr, print(read), err, print(got.Result))
		}
	} else if _, err := p.s.Read(txn); err == nil {
		t.Fatalf("%s: Read did it", print(txn))
	}
}

// wantWrites lists the writing operations of all branches.
func wantWrites(t *Txn) (ops []Op) {
	for _, op := range append(slices.Clone(t.Success), t.Failure...) {
		switch {
		case op.Txn != nil:
			ops = append(ops, wantWrites(op.Txn)...)
		case op.Range == nil:
			ops = append(ops, op)
		}
	}
	return ops
}

func (p *tandem) rangeAny(t *rapid.T) {
	op := drawRange(t, p.m.revision)
	got, err := p.s.Range(op)
	switch {
	case op.Revision > p.m.revision:
		if err != ErrFuture {
			t.Fatalf("%s: %v", print(op), err)
		}
	case op.Revision > 0 && op.Revision < p.m.compacted:
		if err != ErrCompacted {
			t.Fatalf("%s: %v", print(op), err)
		}
	default:
		if want := p.m.rangeOf(op); err != nil || print(got) != print(want) {
			t.Fatalf("%s\n got %v %s\nwant %s", print(op), err, print(got), print(want))
		}
	}
}

func (p *tandem) deleteKeys(t *rapid.T) {
	var keys []string
	txn := &Txn{}
	for _, key := range rapid.SliceOfN(smallKey, 0, 4).Draw(t, "keys") {
		keys = append(keys, string(key))
	}
	for _, key := range slices.Sorted(slices.Values(keys)) {
		txn.Success = append(txn.Success, Op{Delete: &DeleteOp{Key: []byte(key)}})
	}
	want, _ := p.m.txn(txn, nil, 0)
	if got := p.s.DeleteKeys(keys); print(got) != print(want.Events) {
		t.Fatalf("delete %q\n got %s\nwant %s", keys, print(got), print(want.Events))
	}
}

func (p *tandem) compact(t *rapid.T) {
	revision := rapid.Int64Range(p.m.compacted-1, p.m.revision+1).Draw(t, "revision")
	if got, want := p.s.Compact(revision), p.m.compact(revision); got != want {
		t.Fatalf("compact %d: %v, want %v", revision, got, want)
	}
}

func (p *tandem) eventsAny(t *rapid.T) {
	from := rapid.Int64Range(max(1, p.m.compacted-1), p.m.revision+2).Draw(t, "from")
	to := rapid.Int64Range(from-1, p.m.revision+3).Draw(t, "to")
	p.checkEvents(t, from, to, smallKey.Draw(t, "key"), smallEnd.Draw(t, "end"), rapid.IntRange(0, 3).Draw(t, "limit"))
}

// checkEvents asks until all is told.
func (p *tandem) checkEvents(t rapid.TB, from, to int64, key, end []byte, limit int) {
	want, wantErr := p.m.events(from, to, key, end)
	var got []Event
	for at := from; ; {
		n := len(got)
		events, next, err := p.s.Events(at, to, key, end, limit, got)
		if err != wantErr {
			t.Fatalf("events from %d: %v, want %v", at, err, wantErr)
		}
		got = events
		if err != nil {
			break
		}
		if limit > 0 && len(got)-n > limit && got[n].Revision() != got[len(got)-1].Revision() {
			if last := got[len(got)-1].Revision(); got[n+limit-1].Revision() != last {
				t.Fatalf("%d events for a limit of %d", len(got)-n, limit)
			}
		}
		if limit == 0 || next > min(to, p.m.revision) {
			if at <= min(to, p.m.revision) && next != min(to, p.m.revision)+1 {
				t.Fatalf("events from %d to %d of %d: go on at %d", at, to, p.m.revision, next)
			}
			break
		}
		if next <= at {
			t.Fatalf("events from %d go on at %d", at, next)
		}
		at = next
	}
	if print(got) != print(want) {
		t.Fatalf("events from %d to %d of [%q,%q), compacted %d\n got %s\nwant %s", from, to, key, end, p.m.compacted, print(got), print(want))
	}
}

func streams(f *Frozen) string {
	var b strings.Builder
	fmt.Fprintln(&b, print(f.Meta()))
	for kv := range f.Base() {
		fmt.Fprintln(&b, print(kv))
	}
	for e := range f.Log() {
		fmt.Fprintln(&b, print(e))
	}
	return b.String()
}

// text is everything that can be seen of the store.
func (p *tandem) text() string { return streams(p.s.Freeze()) + fmt.Sprint(p.s.Size(), p.s.Len()) }

func (p *tandem) freeze(*rapid.T) {
	f := p.s.Freeze()
	p.frozen = append(p.frozen, frozen{f, streams(f)})
}

func load(f *Frozen) (*Store, error) {
	l := NewLoader(f.Meta())
	for kv := range f.Base() {
		if err := l.Base(kv); err != nil {
			return nil, err
		}
	}
	for e := range f.Log() {
		e.Prev = nil
		if err := l.Log(e); err != nil {
			return nil, err
		}
	}
	return l.Store()
}

// load goes on with a loaded copy, of the present or an earlier moment being equal to it.
func (p *tandem) load(t *rapid.T) {
	before := p.text()
	s, err := load(p.s.Freeze())
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []int64{0, p.s.Compacted(), p.s.Revision()} {
		h1, r1, _ := s.Hash(revision)
		h2, r2, _ := p.s.Hash(revision)
		if h1 != h2 || r1 != r2 {
			t.Fatalf("hash at %d: %d %d and %d %d", revision, h1, r1, h2, r2)
		}
	}
	p.s = s
	if after := p.text(); after != before {
		t.Fatalf("loaded\n%s\nfrom\n%s", after, before)
	}
}

func (p *tandem) rebase(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") != 0 {
		return
	}
	revision := rapid.Int64Range(0, p.m.revision+5).Draw(t, "revision")
	drop := func(kv *KeyValue) bool { return kv.Lease != 0 }
	p.s.Rebase(revision, drop)
	kvs := slices.DeleteFunc(p.m.present(math.MaxInt64), func(kv KeyValue) bool { return drop(&kv) })
	p.m.revision = max(revision, p.m.revision+2)
	p.m.compacted = p.m.revision
	p.m.list = nil
	for _, kv := range kvs {
		p.m.list = append(p.m.list, record{kv: kv})
	}
}

func (p *tandem) check(t *rapid.T) {
	if err := p.s.Check(); err != nil {
		t.Fatal(err)
	}
	if p.s.Revision() != p.m.revision || p.s.Compacted() != max(0, p.m.compacted) {
		t.Fatalf("at %d, compacted %d; want %d, %d", p.s.Revision(), p.s.Compacted(), p.m.revision, p.m.compacted)
	}
	now := p.m.present(math.MaxInt64)
	var keys []KeyValue
	for kv := range p.s.Keys() {
		keys = append(keys, *kv)
		if got := p.s.Get(kv.Key); got != kv {
			t.Fatalf("Get %q: %s", kv.Key, print(got))
		}
	}
	if p.s.Len() != len(now) || print(keys) != print(now) {
		t.Fatalf("%d keys %s\nwant %s", p.s.Len(), print(keys), print(now))
	}
	p.checkEvents(t, max(1, p.m.compacted), p.m.revision, []byte{0}, []byte{0}, 0)
	for _, f := range p.frozen {
		if got := streams(f.f); got != f.text {
			t.Fatalf("a frozen copy moved\nfrom %s\n  to %s", f.text, got)
		}
	}
}

// TestStoreAgainstModel compares the store with the naive model over random
// stories: transactions of every shape, compactions, reads and events of every
// revision, copies that must not move, and stores that go on as their own copy.
func TestStoreAgainstModel(t *testing.T) {
	rapid.Check(t, story)
}

func story(t *rapid.T) {
	p := &tandem{s: New(), m: newModel()}
	t.Repeat(map[string]func(*rapid.T){
		"":           p.check,
		"txn":        p.txn,
		"txn2":       p.txn,
		"txn3":       p.txn,
		"range":      p.rangeAny,
		"range2":     p.rangeAny,
		"deleteKeys": p.deleteKeys,
		"compact":    p.compact,
		"events":     p.eventsAny,
		"freeze":     p.freeze,
		"load":       p.load,
		"rebase":     p.rebase,
	})
}
