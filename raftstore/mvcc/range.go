package mvcc

import (
	"math"
	"sort"
)

// Check refuses what etcd refuses before it looks at any key.
func (op *RangeOp) Check() error {
	switch {
	case len(op.Key) == 0:
		return ErrEmptyKey
	case op.Order > SortDescend || op.Target > SortByValue:
		return ErrInvalidSort
	}
	return nil
}

// Range reads; it never changes anything. It calls op.Check first.
func (s *Store) Range(op *RangeOp) (*RangeResult, error) {
	if err := op.Check(); err != nil {
		return nil, err
	}
	switch {
	case op.Revision > s.revision:
		return nil, ErrFuture
	case op.Revision > 0 && op.Revision < s.compacted:
		return nil, ErrCompacted
	}
	return s.read(op), nil
}

// checkRead is Range's check of the revision as etcd makes it within a
// transaction: there a negative one is an old one, not the present.
func (s *Store) checkRead(op *RangeOp) error {
	switch {
	case op.Revision == 0:
		return nil
	case op.Revision > s.revision:
		return ErrFuture
	case op.Revision < s.compacted:
		return ErrCompacted
	}
	return nil
}

// read answers a range whose revision was checked. No revision means what is
// in the tree, the writes of a transaction under way included.
func (s *Store) read(op *RangeOp) *RangeResult {
	at := op.Revision
	if at <= 0 {
		at = math.MaxInt64
	}
	r := &RangeResult{KeysOnly: op.KeysOnly}
	want := int64(math.MaxInt64)
	switch {
	case op.CountOnly:
		want = 0
	case op.cuts():
		want = op.Limit
		if op.Target != SortByKey && want < math.MaxInt64 {
			want++
		}
	}
	filters := op.filters()
	span{op.Key, op.End}.visit(s.tree, func(_ []byte, it *item) bool {
		v := it.at(at)
		if v == nil || v.del {
			return true
		}
		r.Count++
		if int64(len(r.KVs)) < want && (!filters || op.passes(&v.kv)) {
			r.KVs = append(r.KVs, &v.kv)
		}
		return true
	})
	if !op.CountOnly {
		op.arrange(r)
		r.More = r.More || op.cuts() && r.Count > op.Limit
	}
	return r
}

// cuts says whether the walk collects no more than the limit, or, if the answer is put
// in order after all, one more than that: not when something is left out or a
// direction was asked for. So an order that follows from the target alone is one of
// the first keys, as in etcd.
func (op *RangeOp) cuts() bool {
	return op.Limit > 0 && (op.Order == SortNone || op.ordered()) && !op.filters()
}

// ordered says whether the answer's order is that of the keys.
func (op *RangeOp) ordered() bool { return op.Target == SortByKey && op.Order != SortDescend }

func (op *RangeOp) filters() bool {
	return op.MinModRevision != 0 || op.MaxModRevision != 0 || op.MinCreateRevision != 0 || op.MaxCreateRevision != 0
}

func (op *RangeOp) passes(kv *KeyValue) bool {
	return within(kv.ModRevision, op.MinModRevision, op.MaxModRevision) &&
		within(kv.CreateRevision, op.MinCreateRevision, op.MaxCreateRevision)
}

func within(n, least, most int64) bool {
	return (least == 0 || n >= least) && (most == 0 || n <= most)
}

// arrange sorts and cuts what was collected.
func (op *RangeOp) arrange(r *RangeResult) {
	limit := len(r.KVs)
	if op.Limit > 0 && op.Limit < int64(limit) {
		limit, r.More = int(op.Limit), true
	}
	if !op.ordered() && !(limit == 1 && op.first(r.KVs)) {
		op.sort(r.KVs)
	}
	r.KVs = r.KVs[:limit:limit]
}

// sort orders the pairs. It is sort.Sort, not a stable one, because pairs that
// are equal shall come as they come from etcd.
func (op *RangeOp) sort(kvs []*KeyValue) {
	by := sort.Interface(pairs{kvs, op.Target})
	if op.Order == SortDescend {
		by = sort.Reverse(by)
	}
	sort.Sort(by)
}

// first brings what sort would make the first pair to the front, at the price of a
// walk, and says whether it could: not if others are equal to it.
func (op *RangeOp) first(kvs []*KeyValue) bool {
	best, ties := 0, 0
	for i := 1; i < len(kvs); i++ {
		c := op.Target.compare(kvs[i], kvs[best])
		if op.Order == SortDescend {
			c = -c
		}
		switch {
		case c < 0:
			best, ties = i, 0
		case c == 0:
			ties++
		}
	}
	if ties > 0 {
		return false
	}
	if len(kvs) > 0 {
		kvs[0], kvs[best] = kvs[best], kvs[0]
	}
	return true
}

type pairs struct {
	kvs []*KeyValue
	by  SortTarget
}

func (p pairs) Len() int           { return len(p.kvs) }
func (p pairs) Swap(i, j int)      { p.kvs[i], p.kvs[j] = p.kvs[j], p.kvs[i] }
func (p pairs) Less(i, j int) bool { return p.by.compare(p.kvs[i], p.kvs[j]) < 0 }
