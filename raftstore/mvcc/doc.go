// Package mvcc is a pure multi-version store of small keys, with etcd's
// revisions and rules.
//
// What it promises: a transaction is one revision or, when it changes nothing
// or is refused, none; its reads see its earlier writes; a refusal has no
// effect; what was there at any revision from the compacted one on can be read
// and told as events without a hole; a Frozen copy stays what it was; two
// stores that were given the same changes are equal in every method, whether
// they lived through them or were loaded. What it does not: it knows no time,
// keeps no index from sessions to keys, bounds neither its size nor that of a
// key, and does not defend itself against a caller that changes a byte slice
// which it handed over.
//
// Byte slices: keys and values of a Txn's puts become the store's own; the
// caller must not change them afterwards, and should not let them be parts of
// a much larger buffer, which they would keep alive. Every other slice that
// goes in is only read during the call. What comes out shares the store's
// memory and must not be changed; it stays valid for ever.
//
// No goroutine, clock, socket, logger or random number.
package mvcc
