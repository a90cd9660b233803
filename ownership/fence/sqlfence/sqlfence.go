package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// chunk is how many partitions one statement claims: 2,000 parameters, well
// below what any of the databases allows.
const chunk = 500

// Errors about the table. The guard accepts nothing until they are mended.
var (
	// ErrNoTable: call Migrate, or run the file of sql/ with your own tool.
	ErrNoTable = errors.New("table leasehold_fence is missing")
	// ErrTokenType: the token column is no integer, so that the database would
	// compare tokens as text: "9" above "10".
	ErrTokenType = errors.New("column token of leasehold_fence is not an integer")
)

// Fence is a guard over one database. It is safe for concurrent use and holds
// no connection between calls.
type Fence struct {
	db       *sql.DB
	dialect  Dialect
	counter  fence.Counter
	verified atomic.Bool // the table has been looked at
}

var _ fence.Guard = (*Fence)(nil)

// Option changes a Fence.
type Option func(*Fence)

// WithCounter tells c of every decision, for metrics and alerts.
func WithCounter(c fence.Counter) Option { return func(f *Fence) { f.counter = c } }

// New makes a guard over the table leasehold_fence of db. It does not touch
// the database; Migrate makes the table.
func New(db *sql.DB, dialect Dialect, opts ...Option) *Fence {
	f := &Fence{db: db, dialect: dialect}
	for _, o := range opts {
		o(f)
	}
	return f
}

// Migrate makes the table if it is missing, and refuses one that would compare
// tokens as text (ErrTokenType). It may be called at every start, by several
// processes at once.
func (f *Fence) Migrate(ctx context.Context) error {
	schema, err := f.dialect.Schema()
	if err != nil {
		return err
	}
	if _, err := f.db.ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("create table leasehold_fence: %w", err)
	}
	f.verified.Store(false)
	return f.verify(ctx, f.db)
}

// querier is a *sql.DB or the caller's *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// verify looks at the table once. Guard and Claim do it after their writing
// statement and before they report success: in SQLite a transaction that reads
// first might not get to write.
func (f *Fence) verify(ctx context.Context, q querier) error {
	if f.verified.Load() {
		return nil
	}
	s, err := f.dialect.statements()
	if err != nil {
		return err
	}
	var declared string
	switch err := q.QueryRowContext(ctx, s.tokenType).Scan(&declared); {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNoTable
	case err != nil:
		return fmt.Errorf("look up type of token: %w", err)
	case !s.integer(declared):
		return fmt.Errorf("%w but %q: make it BIGINT", ErrTokenType, declared)
	}
	if s.odd != "" {
		var odd int
		if err := q.QueryRowContext(ctx, s.odd).Scan(&odd); err != nil {
			return fmt.Errorf("look for tokens that are no integers: %w", err)
		}
		if odd > 0 {
			return fmt.Errorf("%w in %d rows: correct them", ErrTokenType, odd)
		}
	}
	f.verified.Store(true)
	return nil
}

// Guard compares the stamp with what the table has seen and raises it, in one
// statement inside the caller's transaction, and keeps the row locked until
// that ends. Call it first in the transaction that does the write. A refusal
// is a *fence.StaleError: roll back and stop working on that partition. After
// any other error nothing has been decided; roll back as well.
func (f *Fence) Guard(ctx context.Context, tx *sql.Tx, s fence.Stamp) error {
	if err := s.Validate(); err != nil {
		return err
	}
	marks, err := f.raise(ctx, tx, []fence.Stamp{s})
	if err == nil {
		err = f.verify(ctx, tx)
	}
	if err != nil {
		return fmt.Errorf("guard %s/%d: %w", s.Keyspace, s.Partition, err)
	}
	err = fence.Check(marks[s.Partition], s)
	fence.Count(f.counter, 1, err)
	return err
}

// Claim implements fence.Guard. All stamps are claimed in one transaction, in
// sorted order, with one statement for every 500 of a keyspace. When it
// returns a *fence.ClaimError, all stamps that are not in it are claimed and
// committed; after any other error none is.
func (f *Fence) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if err := fence.Validate(stamps); err != nil {
		return err
	}
	if len(stamps) == 0 {
		return nil
	}
	refused, err := f.claim(ctx, fence.Sorted(stamps))
	if err != nil {
		return fmt.Errorf("claim %d partitions: %w", len(stamps), err)
	}
	if len(refused) > 0 {
		err = &fence.ClaimError{Refused: refused}
	}
	fence.Count(f.counter, len(stamps), err)
	return err
}

