package sqljob

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Errors about single jobs. They are never success: roll back what was written
// for the job.
var (
	// ErrNoJob: there is no row with this id.
	ErrNoJob = errors.New("no such job")
	// ErrEnded: the job was claimed under the stamp and has been ended or
	// released under it before. A Done whose commit was lost looks like this
	// when it is tried again.
	ErrEnded = errors.New("job has been ended before")
)

// Done marks a job as done. Call it in the transaction that does the job's
// writes, so that they are committed with it or not at all; as the last thing,
// because the row is locked from here on. A job without writes of its own may
// be ended with the *sql.DB itself.
//
// After an error of the database do not call Done, roll back: when MariaDB or
// MySQL have ended a transaction as the victim of a deadlock, they carry out
// what follows without one, and the job would be done without its writes.
//
// The row must be claimed under the stamp's token and owner. If it is under
// another, the error is a *fence.StaleError (errors.Is fence.ErrStale) that
// names the other; else it may match ErrEnded or ErrNoJob. Roll back after any
// of them.
func (q *Queue[K]) Done(ctx context.Context, tx Querier, s fence.Stamp, id K) error {
	return q.end(ctx, tx, s, id, done)
}

// Release gives a job back: it is open again, for this owner or for one with a
// higher token. Its attempts stay counted. Errors are those of Done.
func (q *Queue[K]) Release(ctx context.Context, tx Querier, s fence.Stamp, id K) error {
	return q.end(ctx, tx, s, id, released)
}

// Fail puts a job aside for good, usually when Job.Attempts has reached what
// the program thinks enough. People open it again by setting the state, and
// must leave its token. Errors are those of Done.
func (q *Queue[K]) Fail(ctx context.Context, tx Querier, s fence.Stamp, id K) error {
	return q.end(ctx, tx, s, id, failed)
}

func (q *Queue[K]) end(ctx context.Context, tx Querier, s fence.Stamp, id K, how ending) error {
	if err := s.Validate(); err != nil {
		return err
	}
	// In a transaction the columns are looked at after the write: in SQLite one
	// that reads first might not get to write.
	_, inTx := tx.(*sql.Tx)
	if !inTx {
		if err := q.verify(ctx, tx); err != nil {
			return err
		}
	}
	res, err := tx.ExecContext(ctx, q.s.bind(q.s.end[how]), id, int64(s.Token), s.Owner)
	if err != nil {
		return fmt.Errorf("end job %v of %s: %w", id, s.Key(), err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("end job %v of %s: %w", id, s.Key(), err)
	}
	if n == 0 {
		err = q.refusal(ctx, tx, s, id)
	} else {
		err = q.verify(ctx, tx)
	}
	fence.Count(q.counter, 1, err)
	return err
}

// refusal says why no row was changed. It never returns nil.
func (q *Queue[K]) refusal(ctx context.Context, tx Querier, s fence.Stamp, id K) error {
	var state, owner string
	var token int64
	err := tx.QueryRowContext(ctx, q.s.bind(q.s.look), id).Scan(&state, &token, &owner)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: %v in %s", ErrNoJob, id, q.table.Name)
	case err != nil:
		return fmt.Errorf("look up job %v of %s: %w", id, s.Key(), err)
	case fence.Token(token) == s.Token && owner == s.Owner && state != q.table.Claimed:
		return fmt.Errorf("%w: job %v is %q under token %d of %s", ErrEnded, id, state, token, owner)
	case fence.Token(token) == s.Token && owner == s.Owner || fence.Token(token) < s.Token:
		return fmt.Errorf("job %v is %q under token %d of %q, not claimed under %s: claim it first", id, state, token, owner, s)
	}
	return fmt.Errorf("end job %v: %w", id, fence.Check(fence.Mark{Token: fence.Token(token), Owner: owner}, s))
}
