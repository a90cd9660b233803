// Package pgxfence is package sqlfence for programs that use pgx without
// database/sql: the same table, the same statements, the same promises and
// errors, on PostgreSQL. A program may use both on one database.
//
//	guard := pgxfence.New(pool)
//	err := guard.Do(ctx, lease.Stamp(), func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE …")
//		return err
//	}) // errors.Is(err, fence.ErrStale): somebody newer owns it
//
// With a transaction of your own, call Guard first in it. Where the statements
// need no answer of one another, Batch sends guard and statements in a single
// round trip, which is faster than the bare transaction.
//
// The pool may lead through a transaction-mode pooler, if pgx is told not to
// prepare statements (default_query_exec_mode=exec). What package sqlfence says
// about savepoints, timeouts and stopped writers holds here as well.
//
// It does not promise anything for writes outside the guarded transaction. It
// starts no goroutine but the one that sqlfence.Fence.Claim describes.
package pgxfence
