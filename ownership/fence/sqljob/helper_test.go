package sqljob_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqljob"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

// No test here is about power loss, so the servers need not wait for the disk.
var (
	postgres  = dbtest.SharedPostgreSQL("fsync=off")
	maria     = dbtest.SharedMariaDB("--innodb-flush-log-at-trx-commit=2")
	databases atomic.Int64
)

func TestMain(m *testing.M) {
	code := m.Run()
	postgres.Stop()
	maria.Stop()
	os.Exit(code)
}

// database is an empty one for one test.
type database struct {
	*sql.DB
	dialect sqlfence.Dialect
	driver  string
	dsn     string
}

var dialects = []sqlfence.Dialect{sqlfence.SQLite, sqlfence.PostgreSQL, sqlfence.MariaDB}

// each runs a test on every database, with the ready table and one of effects.
func each(t *testing.T, test func(*testing.T, database)) {
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) { test(t, fresh(t, d)) })
	}
}

func fresh(t testing.TB, d sqlfence.Dialect) database {
	t.Helper()
	db := empty(t, d)
	if err := sqljob.Migrate(t.Context(), db.DB, d); err != nil {
		t.Fatal(err)
	}
	db.exec(t, `CREATE TABLE effects (job BIGINT NOT NULL, token BIGINT NOT NULL)`)
	db.exec(t, `CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)`)
	db.exec(t, `INSERT INTO accounts VALUES (1, 0), (2, 0)`)
	return db
}

func empty(t testing.TB, d sqlfence.Dialect) database {
	t.Helper()
	name := fmt.Sprintf("t%d", databases.Add(1))
	db := database{dialect: d}
	switch d {
	case sqlfence.SQLite:
		dsn := sqlfence.SQLiteDSN(filepath.Join(t.TempDir(), "jobs.db"))
		db.driver, db.dsn = "sqlite", strings.Replace(dsn, "synchronous%28FULL%29", "synchronous%28OFF%29", 1)
	case sqlfence.PostgreSQL:
		i := postgres.Get(t)
		db.driver, db.dsn = "pgx", i.PostgreSQLDSN("postgres")+"&search_path="+name
		create(t, db.driver, i.PostgreSQLDSN("postgres"), "CREATE SCHEMA "+name)
	case sqlfence.MariaDB:
		i := maria.Get(t)
		db.driver, db.dsn = "mysql", i.MySQLDSN(name)
		create(t, db.driver, i.MySQLDSN("mysql"), "CREATE DATABASE "+name)
	}
	db.DB = db.open(t, db.dsn, 30)
	return db
}

func create(t testing.TB, driver, dsn, statement string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

// open makes another handle, as another process would.
func (d database) open(t testing.TB, dsn string, pool int) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(pool)
	db.SetMaxIdleConns(pool)
	t.Cleanup(func() { db.Close() })
	return db
}

func (d database) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := d.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (d database) count(t testing.TB, from string) (n int) {
	t.Helper()
	if err := d.QueryRow("SELECT count(*) FROM " + from).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// queue is over the ready table.
func (d database) queue(t testing.TB) *sqljob.Queue[int64] {
	t.Helper()
	return newQueue(t, d.DB, d.dialect, sqljob.Table{}, nil)
}

func newQueue(t testing.TB, db *sql.DB, d sqlfence.Dialect, table sqljob.Table, c fence.Counter) *sqljob.Queue[int64] {
	t.Helper()
	q, err := sqljob.New[int64](db, d, table, c)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// add inserts open jobs with the given ids into partition 1 of "mails".
func (d database) add(t testing.TB, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		d.exec(t, fmt.Sprintf("INSERT INTO leasehold_job (id, keyspace, partition_id, payload) VALUES (%d, 'mails', 1, 'to %d')", id, id))
	}
}

func at(token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "mails", Partition: 1, Token: token, Owner: owner}
}

func claim(t testing.TB, q *sqljob.Queue[int64], s fence.Stamp, limit int) []int64 {
	t.Helper()
	jobs, err := q.Claim(t.Context(), s, limit)
	if err != nil {
		t.Fatal(err)
	}
	return ids(jobs)
}

func ids(jobs []sqljob.Job[int64]) []int64 {
	var ids []int64
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// work does a job: one row of effects, and Done.
func work(ctx context.Context, tx *sql.Tx, q *sqljob.Queue[int64], s fence.Stamp, id int64) error {
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects VALUES (%d, %d)", id, s.Token)); err != nil {
		return err
	}
	return q.Done(ctx, tx, s, id)
}

// run is work in a transaction of its own.
func run(ctx context.Context, db *sql.DB, q *sqljob.Queue[int64], s fence.Stamp, id int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := work(ctx, tx, q, s, id); err != nil {
		return err
	}
	return tx.Commit()
}
