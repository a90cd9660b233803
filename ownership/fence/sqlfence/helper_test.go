package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

// The servers of all tests. Power loss is not what they are about, so commits
// do not wait for the disk; the benchmark's do.
var (
	postgres = dbtest.SharedPostgreSQL("synchronous_commit=off")
	mariadb  = dbtest.SharedMariaDB("--innodb-flush-log-at-trx-commit=2")
	made     atomic.Int64 // databases, for their names
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		if err := child(role); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // connections are killed here
	code := m.Run()
	postgres.Stop()
	mariadb.Stop()
	if err := goleak.Find(goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener")); code == 0 && err != nil {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// A base is an empty database, or a schema or file that is as good as one.
type base struct {
	dialect     sqlfence.Dialect
	driver, dsn string
}

func newBase(t testing.TB, d sqlfence.Dialect) base {
	t.Helper()
	name := fmt.Sprint("t", made.Add(1))
	admin := func(driver, dsn, statement string) {
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
	switch d {
	case sqlfence.SQLite:
		return base{d, "sqlite", testDSN(filepath.Join(t.TempDir(), "ledger #1?.db"))} // a name that needs escaping
	case sqlfence.PostgreSQL:
		dsn := postgres.Get(t).PostgreSQLDSN("postgres")
		admin("pgx", dsn, "CREATE SCHEMA "+name)
		return base{d, "pgx", dsn + "&search_path=" + name}
	}
	i := mariadb.Get(t)
	admin("mysql", i.MySQLDSN("mysql"), "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
	return base{d, "mysql", i.MySQLDSN(name) + "?clientFoundRows=true"}
}

// with returns the base with parameters added to its data source name.
func (b base) with(params ...string) base {
	sep := "?"
	if strings.Contains(b.dsn, "?") {
		sep = "&"
	}
	for i := 0; i < len(params); i += 2 {
		b.dsn += sep + params[i] + "=" + url.PathEscape(params[i+1])
		sep = "&"
	}
	return b
}

// open makes another handle, as another process would.
func (b base) open(t testing.TB, pool int) *sql.DB {
	t.Helper()
	db, err := sql.Open(b.driver, b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(pool)
	db.SetMaxIdleConns(pool)
	t.Cleanup(func() { db.Close() })
	return db
}

// world is a guard and a table of writes beside it.
type world struct {
	base
	f  *sqlfence.Fence
	db *sql.DB
}

func newWorld(t testing.TB, d sqlfence.Dialect, pool int, opts ...sqlfence.Option) *world {
	t.Helper()
	return inBase(t, newBase(t, d), pool, opts...)
}

func inBase(t testing.TB, b base, pool int, opts ...sqlfence.Option) *world {
	t.Helper()
	db := b.open(t, pool)
	w := &world{b, sqlfence.New(db, b.dialect, opts...), db}
	if err := w.f.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := map[sqlfence.Dialect]string{sqlfence.SQLite: "INTEGER PRIMARY KEY", sqlfence.PostgreSQL: "BIGSERIAL PRIMARY KEY"}[b.dialect]
	if id == "" {
		id = "BIGINT AUTO_INCREMENT PRIMARY KEY"
	}
	w.exec(t, `CREATE TABLE writes (id `+id+`, partition_id BIGINT, token BIGINT, owner VARCHAR(255))`)
	return w
}

// other is the same world from another process.
func (w *world) other(t testing.TB, pool int, opts ...sqlfence.Option) *world {
	db := w.open(t, pool)
	return &world{w.base, sqlfence.New(db, w.dialect, opts...), db}
}

// sql turns the placeholders of a statement into the dialect's.
func (b base) sql(text string) string {
	if b.dialect != sqlfence.PostgreSQL {
		return text
	}
	for i := 1; strings.Contains(text, "?"); i++ {
		text = strings.Replace(text, "?", fmt.Sprint("$", i), 1)
	}
	return text
}

func (w *world) exec(t testing.TB, text string, args ...any) {
	t.Helper()
	if _, err := w.db.Exec(w.sql(text), args...); err != nil {
		t.Fatal(err)
	}
}

func (w *world) number(t testing.TB, text string, args ...any) (n int64) {
	t.Helper()
	if err := w.db.QueryRow(w.sql(text), args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (w *world) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// insert is the write that is guarded.
func (w *world) insert(ctx context.Context, tx *sql.Tx, s fence.Stamp) error {
	_, err := tx.ExecContext(ctx, w.sql(`INSERT INTO writes (partition_id, token, owner) VALUES (?, ?, ?)`), int64(s.Partition), int64(s.Token), s.Owner)
	return err
}

// write is a guarded write as a user would do it.
func (w *world) write(ctx context.Context, s fence.Stamp) error {
	return w.f.Do(ctx, s, func(ctx context.Context, tx *sql.Tx) error { return w.insert(ctx, tx, s) })
}

func (w *world) claim(t testing.TB, stamps ...fence.Stamp) {
	t.Helper()
	if err := w.f.Claim(t.Context(), stamps); err != nil {
		t.Fatal(err)
	}
}

func (w *world) seen(t testing.TB, k fence.Key) fence.Mark {
	t.Helper()
	m, err := w.f.Seen(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// regressions counts the writes that came after one with a higher token.
func (w *world) regressions(t testing.TB) (writes, bad int) {
	t.Helper()
	rows, err := w.db.Query(`SELECT partition_id, token FROM writes ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	highest := map[int64]int64{}
	for rows.Next() {
		var p, tok int64
		if err := rows.Scan(&p, &tok); err != nil {
			t.Fatal(err)
		}
		writes++
		if tok < highest[p] {
			bad++
		}
		highest[p] = max(highest[p], tok)
	}
	return writes, bad
}

var (
	dialects = []sqlfence.Dialect{sqlfence.SQLite, sqlfence.PostgreSQL, sqlfence.MariaDB, sqlfence.MySQL}
	servers  = dialects[1:3]
)

// each runs a test for every dialect.
func each(t *testing.T, test func(*testing.T, sqlfence.Dialect)) { eachOf(t, dialects, test) }

func eachOf(t *testing.T, ds []sqlfence.Dialect, test func(*testing.T, sqlfence.Dialect)) {
	t.Helper()
	for _, d := range ds {
		t.Run(d.String(), func(t *testing.T) { test(t, d) })
	}
}

func at(partition uint32, token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "orders", Partition: partition, Token: token, Owner: owner}
}

func orders(partition uint32) fence.Key { return fence.Key{Keyspace: "orders", Partition: partition} }

// eventually waits for something in a database or another process.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatal("not in time: " + what)
		case <-tick.C:
		}
	}
}

// testDSN is what users get, but for the waiting on the disk.
func testDSN(file string) string {
	return strings.Replace(sqlfence.SQLiteDSN(file), "synchronous%28FULL%29", "synchronous%28OFF%29", 1)
}
