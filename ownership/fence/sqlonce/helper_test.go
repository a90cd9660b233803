package sqlonce_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlonce"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

// No test here is about power loss, so the servers need not wait for the disk.
var (
	postgres  = dbtest.SharedPostgreSQL("fsync=off")
	maria     = dbtest.SharedMariaDB("--innodb-flush-log-at-trx-commit=2")
	databases atomic.Int64
)

func TestMain(m *testing.M) {
	if driver := os.Getenv(childEnv); driver != "" {
		if err := child(driver, os.Args[1], os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	postgres.Stop()
	maria.Stop()
	os.Exit(code)
}

// database is an empty one with the two tables, for one test.
type database struct {
	*sql.DB
	dialect sqlfence.Dialect
	driver  string
	dsn     string
	addr    string // of the server, empty for SQLite
}

var dialects = []sqlfence.Dialect{sqlfence.SQLite, sqlfence.PostgreSQL, sqlfence.MariaDB}

// each runs a test on every database.
func each(t *testing.T, test func(*testing.T, database)) {
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) { test(t, fresh(t, d)) })
	}
}

func fresh(t testing.TB, d sqlfence.Dialect) database {
	t.Helper()
	db := empty(t, d)
	if err := db.once().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.exec(t, `CREATE TABLE effects (what VARCHAR(255) NOT NULL)`)
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
		dsn := sqlfence.SQLiteDSN(filepath.Join(t.TempDir(), "once.db"))
		db.driver, db.dsn = "sqlite", strings.Replace(dsn, "synchronous%28FULL%29", "synchronous%28OFF%29", 1)
	case sqlfence.PostgreSQL:
		i := postgres.Get(t)
		db.driver, db.dsn, db.addr = "pgx", i.PostgreSQLDSN("postgres")+"&search_path="+name, i.Addr()
		create(t, db.driver, i.PostgreSQLDSN("postgres"), "CREATE SCHEMA "+name)
	case sqlfence.MariaDB:
		i := maria.Get(t)
		db.driver, db.dsn, db.addr = "mysql", i.MySQLDSN(name), i.Addr()
		create(t, db.driver, i.MySQLDSN("mysql"), "CREATE DATABASE "+name)
	}
	db.DB = db.open(t, db.dsn)
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
func (d database) open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(30)
	db.SetMaxIdleConns(30)
	t.Cleanup(func() { db.Close() })
	return db
}

func (d database) once(opts ...sqlonce.Option) *sqlonce.Once {
	return sqlonce.New(d.DB, d.dialect, opts...)
}

func (d database) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := d.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (d database) count(t testing.TB, table string) (n int) {
	t.Helper()
	if err := d.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// effect is a request's work: one row, and the answer.
func effect(answer string) sqlonce.Func {
	return func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('"+answer+"')")
		return []byte(answer), err
	}
}

func mustNotRun(t *testing.T) sqlonce.Func {
	return func(context.Context, *sql.Tx) ([]byte, error) {
		t.Error("the request was carried out again")
		return nil, nil
	}
}

// terminate ends the server's side of the transaction's connection.
func (d database) terminate(t *testing.T, tx *sql.Tx) {
	t.Helper()
	var id int64
	whoami, kill := "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%d)"
	if d.dialect == sqlfence.MariaDB {
		whoami, kill = "SELECT CONNECTION_ID()", "KILL %d"
	}
	if err := tx.QueryRow(whoami).Scan(&id); err != nil {
		t.Fatal(err)
	}
	d.exec(t, fmt.Sprintf(kill, id))
}

// proxy relays connections to a server. What the client sends goes through
// cut, which says what of it is still relayed and whether the line is cut
// before the answer comes back.
func proxy(t *testing.T, addr string, cut func([]byte) (relay, end bool)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go relay(client, addr, cut)
		}
	}()
	return l.Addr().String()
}

func relay(client net.Conn, addr string, cut func([]byte) (relay, end bool)) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	var deaf atomic.Bool // the answer is read and not passed on
	answered := make(chan struct{})
	go func() {
		defer client.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err != nil {
				return
			}
			if deaf.Load() {
				close(answered)
				return
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		pass, end := cut(b[:n])
		deaf.Store(end)
		if pass {
			if _, err := server.Write(b[:n]); err != nil {
				return
			}
		}
		if end {
			if pass {
				<-answered
			}
			return
		}
	}
}
