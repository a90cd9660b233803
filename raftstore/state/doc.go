// Package state is the replicated state machine of Leasehold: sessions, the
// logical clock, keyspaces, leases, fencing tokens and the ledger of what
// happened. It is pure: Apply computes the next state and what it says about
// each command from the log entry alone. No wall clock, goroutine, socket,
// logger, random number or map order decides anything; times and random ids
// are put into a command before it is proposed.
//
// A State is not safe for concurrent use. raftstore owns it: one goroutine
// applies under a write lock, readers look under a read lock.
package state
