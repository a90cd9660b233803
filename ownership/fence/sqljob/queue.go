package sqljob

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// MaxLimit is how many jobs one Claim takes at most.
const MaxLimit = 1000

// ID is what the primary key of a table of jobs can be: a number, or text (also
// a UUID of PostgreSQL).
type ID interface{ ~int64 | ~string }

// Job is a claimed row.
type Job[K ID] struct {
	ID K
	// Attempts is how often the row has been claimed, this time included. A job
	// that kills its workers is known by it: see Fail.
	Attempts int
	// Payload is the payload column as the driver gives it, nil without one.
	Payload []byte
}

// Queue claims and ends the rows of one table. It is safe for concurrent use
// and holds no connection between calls.
type Queue[K ID] struct {
	db       *sql.DB
	table    Table
	s        statements
	counter  fence.Counter
	verified atomic.Bool // the columns have been looked at
}

// Querier is a *sql.DB, a *sql.Tx or a *sql.Conn.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// New makes a queue over a table of db; the zero Table is the ready one. It
// does not touch the database. Names that cannot be names match ErrTable. The
// counter, which may be nil, hears of each decision of Done, Release and Fail.
func New[K ID](db *sql.DB, d sqlfence.Dialect, t Table, counter fence.Counter) (*Queue[K], error) {
	dialect, err := dialectOf(d)
	if err != nil {
		return nil, err
	}
	t = t.filled()
	if err := t.validate(); err != nil {
		return nil, err
	}
	return &Queue[K]{db: db, table: t, s: newStatements(dialect, t), counter: counter}, nil
}

// Claim takes up to limit jobs of the stamp's partition, 1 to MaxLimit: first
// those that an owner with a lower token has left claimed, then open ones, each
// in their order. Rows that another transaction has locked are passed over. No
// job means that there is none to be had now.
//
// After an error nothing has been claimed; only if the connection was lost at
// the commit the rows may be, and Held finds them.
func (q *Queue[K]) Claim(ctx context.Context, s fence.Stamp, limit int) ([]Job[K], error) {
	tx, err := q.db.BeginTx(ctx, &sql.TxOptions{Isolation: q.s.isolation})
	if err != nil {
		return nil, fmt.Errorf("claim jobs of %s: begin: %w", s.Key(), err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing to undo after Commit, and before it the first error counts
	jobs, err := q.ClaimTx(ctx, tx, s, limit)
	if err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("claim jobs of %s: commit: %w", s.Key(), err)
	}
	return jobs, nil
}

// ClaimTx is Claim in the caller's transaction: the rows are claimed when that
// is committed, and locked until then. In MariaDB and MySQL begin it at READ
// COMMITTED: their default locks what lies between the rows as well, and other
// claims would wait.
func (q *Queue[K]) ClaimTx(ctx context.Context, tx *sql.Tx, s fence.Stamp, limit int) ([]Job[K], error) {
	if err := check(s, limit); err != nil {
		return nil, err
	}
	jobs, err := q.claim(ctx, tx, s, limit)
	if err != nil {
		return nil, fmt.Errorf("claim jobs of %s: %w", s.Key(), err)
	}
	return jobs, nil
}

func check(s fence.Stamp, limit int) error {
	if limit < 1 || limit > MaxLimit {
		return fmt.Errorf("limit is %d, want 1 to %d", limit, MaxLimit)
	}
	return s.Validate()
}

func (q *Queue[K]) claim(ctx context.Context, tx *sql.Tx, s fence.Stamp, limit int) ([]Job[K], error) {
	if err := q.verify(ctx, tx); err != nil {
		return nil, err
	}
	token := int64(s.Token)
	jobs, err := q.read(ctx, tx, q.s.takeOver, q.s.skip, limit, q.of(s, token))
	if err != nil {
		return nil, fmt.Errorf("look for jobs to take over: %w", err)
	}
	if left := limit - len(jobs); left > 0 {
		open, err := q.read(ctx, tx, q.s.open, q.s.skip, left, q.of(s, token, token, s.Owner))
		if err != nil {
			return nil, fmt.Errorf("look for open jobs: %w", err)
		}
		jobs = append(jobs, open...)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	args := []any{token, s.Owner}
	for i := range jobs {
		jobs[i].Attempts++
		args = append(args, jobs[i].ID)
	}
	// The rule once more: what was read may have been read from a snapshot.
	args = append(args, token, token, token, s.Owner)
	marks := strings.Repeat(", ?", len(jobs))[2:]
	res, err := tx.ExecContext(ctx, q.s.bind(q.s.claimHead+marks+q.s.claimTail), args...)
	if err != nil {
		return nil, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return nil, err
	}
	if n != int64(len(jobs)) {
		return nil, fmt.Errorf("%d of %d rows could be claimed, the others have changed: begin again", n, len(jobs))
	}
	return jobs, nil
}

// Held returns up to limit jobs that are claimed under the stamp and not ended
// yet: after a Claim whose outcome is unknown.
func (q *Queue[K]) Held(ctx context.Context, s fence.Stamp, limit int) ([]Job[K], error) {
	if err := check(s, limit); err != nil {
		return nil, err
	}
	if err := q.verify(ctx, q.db); err != nil {
		return nil, err
	}
	jobs, err := q.read(ctx, q.db, q.s.held, "", limit, q.of(s, int64(s.Token), s.Owner))
	if err != nil {
		return nil, fmt.Errorf("look for jobs of %s: %w", s, err)
	}
	return jobs, nil
}

// of are the parameters that begin every read: the partition, then more.
func (q *Queue[K]) of(s fence.Stamp, more ...any) []any {
	args := []any{int64(s.Partition)}
	if q.table.Keyspace != "" {
		args = []any{s.Keyspace, int64(s.Partition)}
	}
	return append(args, more...)
}

func (q *Queue[K]) read(ctx context.Context, from Querier, query, lock string, limit int, args []any) ([]Job[K], error) {
	rows, err := from.QueryContext(ctx, q.s.bind(query+"?"+lock), append(args, limit)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var jobs []Job[K]
	for rows.Next() {
		var j Job[K]
		if err := rows.Scan(&j.ID, &j.Attempts, &j.Payload); err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, rows.Err()
}

// verify looks at the columns once.
func (q *Queue[K]) verify(ctx context.Context, from Querier) error {
	if q.verified.Load() {
		return nil
	}
	schema, name, ok := strings.Cut(q.table.Name, ".")
	if !ok {
		schema, name = "", q.table.Name
	}
	t := q.table
	for _, column := range []string{t.ID, t.Partition, t.State, t.Token, t.Owner, t.Attempts, t.Order, t.Keyspace, t.Payload} {
		if column == "" {
			continue
		}
		var declared string
		err := from.QueryRowContext(ctx, q.s.columnType, schema, name, column).Scan(&declared)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: %q of table %s", ErrColumn, column, t.Name)
		case err != nil:
			return fmt.Errorf("look up column %q of table %s: %w", column, t.Name, err)
		case column == t.Token && !q.s.bigint(declared):
			return fmt.Errorf("%w: %q of table %s is %q", ErrTokenType, column, t.Name, declared)
		}
	}
	q.verified.Store(true)
	return nil
}
