package sqlonce

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// MinAge is the least age that Prune takes: a guard against a number without
// its unit. A useful age is days.
const MinAge = time.Minute

// Migrate makes the table if it is missing. It may be called at every start, by
// several processes at once.
func (o *Once) Migrate(ctx context.Context) error {
	s, err := dialect(o.dialect)
	if err != nil {
		return err
	}
	script, err := Schemas.ReadFile(s.schema)
	if err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	for statement := range strings.SplitSeq(string(script), ";\n") {
		if statement == "" {
			continue
		}
		// PostgreSQL's IF NOT EXISTS does not wait for another process that
		// makes the same just now, and fails; the second time it sees it.
		if _, err = o.db.ExecContext(ctx, statement); err != nil {
			_, err = o.db.ExecContext(ctx, statement)
		}
		if err != nil {
			return fmt.Errorf("create table leasehold_once: %w", err)
		}
	}
	return nil
}

// Prune deletes the rows that are older than age by the database's clock, and
// returns how many. It does so in batches of 1,000, each a transaction of its
// own, so that it holds up nobody; what it has deleted stays deleted when a
// later batch fails.
//
// A repeat of a request whose row is gone is carried out again. So age must be
// above the longest time between the first try of a request and its last, with
// every queue and every person on the way: days rather than hours. MinAge is
// the least.
func (o *Once) Prune(ctx context.Context, age time.Duration) (deleted int64, err error) {
	s, err := dialect(o.dialect)
	if err != nil {
		return 0, err
	}
	if age < MinAge {
		return 0, fmt.Errorf("%w: %v, want at least %v", ErrAge, age, MinAge)
	}
	for {
		n, err := o.pruneBatch(ctx, s, age)
		if err != nil {
			return deleted, fmt.Errorf("prune leasehold_once: %w", err)
		}
		deleted += n
		if n < pruneBatch {
			return deleted, nil
		}
	}
}

func (o *Once) pruneBatch(ctx context.Context, s statements, age time.Duration) (int64, error) {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.isolation})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing to undo after Commit, and before it the first error counts
	// Rounded up: never too young.
	res, err := tx.ExecContext(ctx, s.prune, int64((age+time.Second-1)/time.Second))
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, err
	}
	return n, tx.Commit()
}
