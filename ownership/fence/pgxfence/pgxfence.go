package pgxfence

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// Fence is a guard over one PostgreSQL database. It is safe for concurrent use
// and holds no connection between calls. Migrate, Claim, Seen, Prune and Forget
// are those of sqlfence.Fence.
type Fence struct {
	inner *sqlfence.Fence
	pool  *pgxpool.Pool
}

var _ fence.Guard = (*Fence)(nil)

// New makes a guard over the table leasehold_fence of the pool's database. It
// does not touch the database; Migrate makes the table. The options are those
// of package sqlfence.
func New(pool *pgxpool.Pool, opts ...sqlfence.Option) *Fence {
	return &Fence{sqlfence.Over(database{pool}, sqlfence.PostgreSQL, opts...), pool}
}

// Migrate makes the table if it is missing, see sqlfence.Fence.Migrate.
func (f *Fence) Migrate(ctx context.Context) error { return f.inner.Migrate(ctx) }

// Claim implements fence.Guard, see sqlfence.Fence.Claim.
func (f *Fence) Claim(ctx context.Context, stamps []fence.Stamp) error {
	return f.inner.Claim(ctx, stamps)
}

// Seen returns what the table has accepted under a key, for people and tests.
func (f *Fence) Seen(ctx context.Context, k fence.Key) (fence.Mark, error) {
	return f.inner.Seen(ctx, k)
}

// Prune removes old marks of named resources, see sqlfence.Fence.Prune.
func (f *Fence) Prune(ctx context.Context, below fence.Token) (int, error) {
	return f.inner.Prune(ctx, below)
}

// Forget removes the marks of a deleted keyspace, see sqlfence.Fence.Forget.
func (f *Fence) Forget(ctx context.Context, keyspace string) error {
	return f.inner.Forget(ctx, keyspace)
}

// Guard checks the stamp inside the caller's transaction, see
// sqlfence.Fence.Guard. A nil or finished transaction is
// sqlfence.ErrNoTransaction.
func (f *Fence) Guard(ctx context.Context, tx pgx.Tx, s fence.Stamp) error {
	if tx == nil {
		return fmt.Errorf("guard %s: %w, not nil", s.Key(), sqlfence.ErrNoTransaction)
	}
	return closed(f.inner.GuardOver(ctx, queryer{tx}, s))
}

// Do begins a transaction, calls Guard, hands it to write and commits, see
// sqlfence.Fence.Do.
func (f *Fence) Do(ctx context.Context, s fence.Stamp, write func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := f.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("guard %s: begin: %w", s.Key(), err)
	}
	defer tx.Rollback(ctx) //nolint:errcheck // nothing to undo after Commit, and before it the first error counts
	if err := f.Guard(ctx, tx, s); err != nil {
		return err
	}
	if err := write(ctx, tx); err != nil {
		return err
	}
	return sqlfence.CommitError(tx.Commit(ctx))
}

// Batch sends the statements of b behind the guard, all in one round trip and
// one transaction of its own: the guard costs no round trip, and neither do
// BEGIN and COMMIT. If the stamp is refused nothing of b has happened and the
// answer is a *fence.StaleError. b must not begin, end or leave a transaction;
// its callbacks are called as pgx.BatchResults.Close does, and only when the
// guard has let it through. An error of b's statements is returned as it is,
// after a rollback; when the connection was lost it is
// sqlfence.ErrOutcomeUnknown.
func (f *Fence) Batch(ctx context.Context, s fence.Stamp, b *pgx.Batch) error {
	err := f.batch(ctx, s, b)
	if !failedGuard(err) {
		if err == nil {
			f.inner.Decided(nil)
		}
		return err
	}
	// The row is not the stamp's own, or a statement of b divided by zero.
	seen, lookErr := f.inner.Seen(ctx, s.Key())
	if lookErr != nil {
		return lookErr
	}
	if (seen == fence.Mark{Token: s.Token, Owner: s.Owner}) {
		return err
	}
	if stale := fence.Check(seen, s); stale != nil {
		f.inner.Decided(stale)
		return stale
	}
	// Not claimed yet, which is no reason to refuse it.
	var refused *fence.StaleError
	if err := f.inner.Claim(ctx, []fence.Stamp{s}); errors.As(err, &refused) {
		return refused
	} else if err != nil {
		return err
	}
	return f.batch(ctx, s, b)
}

func (f *Fence) batch(ctx context.Context, s fence.Stamp, b *pgx.Batch) error {
	text, args, err := f.inner.InBatch(ctx, s)
	if err != nil {
		return err
	}
	all := &pgx.Batch{}
	all.Queue(text, args...)
	for _, q := range b.QueuedQueries {
		// Anew each time: pgx notes in a queued query what its statement is
		// called on the connection that it was sent over.
		all.Queue(q.SQL, q.Arguments...).Fn = q.Fn
	}
	if err := f.pool.SendBatch(ctx, all).Close(); err != nil {
		var answer *pgconn.PgError
		if errors.As(err, &answer) {
			return fmt.Errorf("write under guard of %s: %w", s.Key(), err)
		}
		return fmt.Errorf("write under guard of %s: %w: %w", s.Key(), sqlfence.ErrOutcomeUnknown, err)
	}
	return nil
}

func failedGuard(err error) bool {
	const divisionByZero = "22012"
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == divisionByZero
}

// closed gives pgx's error about a finished transaction its meaning here.
func closed(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("%w: %w", sqlfence.ErrNoTransaction, err)
	}
	return err
}

// handle is a pool or a transaction.
type handle interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
}

type queryer struct{ handle }

func (q queryer) Query(ctx context.Context, query string, args []any, each func(scan func(dest ...any) error) error) error {
	rows, err := q.handle.Query(ctx, query, args...)
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

func (q queryer) Exec(ctx context.Context, query string, args []any) (int64, error) {
	tag, err := q.handle.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

type database struct{ pool *pgxpool.Pool }

func (d database) Query(ctx context.Context, query string, args []any, each func(scan func(dest ...any) error) error) error {
	return queryer{d.pool}.Query(ctx, query, args, each)
}

func (d database) Exec(ctx context.Context, query string, args []any) (int64, error) {
	return queryer{d.pool}.Exec(ctx, query, args)
}

func (d database) InTx(ctx context.Context, do func(sqlfence.Queryer) error) error {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(ctx) //nolint:errcheck // as above
	if err := do(queryer{tx}); err != nil {
		return err
	}
	return sqlfence.CommitError(tx.Commit(ctx))
}
