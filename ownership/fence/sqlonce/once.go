package sqlonce

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// DefaultWait is how long a call waits for another one with the same key.
const DefaultWait = 5 * time.Second

// Once runs requests once per key. It is safe for concurrent use and holds no
// connection between calls.
type Once struct {
	db      *sql.DB
	dialect sqlfence.Dialect
	wait    time.Duration
}

// Option changes a Once.
type Option func(*Once)

// WithWait sets how long a call waits for another one with the same key before
// it returns ErrInProgress, instead of DefaultWait. It must be above 0.
func WithWait(d time.Duration) Option { return func(o *Once) { o.wait = d } }

// New makes a Once over the table leasehold_once of db. It does not touch the
// database; Migrate makes the table.
func New(db *sql.DB, dialect sqlfence.Dialect, opts ...Option) *Once {
	o := &Once{db: db, dialect: dialect, wait: DefaultWait}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// Func is the work of one request. It writes through tx alone, neither commits
// nor rolls back, and returns what repeats are to be answered with: at most
// MaxResultLen bytes. After an error, or a panic, nothing that it wrote is kept.
type Func func(ctx context.Context, tx *sql.Tx) (result []byte, err error)

// Do runs fn in a transaction of its own and commits it, unless a call with the
// same key has been committed before: then it returns that one's result, with
// replayed true, and does not run fn.
//
// The key is the caller's name for the request, 1 to MaxKeyLen bytes of UTF-8
// without NUL. The request is whatever tells it from another one that came with
// the same key by mistake, such as its body; only its SHA-256 is kept.
//
// An error of fn is returned as it is (errors.Is, errors.As); an error of the
// commit matches ErrUnknown.
func (o *Once) Do(ctx context.Context, key string, request []byte, fn Func) (result []byte, replayed bool, err error) {
	s, err := o.check(key)
	if err != nil {
		return nil, false, err
	}
	for range insertTries {
		result, replayed, err = o.attempt(ctx, s, key, request, fn)
		var ins insertError
		if !errors.As(err, &ins) || errors.Is(err, ErrNoTable) || ctx.Err() != nil {
			break
		}
	}
	return result, replayed, err
}

// insertTries is how often Do begins again when the insert of the key fails,
// before which nothing has been done. InnoDB ends some of those who waited for
// a call that was rolled back as victims of a deadlock.
const insertTries = 10

func (o *Once) attempt(ctx context.Context, s statements, key string, request []byte, fn Func) (result []byte, replayed bool, err error) {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.isolation})
	if err != nil {
		return nil, false, fmt.Errorf("begin request %q: %w", key, err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing to undo after Commit, and before it the first error counts
	result, replayed, err = o.do(ctx, tx, s, key, request, fn)
	if err != nil {
		_ = tx.Rollback() // gives the connection back to look at the table with
		return nil, false, explain(ctx, o.db, s, err)
	}
	if err := tx.Commit(); err != nil {
		return nil, false, fmt.Errorf("%w: commit request %q: %w", ErrUnknown, key, err)
	}
	return result, replayed, nil
}

// DoTx is Do inside the caller's transaction: what it returns holds when that
// is committed. It works behind a savepoint, so that after an error the row and
// the writes of fn are undone even if the caller commits. After ErrInProgress,
// and after an error of the database, the transaction can only be rolled back.
func (o *Once) DoTx(ctx context.Context, tx *sql.Tx, key string, request []byte, fn Func) (result []byte, replayed bool, err error) {
	s, err := o.check(key)
	if err != nil {
		return nil, false, err
	}
	// Savepoints nest by name in MariaDB, so no two have the same.
	savepoint := fmt.Sprintf("leasehold_once_%016x", rand.Uint64())
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
		return nil, false, fmt.Errorf("begin request %q: %w", key, err)
	}
	kept := false
	defer func() { // also when fn panics
		if kept {
			return
		}
		if _, undo := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+savepoint); undo != nil {
			err = errors.Join(err, fmt.Errorf("undo request %q, roll back the transaction: %w", key, undo))
			return
		}
		err = explain(ctx, tx, s, err)
	}()
	result, replayed, err = o.do(ctx, tx, s, key, request, fn)
	if err != nil {
		return nil, false, err
	}
	if _, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+savepoint); err != nil {
		return nil, false, fmt.Errorf("end request %q: %w", key, err)
	}
	kept = true
	return result, replayed, nil
}