func (f *Fence) claim(ctx context.Context, sorted []fence.Stamp) ([]*fence.StaleError, error) {
	d, err := f.dialect.statements()
	if err != nil {
		return nil, err
	}
	tx, err := f.db.BeginTx(ctx, &sql.TxOptions{Isolation: d.isolation})
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing to undo after Commit, and before it the first error counts
	var refused []*fence.StaleError
	for len(sorted) > 0 {
		n := 0
		var unique []fence.Stamp // the highest token of each partition
		for ; n < len(sorted) && sorted[n].Keyspace == sorted[0].Keyspace; n++ {
			if n == 0 || sorted[n].Partition != sorted[n-1].Partition {
				if len(unique) == chunk {
					break
				}
				unique = append(unique, sorted[n])
			}
		}
		marks, err := f.raise(ctx, tx, unique)
		if err != nil {
			return nil, err
		}
		for _, s := range sorted[:n] {
			var stale *fence.StaleError
			if errors.As(fence.Check(marks[s.Partition], s), &stale) {
				refused = append(refused, stale)
			}
		}
		sorted = sorted[n:]
	}
	if err := f.verify(ctx, tx); err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return refused, nil
}

// raise writes the stamps (of one keyspace, one per partition) where the rule
// allows it, and returns what the table holds for each of them afterwards. A
// stamp has been accepted exactly if that is the stamp itself: a row that the
// statement did not touch is looked up and never taken for success.
func (f *Fence) raise(ctx context.Context, q querier, stamps []fence.Stamp) (map[uint32]fence.Mark, error) {
	d, err := f.dialect.statements()
	if err != nil {
		return nil, err
	}
	args := make([]any, 0, 4*len(stamps))
	for _, s := range stamps {
		args = append(args, s.Keyspace, int64(s.Partition), int64(s.Token), s.Owner)
	}
	marks := make(map[uint32]fence.Mark, len(stamps))
	if err := scan(ctx, q, marks, d.upsert(len(stamps)), args); err != nil {
		return nil, fmt.Errorf("raise tokens: %w", err)
	}
	args = []any{stamps[0].Keyspace}
	for _, s := range stamps {
		if _, ok := marks[s.Partition]; !ok {
			args = append(args, int64(s.Partition))
		}
	}
	if len(args) > 1 {
		if err := scan(ctx, q, marks, d.lookup(len(args)-1), args); err != nil {
			return nil, fmt.Errorf("look up tokens: %w", err)
		}
	}
	for _, s := range stamps {
		// A row that would allow the stamp and does not have it was neither
		// raised nor a reason for refusal: the table is not what it should be.
		m, ok := marks[s.Partition]
		if accepted := (fence.Mark{Token: s.Token, Owner: s.Owner}); !ok || m != accepted && fence.Check(m, s) == nil {
			return nil, fmt.Errorf("token of %s was not stored and not refused: the table holds %d of %q", s, m.Token, m.Owner)
		}
	}
	return marks, nil
}

func scan(ctx context.Context, q querier, marks map[uint32]fence.Mark, query string, args []any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var partition, token int64
		var owner string
		if err := rows.Scan(&partition, &token, &owner); err != nil {
			return err
		}
		marks[uint32(partition)] = fence.Mark{Token: fence.Token(token), Owner: owner}
	}
	return rows.Err()
}

// Seen returns what the table has accepted under a key, the zero Mark if
// nothing. It is for people and tests; a write must use Guard.
func (f *Fence) Seen(ctx context.Context, k fence.Key) (fence.Mark, error) {
	d, err := f.dialect.statements()
	if err != nil {
		return fence.Mark{}, err
	}
	marks := map[uint32]fence.Mark{}
	if err := scan(ctx, f.db, marks, d.lookup(1), []any{k.Keyspace, int64(k.Partition)}); err != nil {
		return fence.Mark{}, fmt.Errorf("look up token of %s: %w", k, err)
	}
	return marks[k.Partition], nil
}
