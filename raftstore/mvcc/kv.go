package mvcc

// KeyValue is one version of a key. It is immutable, also for its owner: the
// byte slices are shared with the store.
type KeyValue struct {
	Key   []byte
	Value []byte
	// CreateRevision is that of the put that made the key after it was absent,
	// ModRevision that of the last put. Version counts the puts since, from 1.
	CreateRevision, ModRevision, Version int64
	// Lease is the session that the key dies with, 0 for none.
	Lease int64
	// Token is the fencing token drawn when the key was created, 0 for none.
	// Later puts of the same life of the key keep it.
	Token uint64
}

// Event is one change of one key. All events of a revision belong together.
type Event struct {
	// Delete tells a deletion, whose KV has Key and ModRevision alone.
	Delete bool
	KV     *KeyValue
	// Prev is the version before, nil if there was none or it was compacted;
	// Store.Events and Update say what before means for a key that changes
	// twice in one revision.
	Prev *KeyValue
}

// Revision of the change.
func (e *Event) Revision() int64 { return e.KV.ModRevision }

// SortTarget is what a range is ordered by.
type SortTarget uint8

// Sort targets, numbered as etcd does.
const (
	SortByKey     SortTarget = 0
	SortByVersion SortTarget = 1
	SortByCreate  SortTarget = 2
	SortByMod     SortTarget = 3
	SortByValue   SortTarget = 4
)

// SortOrder is the direction; none means the order of keys, or ascending for
// another target.
type SortOrder uint8

// Sort orders, numbered as etcd does.
const (
	SortNone    SortOrder = 0
	SortAscend  SortOrder = 1
	SortDescend SortOrder = 2
)

// RangeOp reads keys. End nil or empty: the one key. End of one zero byte:
// every key from Key on; with Key of one zero byte, too, the whole store.
type RangeOp struct {
	Key, End []byte
	// Revision to read at; 0 or less: now. In a Txn a negative one is too old.
	Revision int64
	Limit    int64 // 0: none
	Target   SortTarget
	Order    SortOrder
	KeysOnly bool
	// CountOnly leaves the pairs out.
	CountOnly                            bool
	MinModRevision, MaxModRevision       int64 // 0: no bound
	MinCreateRevision, MaxCreateRevision int64
}

// PutOp writes one key.
type PutOp struct {
	Key, Value               []byte
	Lease                    int64
	PrevKV                   bool // return what was there
	IgnoreValue, IgnoreLease bool // keep the present one; the key must exist
}

// DeleteOp removes keys; End as in RangeOp.
type DeleteOp struct {
	Key, End []byte
	PrevKV   bool
}

// Op is one operation of a transaction: exactly one field is set. One with
// none is refused with ErrKeyNotFound, as etcd does.
type Op struct {
	Range  *RangeOp
	Put    *PutOp
	Delete *DeleteOp
	Txn    *Txn
}

// CompareTarget is the field that a Compare looks at.
type CompareTarget uint8

// Compare targets, numbered as etcd does.
const (
	CompareVersion CompareTarget = 0
	CompareCreate  CompareTarget = 1
	CompareMod     CompareTarget = 2
	CompareValue   CompareTarget = 3
	CompareLease   CompareTarget = 4
)

// CompareResult is the relation that must hold.
type CompareResult uint8

// Relations, numbered as etcd does.
const (
	CompareEqual    CompareResult = 0
	CompareGreater  CompareResult = 1
	CompareLess     CompareResult = 2
	CompareNotEqual CompareResult = 3
)

// Compare is one condition of a transaction. It must hold for every key of
// the range; an empty range counts as one absent key, all of whose fields are
// zero, and of which no comparison of values holds.
type Compare struct {
	Key, End []byte
	Target   CompareTarget
	Result   CompareResult
	Number   int64  // for every target but values
	Value    []byte // for values
}

// Txn does Success if all of Compare hold, else Failure, at one revision.
type Txn struct {
	Compare          []Compare
	Success, Failure []Op
}

// RangeResult answers a RangeOp.
type RangeResult struct {
	// KVs are whole also when KeysOnly was asked: the caller blanks the values.
	KVs []*KeyValue
	// More says that Limit cut the list; Count is the whole number of keys in
	// the range, whatever limit and filters said.
	More  bool
	Count int64
	// KeysOnly is that of the question.
	KeysOnly bool
}

// OpResult answers one Op: the field of its kind is set. Revision is the
// store's when the operation was done; 0 for a Txn, as in etcd.
type OpResult struct {
	Revision int64
	Range    *RangeResult
	Put      *PutResult
	Delete   *DeleteResult
	Txn      *TxnResult
}

// PutResult answers a PutOp.
type PutResult struct{ Prev *KeyValue }

// DeleteResult answers a DeleteOp.
type DeleteResult struct {
	Deleted int64
	Prev    []*KeyValue
}

// TxnResult answers a Txn.
type TxnResult struct {
	Succeeded bool
	Ops       []OpResult
}