func (o *Once) check(key string) (statements, error) {
	s, err := dialect(o.dialect)
	if err == nil && o.wait <= 0 {
		err = fmt.Errorf("wait is %v, want more than 0", o.wait)
	}
	if err == nil {
		err = checkKey(key)
	}
	return s, err
}

// do inserts the key or finds who was first.
func (o *Once) do(ctx context.Context, tx *sql.Tx, s statements, key string, request []byte, fn Func) ([]byte, bool, error) {
	fingerprint := sha256.Sum256(request)
	for {
		inserted, err := o.insert(ctx, tx, s, key, fingerprint[:])
		if err != nil {
			return nil, false, err
		}
		if inserted {
			result, err := run(ctx, tx, s, key, fn)
			return result, false, err
		}
		var first, result []byte
		var status string
		switch err := tx.QueryRowContext(ctx, s.read, key).Scan(&first, &status, &result); {
		case errors.Is(err, sql.ErrNoRows):
			continue // pruned in between: now the key is free
		case err != nil:
			return nil, false, fmt.Errorf("read result of %q: %w", key, err)
		case !bytes.Equal(first, fingerprint[:]):
			return nil, false, fmt.Errorf("%w: key %q, SHA-256 %.4x… is not %.4x…", ErrMismatch, key, fingerprint, first)
		case status != "done": // committed rows are done: this one is ours
			return nil, false, fmt.Errorf("%w: %q", ErrNested, key)
		}
		return result, true, nil
	}
}

func (o *Once) insert(ctx context.Context, tx *sql.Tx, s statements, key string, fingerprint []byte) (bool, error) {
	var token, owner any // NULL without a lease
	if stamp, ok := fence.FromContext(ctx); ok {
		token, owner = int64(stamp.Token), stamp.Owner
	}
	waiting, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	res, err := tx.ExecContext(waiting, s.insert, key, fingerprint, token, owner)
	switch {
	case err != nil && waiting.Err() != nil && ctx.Err() == nil:
		return false, fmt.Errorf("%w: key %q was not free within %v: %w", ErrInProgress, key, o.wait, err)
	case err != nil:
		return false, insertError{fmt.Errorf("insert key %q: %w", key, err)}
	}
	inserted, err := s.inserted(res)
	if err != nil {
		return false, fmt.Errorf("insert key %q: %w", key, err)
	}
	return inserted, nil
}

// run does the work and keeps its result in the row that was just inserted.
func run(ctx context.Context, tx *sql.Tx, s statements, key string, fn Func) ([]byte, error) {
	result, err := fn(ctx, tx)
	if err != nil {
		return nil, err
	}
	if len(result) > MaxResultLen {
		return nil, fmt.Errorf("%w: %d bytes for key %q, want at most %d", ErrResultTooLong, len(result), key, MaxResultLen)
	}
	res, err := tx.ExecContext(ctx, s.store, result, key)
	if err != nil {
		return nil, fmt.Errorf("store result of %q: %w", key, err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return nil, errors.Join(fmt.Errorf("%w: key %q", ErrLost, key), err)
	}
	return result, nil
}

// insertError marks where a missing table shows first.
type insertError struct{ error }

func (e insertError) Unwrap() error { return e.error }

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// explain adds ErrNoTable to an error that comes from it: drivers have no
// common way to say so.
func explain(ctx context.Context, q querier, s statements, err error) error {
	var ins insertError
	if !errors.As(err, &ins) || ctx.Err() != nil {
		return err
	}
	if there, lookErr := exists(ctx, q, s); lookErr == nil && !there {
		return fmt.Errorf("%w: %w", ErrNoTable, err)
	}
	return err
}

func exists(ctx context.Context, q querier, s statements) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, s.table).Scan(&n)
	return n > 0, err
}
