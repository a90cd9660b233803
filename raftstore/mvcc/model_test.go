package mvcc

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sort"
)

// model is the rules written down naively: every version of every key in one
// list, nothing ever forgotten, nothing shared, every question a walk.
type model struct {
	revision, compacted int64
	list                []record
}

type record struct {
	kv  KeyValue
	del bool
}

func newModel() *model { return &model{revision: 1, compacted: -1} }

func inRange(key, k, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(key, k)
	case len(end) == 1 && end[0] == 0:
		return bytes.Compare(key, k) >= 0
	}
	return bytes.Compare(key, k) >= 0 && bytes.Compare(key, end) < 0
}

// present is what is there at a revision, by key. Records of the transaction
// under way have the next revision.
func (m *model) present(at int64) []KeyValue {
	found := map[string]record{}
	for _, r := range m.list {
		if r.kv.ModRevision <= at {
			found[string(r.kv.Key)] = r
		}
	}
	var kvs []KeyValue
	for _, r := range found {
		if !r.del {
			kvs = append(kvs, r.kv)
		}
	}
	slices.SortFunc(kvs, func(a, b KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return kvs
}

func (m *model) in(at int64, key, end []byte) []KeyValue {
	return slices.DeleteFunc(m.present(at), func(kv KeyValue) bool { return !inRange(kv.Key, key, end) })
}

func (m *model) get(at int64, key []byte) *KeyValue {
	for i := len(m.list) - 1; i >= 0; i-- {
		if r := &m.list[i]; r.kv.ModRevision <= at && bytes.Equal(r.kv.Key, key) {
			if kv := r.kv; !r.del {
				return &kv
			}
			return nil
		}
	}
	return nil
}

func (m *model) rangeOf(op *RangeOp) *RangeResult {
	at := op.Revision
	if at <= 0 {
		at = math.MaxInt64
	}
	kvs := m.in(at, op.Key, op.End)
	r := &RangeResult{Count: int64(len(kvs)), KeysOnly: op.KeysOnly}
	if op.CountOnly {
		return r
	}
	for _, kv := range kvs {
		if op.MinModRevision != 0 && kv.ModRevision < op.MinModRevision || op.MaxModRevision != 0 && kv.ModRevision > op.MaxModRevision ||
			op.MinCreateRevision != 0 && kv.CreateRevision < op.MinCreateRevision || op.MaxCreateRevision != 0 && kv.CreateRevision > op.MaxCreateRevision {
			continue
		}
		r.KVs = append(r.KVs, &kv)
	}
	if cut := int(op.Limit) + 1; op.Order == SortNone && cut > 1 && cut < len(r.KVs) &&
		op.MinModRevision|op.MaxModRevision|op.MinCreateRevision|op.MaxCreateRevision == 0 {
		r.KVs, r.More = r.KVs[:cut], true
	}
	order := func(a, b *KeyValue) int {
		return [...]int{bytes.Compare(a.Key, b.Key), cmp.Compare(a.Version, b.Version), cmp.Compare(a.CreateRevision, b.CreateRevision),
			cmp.Compare(a.ModRevision, b.ModRevision), bytes.Compare(a.Value, b.Value)}[op.Target]
	}
	switch {
	case op.Order == SortDescend:
		sort.Sort(sort.Reverse(byOrder{r.KVs, order}))
	case op.Order == SortAscend || op.Target != SortByKey:
		sort.Sort(byOrder{r.KVs, order})
	}
	if op.Limit > 0 && int64(len(r.KVs)) > op.Limit {
		r.KVs, r.More = r.KVs[:op.Limit], true
	}
	return r
}

type byOrder struct {
	kvs   []*KeyValue
	order func(a, b *KeyValue) int
}

func (b byOrder) Len() int           { return len(b.kvs) }
func (b byOrder) Swap(i, j int)      { b.kvs[i], b.kvs[j] = b.kvs[j], b.kvs[i] }
func (b byOrder) Less(i, j int) bool { return b.order(b.kvs[i], b.kvs[j]) < 0 }

func (m *model) holds(c *Compare) bool {
	kvs := m.in(m.revision, c.Key, c.End)
	if len(kvs) == 0 {
		if c.Target == CompareValue {
			return false
		}
		kvs = []KeyValue{{}}
	}
	for _, kv := range kvs {
		d := [...]int{cmp.Compare(kv.Version, c.Number), cmp.Compare(kv.CreateRevision, c.Number), cmp.Compare(kv.ModRevision, c.Number),
			bytes.Compare(kv.Value, c.Value), cmp.Compare(kv.Lease, c.Number)}[c.Target]
		if ok := [...]bool{d == 0, d > 0, d < 0, d != 0}[c.Result]; !ok {
			return false
		}
	}
	return true
}

// step is one operation of the chosen branches, flat; txn says where a nested
// one begins, and end where it ends.
type step struct {
	op       *Op
	txn, end bool
	ok       bool
}

func (m *model) plan(t *Txn, steps []step) []step {
	ok := true
	for i := range t.Compare {
		ok = ok && m.holds(&t.Compare[i])
	}
	steps = append(steps, step{txn: true, ok: ok})
	ops := t.Success
	if !ok {
		ops = t.Failure
	}
	for i := range ops {
		if ops[i].Txn != nil {
			steps = m.plan(ops[i].Txn, steps)
		} else {
			steps = append(steps, step{op: &ops[i]})
		}
	}
	return append(steps, step{end: true})
}

func (m *model) refuses(steps []step, leases Leases) error {
	var deleted []*DeleteOp
	for _, s := range steps {
		switch {
		case s.op == nil:
		case s.op.Range != nil:
			switch r := s.op.Range.Revision; {
			case r > m.revision:
				return ErrFuture
			case r != 0 && r < m.compacted:
				return ErrCompacted
			}
		case s.op.Delete != nil:
			deleted = append(deleted, s.op.Delete)
		case s.op.Put != nil:
			p := s.op.Put
			if p.Lease != 0 && !leases(p.Lease) {
				return ErrLeaseNotFound
			}
			gone := m.get(m.revision, p.Key) == nil
			for _, d := range deleted {
				gone = gone || inRange(p.Key, d.Key, d.End)
			}
			if (p.IgnoreLease || p.IgnoreValue) && gone {
				return ErrKeyNotFound
			}
		}
	}
	return nil
}

func (m *model) txn(t *Txn, leases Leases, token uint64) (Update, error) {
	if err := modelCheck(t); err != nil {
		return Update{}, err
	}
	steps := m.plan(t, nil)
	if err := m.refuses(steps, leases); err != nil {
		return Update{}, err
	}
	var events []Event
	stack := []*TxnResult{{}} // the outermost holds the result as its only op
	for _, s := range steps {
		top := stack[len(stack)-1]
		switch {
		case s.txn:
			stack = append(stack, &TxnResult{Succeeded: s.ok})
		case s.end:
			stack = stack[:len(stack)-1]
			above := stack[len(stack)-1]
			above.Ops = append(above.Ops, OpResult{Txn: top})
		default:
			top.Ops = append(top.Ops, m.do(s.op, token, &events))
		}
	}
	if len(events) > 0 {
		m.revision++
	}
	return Update{Result: stack[0].Ops[0].Txn, Events: events}, nil
}

func (m *model) do(op *Op, token uint64, events *[]Event) (o OpResult) {
	next := m.revision + 1
	record1 := func(r record) {
		*events = append(*events, Event{Delete: r.del, KV: &r.kv, Prev: m.get(next, r.kv.Key)})
		m.list = append(m.list, r)
	}
	switch {
	case op.Range != nil:
		o.Range = m.rangeOf(op.Range)
	case op.Put != nil:
		p := op.Put
		kv := KeyValue{Key: p.Key, Value: p.Value, Lease: p.Lease, CreateRevision: next, ModRevision: next, Version: 1, Token: token}
		o.Put = &PutResult{}
		if was := m.get(next, p.Key); was != nil {
			kv.CreateRevision, kv.Version, kv.Token = was.CreateRevision, was.Version+1, was.Token
			if p.IgnoreValue {
				kv.Value = was.Value
			}
			if p.IgnoreLease {
				kv.Lease = was.Lease
			}
			if p.PrevKV {
				o.Put.Prev = was
			}
		}
		record1(record{kv: kv})
	case op.Delete != nil:
		kvs := m.in(next, op.Delete.Key, op.Delete.End)
		o.Delete = &DeleteResult{Deleted: int64(len(kvs))}
		for i := range kvs {
			if op.Delete.PrevKV {
				o.Delete.Prev = append(o.Delete.Prev, &kvs[i])
			}
			record1(record{kv: KeyValue{Key: kvs[i].Key, ModRevision: next}, del: true})
		}
	}
	o.Revision = m.revision
	if len(*events) > 0 {
		o.Revision = next
	}
	return o
}

func (m *model) compact(revision int64) error {
	switch {
	case revision <= m.compacted:
		return ErrCompacted
	case revision > m.revision:
		return ErrFuture
	}
	m.compacted = revision
	return nil
}

// events are those of [from, to], all of them.
func (m *model) events(from, to int64, key, end []byte) (events []Event, err error) {
	if from < m.compacted {
		return nil, ErrCompacted
	}
	before := map[string]*KeyValue{} // the revision at hand
	begun := 0
	for i, r := range m.list {
		for ; m.list[begun].kv.ModRevision < r.kv.ModRevision; begun++ {
			b := &m.list[begun]
			if before[string(b.kv.Key)] = &b.kv; b.del {
				delete(before, string(b.kv.Key))
			}
		}
		rev := r.kv.ModRevision
		if rev < from || rev > to || !inRange(r.kv.Key, key, end) {
			continue
		}
		if rev == m.compacted && slices.ContainsFunc(m.list[i+1:], func(o record) bool { return o.kv.ModRevision == rev && bytes.Equal(o.kv.Key, r.kv.Key) }) {
			continue
		}
		e := Event{Delete: r.del, KV: &m.list[i].kv}
		if rev > m.compacted && (r.del || r.kv.CreateRevision != rev) {
			e.Prev = before[string(r.kv.Key)]
		}
		events = append(events, e)
	}
	return events, nil
}

// modelCheck is Txn.Check by comparing everything with everything.
func modelCheck(t *Txn) error {
	if err := modelSizes(t, MaxOps); err != nil {
		return err
	}
	for _, ops := range [][]Op{t.Success, t.Failure} {
		if _, _, ok := modelWritten(ops); !ok {
			return ErrDuplicateKey
		}
	}
	return nil
}

func modelSizes(t *Txn, most int) error {
	n := max(len(t.Compare), len(t.Success), len(t.Failure))
	if n > most {
		return ErrTooManyOps
	}
	for _, c := range t.Compare {
		if len(c.Key) == 0 {
			return ErrEmptyKey
		}
	}
	for _, op := range append(slices.Clone(t.Success), t.Failure...) {
		switch {
		case op.Range != nil && len(op.Range.Key) == 0, op.Put != nil && len(op.Put.Key) == 0, op.Delete != nil && len(op.Delete.Key) == 0:
			return ErrEmptyKey
		case op.Range != nil && (op.Range.Order > 2 || op.Range.Target > 4):
			return ErrInvalidSort
		case op.Put != nil && op.Put.IgnoreValue && len(op.Put.Value) > 0:
			return ErrValueProvided
		case op.Put != nil && op.Put.IgnoreLease && op.Put.Lease != 0:
			return ErrLeaseProvided
		case op.Txn != nil:
			if err := modelSizes(op.Txn, most-n); err != nil {
				return err
			}
		case op.Range == nil && op.Put == nil && op.Delete == nil:
			return ErrKeyNotFound
		}
	}
	return nil
}

func modelWritten(ops []Op) (puts [][]byte, dels []DeleteOp, ok bool) {
	taken := func(key []byte) bool {
		return slices.ContainsFunc(puts, func(k []byte) bool { return bytes.Equal(k, key) }) ||
			slices.ContainsFunc(dels, func(d DeleteOp) bool { return !bytes.Equal(d.End, []byte{0}) && inRange(key, d.Key, d.End) })
	}
	for _, op := range ops {
		if op.Delete != nil {
			dels = append(dels, *op.Delete)
		}
	}
	for _, op := range ops {
		if op.Txn == nil {
			continue
		}
		p1, d1, ok1 := modelWritten(op.Txn.Success)
		p2, d2, ok2 := modelWritten(op.Txn.Failure)
		if !ok1 || !ok2 || slices.ContainsFunc(p1, taken) || slices.ContainsFunc(p2, taken) {
			return nil, nil, false
		}
		puts, dels = append(append(puts, p1...), p2...), append(append(dels, d1...), d2...)
	}
	for _, op := range ops {
		if op.Put != nil {
			if taken(op.Put.Key) {
				return nil, nil, false
			}
			puts = append(puts, op.Put.Key)
		}
	}
	return puts, dels, true
}
