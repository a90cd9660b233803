package state

import "github.com/leasehold-dev/leasehold/raftstore/mvcc"

// The commands below are etcd's writes. They need feature level 2 and are
// refused with ReasonFeature below it. Refusals of the store's are mvcc.Error. A
// command that may put a key, and GrantLease, are refused with mvcc.ErrNoSpace
// while any alarm is raised.

// Transact carries out one transaction on keys. Result.KV has the answer.
type Transact struct {
	Txn mvcc.Txn
}

// Compact forgets superseded versions of keys at or below Revision.
type Compact struct {
	Revision int64
}

// GrantLease opens a session that belongs to no worker: etcd's lease. TTL is in
// seconds; less than MinLeaseTTL is raised to it. A session that exists is
// refused with ReasonExists. Result.Session has the answer. An Owner needs
// feature level 3.
type GrantLease struct {
	Session SessionID
	TTL     int64
	Owner   string // who grants it; empty: nobody in particular
}

// RevokeLease ends such a session, and its keys with it, in one revision. That
// of a worker is refused with ReasonConflict: it would end strict leases.
type RevokeLease struct {
	Session SessionID
}

// Enqueue creates the key Name + "/" + the session in lower hex, attached to the
// session, unless it is there. The entry that creates it draws a token, so that
// tokens of keys of one name rise as their CreateRevision does. Result.Ticket has
// the answer. The hex is that of the id as a signed number, as in etcd's clients.
type Enqueue struct {
	Name    []byte
	Session SessionID
	Value   []byte
	Update  bool // give an existing key the value, if it has another
}

// Sequence creates a key under the next number of a prefix: Prefix and the number in
// 19 decimal digits, so that the order of keys is that of creation. Numbers are
// never used twice, also when keys are deleted; one whose key somebody has put
// is passed over. They end at MaxSequence. Result.Ticket has the answer.
type Sequence struct {
	Prefix  []byte
	Value   []byte
	Session SessionID // 0: the key outlives whoever made it
	After   uint64    // not 0: the number will be above it
}

// SetAlarm raises or lowers the alarm that no space is left.
type SetAlarm struct {
	Member uint64
	Raised bool
}

// Ticket answers Enqueue and Sequence.
type Ticket struct {
	KV      *mvcc.KeyValue
	Created bool
	Number  uint64 // of Sequence
}
