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
var schema string

// store is the database behind the actors.
type store struct {
	db    *sql.DB
	fence *sqlfence.Fence
}

// open connects to PostgreSQL.
func open(dsn string) (*store, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, errors.New("--db is not a PostgreSQL URL") // the driver's error may have the password in it
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	return &store{db: db, fence: sqlfence.New(db, sqlfence.PostgreSQL)}, nil
}

// create makes the tables that are missing. CREATE IF NOT EXISTS fails when two
// do it at once, so they take turns.
func (s *store) create(ctx context.Context) error {
	tables := "SELECT pg_advisory_xact_lock(5745);" + schema
	if _, err := s.db.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	return s.fence.Migrate(ctx)
}

// load reads the value of a tenant, which is 0 at first. A write of this owner
// whose outcome was lost may still be under way: load waits for it, by making
// or locking the row.
func (s *store) load(ctx context.Context, stamp fence.Stamp, tenant string) (value int64, err error) {
	err = s.fence.Do(ctx, stamp, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO tenant (name, value) VALUES ($1, 0) ON CONFLICT DO NOTHING`, tenant); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT value FROM tenant WHERE name = $1 FOR UPDATE`, tenant).Scan(&value)
	})
	if err != nil {
		return 0, fmt.Errorf("load tenant %q: %w", tenant, err)
	}
	return value, nil
}

// save writes a tenant's new value with the request that made it, in one
// transaction under the guard. For a request that was saved before, it changes
// nothing and returns what that one was answered with.
func (s *store) save(ctx context.Context, stamp fence.Stamp, tenant, request string, value int64) (answer int64, replayed bool, err error) {
	answer = value
	err = s.fence.Do(ctx, stamp, func(ctx context.Context, tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `INSERT INTO tenant_request (tenant, request_id, value) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			tenant, request, value)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return err
		}
		if n == 0 {
			replayed = true
			return tx.QueryRowContext(ctx, `SELECT value FROM tenant_request WHERE tenant = $1 AND request_id = $2`, tenant, request).Scan(&answer)
		}
		_, err = tx.ExecContext(ctx, `UPDATE tenant SET value = $2 WHERE name = $1`, tenant, value)
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("save tenant %q: %w", tenant, err)
	}
	return answer, replayed, nil
}
