// Package state is the replicated state machine of Leasehold: sessions, the
// logical clock, keyspaces, leases, fencing tokens and the ledger of what
// happened, and the keys of the coordination API with their queues and
// sequences. It is pure: Apply computes the next state and what it says about
// each command from the log entry alone. No wall clock, goroutine, socket,
// logger, random number or map order decides anything; times and random ids
// are put into a command before it is proposed.
//
// Keys live in raftstore/mvcc; this package says who may write them when, which
// session they go with, and which token or number one draws. What etcd calls a
// lease is a session without a worker: the same clock, keep-alives and expiry,
// and no part in keyspaces. A transaction of one command is one revision; so is
// the end of a session, however many keys go with it (at most MaxSessionKeys).
//
// A State is not safe for concurrent use. raftstore owns it: one goroutine
// applies under a write lock, readers look under a read lock.
package state
