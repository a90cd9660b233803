// Package sqljob claims rows of a table of jobs by conditional update. A row
// stores the token and the owner that claimed it, so that a row of a dead owner
// can be taken over by a higher token, and by nothing else: no timeout, no
// heartbeat, no clock.
//
//	id  keyspace  partition_id  state    token  owner  attempts  payload
//	1   mails     17            done     33     w2     1         …
//	2   mails     17            claimed  34     w4     2         …        claimed by w2 before
//	3   mails     17            open     0             0         …
//
// The table may be the ready one, leasehold_job ([Migrate]), or the program's
// own with whatever column names it has ([Table]). The owner of a partition
// works like this:
//
//	jobs, err := queue.Claim(ctx, stamp, 100)
//	for _, job := range jobs {
//		tx, err := db.BeginTx(ctx, nil)
//		… what the job does, with tx …
//		err = queue.Done(ctx, tx, stamp, job.ID) // *fence.StaleError: roll back
//		err = tx.Commit()
//	}
//
// # The rule
//
// A row may be claimed
//
//   - in the state open or claimed, by a token above the row's;
//   - in the state open, again by the row's own token and owner (a released job).
//
// Done, Release and Fail want the row to be claimed under exactly the stamp's
// token and owner. A row that is not is reported, never taken for success.
//
// # Promises
//
//   - Once a row was claimed under a token, a smaller one neither claims nor
//     ends it, nor does the same one of another owner.
//   - What is written in the transaction of a job's Done is committed once per
//     job, however many owners were at it.
//   - A job whose owner died is claimed again by the next owner of its
//     partition, at its first Claim.
//   - Claims do not wait for rows that another transaction has locked; they
//     skip them and get them later (in SQLite all writers wait for one another).
//
// What it does not promise: effects outside the transaction of Done may happen
// more than once. The exclusion is per row, not per partition: an old owner may
// still finish rows that the new one has not claimed yet, so that jobs of a
// partition may end out of order. Where that matters guard the transaction with
// package sqlfence as well. A job is not taken from an owner that lives and
// does nothing; its lease has to end first.
//
// Two transactions that meet in a row are ended by some databases at some
// levels: PostgreSQL above READ COMMITTED with SQLSTATE 40001, MariaDB and
// MySQL with error 1213. Claim uses READ COMMITTED. Begin again after such an
// error, as always.
//
// The table grows by its jobs; delete the done ones when they are of no more
// use. The token of an open or claimed row must never be lowered.
//
// The package uses database/sql only and starts no goroutine.
package sqljob
