package sqlfence

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Queryer is what the guard needs of a transaction, or of a connection outside
// of one: Query runs a statement and calls each for every row of the answer,
// Exec runs one and returns the number of rows, read or written.
//
// Queryer and Database are for bindings to drivers that do not go through
// database/sql, such as pgxfence; users of *sql.DB need neither.
type Queryer interface {
	Query(ctx context.Context, query string, args []any, each func(scan func(dest ...any) error) error) error
	Exec(ctx context.Context, query string, args []any) (int64, error)
}

// Database is what the guard needs besides: a transaction of its own, at READ
// COMMITTED, that is committed if do returns nil and rolled back otherwise. The
// error of the commit must have gone through [CommitError].
type Database interface {
	Queryer
	InTx(ctx context.Context, do func(Queryer) error) error
}

// handle is a *sql.DB or *sql.Tx.
type handle interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

type std struct{ handle }

func (s std) Query(ctx context.Context, query string, args []any, each func(scan func(dest ...any) error) error) error {
	rows, err := s.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s std) Exec(ctx context.Context, query string, args []any) (int64, error) {
	res, err := s.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

type stdDB struct {
	std
	db        *sql.DB
	isolation sql.IsolationLevel
}

func (d stdDB) InTx(ctx context.Context, do func(Queryer) error) error {
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: d.isolation})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing to undo after Commit, and before it the first error counts
	if err := do(std{tx}); err != nil {
		return err
	}
	return CommitError(tx.Commit())
}

// Do begins a transaction, calls Guard, hands it to write and commits. It
// returns the refusal, what write returned (both after a rollback), or the
// error of the commit, which may be ErrOutcomeUnknown. Nothing is tried twice:
// where Retryable says so, call it again.
func (f *Fence) Do(ctx context.Context, s fence.Stamp, write func(ctx context.Context, tx *sql.Tx) error) error {
	if f.sql == nil {
		return fmt.Errorf("guard %s: this Fence was made by Over: use the Do of its binding", s.Key())
	}
	tx, err := f.sql.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("guard %s: begin: %w", s.Key(), explain(err))
	}
	defer tx.Rollback() //nolint:errcheck // as above
	if err := f.Guard(ctx, tx, s); err != nil {
		return err
	}
	if err := write(ctx, tx); err != nil {
		return err
	}
	return CommitError(tx.Commit())
}

// InBatch is the guard as a statement for a pipeline in which the statements
// behind it cannot wait for its answer, for bindings such as pgxfence: it fails
// with a division by zero (22012) unless the row is the stamp's own, and locks
// it otherwise. PostgreSQL only.
func (f *Fence) InBatch(ctx context.Context, s fence.Stamp) (text string, args []any, err error) {
	if f.dialect != PostgreSQL {
		return "", nil, fmt.Errorf("guard in a batch: %s has none, want %s", f.dialect, PostgreSQL)
	}
	if err := validate(s); err != nil {
		return "", nil, err
	}
	lock := f.dialect.lock(rowOf(s.Key()), s, f.bound(ctx))
	return `SELECT 1 / count(*) FROM (` + lock.text + `) AS own`, lock.args, nil
}

// Decided tells a counter of a decision that a binding has made by itself.
func (f *Fence) Decided(err error) { fence.Count(f.counter, 1, err) }
