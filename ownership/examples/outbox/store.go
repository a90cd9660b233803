package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

//go:embed schema.sql
var outboxSchema string

//go:embed receiver.sql
var receiverSchema string

// guarded is a database whose writes are checked against the fence, or are not,
// to show what happens then.
type guarded struct {
	db    *sql.DB
	fence *sqlfence.Fence // nil: --no-fence
}

// open connects to PostgreSQL.
func open(dsn string, noFence bool) (*guarded, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, errors.New("--db is not a PostgreSQL URL") // the driver's error may have the password in it
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	g := &guarded{db: db}
	if !noFence {
		g.fence = sqlfence.New(db, sqlfence.PostgreSQL)
	}
	return g, nil
}

// create makes the tables that are missing. CREATE IF NOT EXISTS fails when two
// do it at once, so they take turns.
func create(ctx context.Context, db *sql.DB, schema string) error {
	tables := "SELECT pg_advisory_xact_lock(5743);" + schema
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	return sqlfence.New(db, sqlfence.PostgreSQL).Migrate(ctx)
}

// do runs fn in a transaction that commits only if the stamp is not stale.
func (g *guarded) do(ctx context.Context, s fence.Stamp, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if g.fence == nil {
		return transaction(ctx, g.db, fn)
	}
	return g.fence.Do(ctx, s, fn)
}

func transaction(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing to undo after Commit, and before it the first error counts
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// migrate makes the outbox with its partitions. Their number is fixed: it is
// that of the keyspace.
func migrate(ctx context.Context, db *sql.DB, partitions int) error {
	if err := create(ctx, db, outboxSchema); err != nil {
		return err
	}
	for _, table := range []string{"outbox_partition", "outbox_progress"} {
		if _, err := db.ExecContext(ctx, `INSERT INTO `+table+` (partition_id)
			SELECT p FROM generate_series(0, $1::int - 1) AS p WHERE NOT EXISTS (SELECT FROM `+table+`)`, partitions); err != nil {
			return fmt.Errorf("fill %s: %w", table, err)
		}
	}
	var n int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM outbox_partition`).Scan(&n); err != nil {
		return fmt.Errorf("count partitions: %w", err)
	}
	if n != partitions {
		return fmt.Errorf("--partitions %d: the outbox has %d, and that cannot change", partitions, n)
	}
	return nil
}
