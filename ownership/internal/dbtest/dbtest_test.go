package dbtest_test

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

func one(t *testing.T, driver, dsn string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRow("SELECT 1").Scan(&n); err != nil || n != 1 {
		t.Fatalf("%s: %d, %v", dsn, n, err)
	}
}

func TestPostgreSQLAndPgBouncer(t *testing.T) {
	pg := dbtest.StartPostgreSQL(t)
	one(t, "pgx", pg.PostgreSQLDSN("postgres"))
	b := dbtest.StartPgBouncer(t, pg, 2)
	one(t, "pgx", b.PostgreSQLDSN("postgres")+"&default_query_exec_mode=exec")
}

func TestMariaDB(t *testing.T) {
	one(t, "mysql", dbtest.StartMariaDB(t).MySQLDSN("mysql"))
}

func TestRedis(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: dbtest.StartRedis(t).Addr()})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}
