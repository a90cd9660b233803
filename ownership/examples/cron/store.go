package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ring/keyrange"
)

//go:embed schema.sql
var schema string

// store is the database with the jobs and their ticks.
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
func (s *store) create(ctx context.Context, tables string) error {
	tables = "SELECT pg_advisory_xact_lock(5744);" + tables
	if _, err := s.db.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	return s.fence.Migrate(ctx)
}

// job is a row of cron_job.
type job struct {
	name, schedule, zone, target string
	policy                       policy
	next                         *time.Time // nil: not looked at since it was added
}

// add stores a job, or changes the one of that name. Its ticks count from now.
func (s *store) add(ctx context.Context, j job) error {
	if j.name == "" || len(j.name) > 100 {
		return fmt.Errorf("name %.40q: want 1 to 100 bytes", j.name)
	}
	if _, err := parse(j.schedule, j.zone); err != nil {
		return fmt.Errorf("job %q: %w", j.name, err)
	}
	if err := j.policy.validate(); err != nil {
		return fmt.Errorf("job %q: %w", j.name, err)
	}
	_, err := s.db.ExecContext(ctx, `
		INSERT INTO cron_job (name, hash, schedule, zone, missed, max_missed, target) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule, zone = excluded.zone, missed = excluded.missed,
		  max_missed = excluded.max_missed, target = excluded.target, next_tick = NULL`,
		j.name, signed(keyrange.Hash([]byte(j.name))), j.schedule, j.zone, j.policy.missed, j.policy.max, j.target)
	if err != nil {
		return fmt.Errorf("add job %q: %w", j.name, err)
	}
	return nil
}

// signed moves a hash into SQL's BIGINT and keeps the order, so that the range
// of a partition stays a range. Jobs need not know how many partitions there are.
func signed(hash uint64) int64 { return int64(hash ^ 1<<63) }
