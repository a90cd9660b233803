package state

import (
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// Result is what Apply says about one command.
type Result struct {
	// Err is nil, or why the whole command was refused: a *Refusal, or of a
	// command on keys a mvcc.Error.
	Err error
	// Index of the entry, and the event revision after the command.
	Index    uint64
	Revision uint64
	// Items has, for Grant, Release, Drain and Revoke, one entry per item in
	// order; nil means that every item was done.
	Items []error
	// Tokens of a Grant, in item order; 0 for a refused item.
	Tokens []Token
	// Sessions of a KeepAlive or Expire: what happened to each.
	Sessions []SessionResult
	// Session of an OpenSession: the one opened or found again; of a GrantLease.
	Session *Session
	// Keyspace of Create, Update and JoinKeyspace.
	Keyspace *Keyspace
	// KV of a Transact.
	KV *mvcc.TxnResult
	// KVRevision is the revision of the keys after the command, of whatever
	// kind and however it ended.
	KVRevision int64
	// Ticket of Enqueue and Sequence.
	Ticket *Ticket
	// Credential of a RevokeCredential, as it was, and how many sessions and
	// leases of keys were barred with it.
	Credential *access.Credential
	Barred     int
}

// SessionResult tells how a renewal or an expiry ended.
type SessionResult struct {
	// Err is nil when the session was renewed (or expired), else a *Refusal
	// with ReasonNotFound, ReasonSuperseded, ReasonEvicted or ReasonConflict.
	Err error
	// TTLMillis is the session's TTL after the command.
	TTLMillis int64
}
