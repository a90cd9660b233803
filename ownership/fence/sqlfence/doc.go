// Package sqlfence guards tables of an SQL database with fencing tokens. It
// keeps one row per partition, in the table leasehold_fence beside the tables
// it guards:
//
//	keyspace     partition_id  token  owner  claimed_at
//	orders       17            34     w4     2026-03-01T12:00:00.000Z
//	the printer  -1            35     w4     2026-03-01T12:00:00.000Z   (a Stamp.Resource)
//
// A new owner claims its partitions before it works ([Fence.Claim]); a write is
// made in a transaction that begins with the check ([Fence.Do]):
//
//	err := guard.Do(ctx, lease.Stamp(), func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE …")
//		return err
//	}) // errors.Is(err, fence.ErrStale): somebody newer owns it
//
// or, in a transaction of your own, calls [Fence.Guard] first. A write that does
// not share the transaction with its Guard is not guarded.
//
// # Promises
//
// Those of package fence, for as long as the rows are kept, at every isolation
// level. A repeated write of one lease locks the row shared and writes nothing
// there, so many writers of one lease work at once; a newer claim waits for
// those in flight, holds back new ones, and so cannot starve. No decision and no
// lock lives in a connection: any pool and any transaction-mode pooler will do
// (with pgx: default_query_exec_mode=exec), and a client that dies leaves no
// lock behind. No clock decides anything: claimed_at is the database's, for
// people.
//
// A serialization failure or a deadlock ([Retryable]) has written nothing: begin
// the transaction again, Guard included. When the connection is lost at the
// commit, the outcome is unknown ([ErrOutcomeUnknown]).
//
// # A writer that is stopped inside its transaction
//
// It holds its lock, and the new owner's claim waits. So Guard bounds how long
// its transaction may wait for a lock and sit idle, by the TTL ([WithTTL], or the
// context's if that is less):
//
//   - PostgreSQL: lock_timeout and idle_in_transaction_session_timeout, for
//     this transaction only. Shorter settings of yours stay. A session that is
//     stopped while the server sends to it is not idle; tcp_user_timeout ends
//     that.
//   - MariaDB: innodb_lock_wait_timeout, for the statement only, and
//     idle_transaction_timeout. The latter has no form for one transaction:
//     Guard sets it once for a connection, which keeps it. If that is not welcome
//     to other users of the pool, give guarded writes a pool of their own, or put
//     idle_transaction_timeout into the data source name yourself. Whole
//     seconds, at least one.
//   - MySQL has no timeout for idle transactions, and nothing here sets one: put
//     innodb_lock_wait_timeout and wait_timeout into the data source name, and
//     end stopped writers with KILL; Claim's error says which.
//   - SQLite cannot take a lock from a process that is stopped. Others wait for
//     the busy timeout and get a *BlockedError; whoever supervises the process
//     has to kill it.
//
// The server ends the stopped session, the claim goes on, and the writer's
// commit fails when it wakes. A claim that waits in vain names the session that
// is in the way ([BlockedError]), as far as its account may see it (PROCESS in
// MariaDB, pg_read_all_stats for other users' sessions in PostgreSQL).
//
// # Savepoints
//
// Call Guard before the first savepoint. A rollback to an earlier savepoint
// takes the guard back, in PostgreSQL together with its lock: what is written
// then is not guarded, unless Guard is called again.
//
// # The table's size
//
// It is bounded by the number of partitions; [Fence.Forget] removes those of a
// deleted keyspace, [Fence.Prune] old resource names. Both say when that is safe.
//
// # SQLite
//
// Open it with a busy timeout and immediate transactions, see [SQLiteDSN], and
// keep the table in the file that is written. In a deferred transaction a newer
// claim may overtake a guarded one; then its first write fails with
// SQLITE_BUSY, because a stale snapshot cannot be written to. Nothing is
// accepted then, the transaction just has to be tried again.
//
// # Goroutines
//
// The package uses database/sql only. It starts no goroutine, but for one that
// looks who is in the way while a claim has been waiting for long; it ends with
// the call.
package sqlfence
