// Package sqlfence guards tables of an SQL database with fencing tokens. It
// keeps one row per partition, in the table leasehold_fence beside the tables
// it guards:
//
//	keyspace  partition_id  token  owner  claimed_at
//	orders    17            34     w4     2026-03-01T12:00:00.000Z
//
// A new owner claims its partitions before it works ([Fence.Claim]); a write
// calls [Fence.Guard] first in its own transaction:
//
//	tx, err := db.BeginTx(ctx, nil)
//	defer tx.Rollback()
//	if err := guard.Guard(ctx, tx, lease.Stamp()); err != nil {
//		return err // errors.Is(err, fence.ErrStale): somebody newer owns it
//	}
//	… the write …
//	return tx.Commit()
//
// Guard compares and raises in one statement and keeps the row locked until
// the transaction ends, so a newer claim waits for a write in flight, and no
// older write can follow it. A write that does not share the transaction with
// its Guard is not guarded.
//
// Promises: those of package fence, for as long as the rows are kept. No state
// lives in a connection, so any pool and any transaction-mode pooler will do; a
// client that dies leaves no lock behind. No clock decides anything: claimed_at
// is the database's, for people. The table is bounded by the number of
// partitions; rows of a deleted keyspace may be removed once none of its
// workers runs any more, not before.
//
// SQLite: open it with a busy timeout and immediate transactions, see
// [SQLiteDSN]. A deferred transaction that reads before it calls Guard may
// fail with SQLITE_BUSY, because a read cannot always become a write there;
// nothing is accepted then, the transaction just has to be tried again.
//
// The package uses database/sql only and starts no goroutine.
package sqlfence
