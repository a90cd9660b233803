package main

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/examples/internal/exampletest"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

var postgres = dbtest.SharedPostgreSQL()

func TestMain(m *testing.M) { exampletest.Main(m, postgres.Stop) }

// database makes a database of the test's own and returns its URL.
func database(t *testing.T) string {
	t.Helper()
	i := postgres.Get(t)
	name := strings.ToLower(strings.NewReplacer("/", "_").Replace(t.Name()))
	admin, err := sql.Open("pgx", i.PostgreSQLDSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.ExecContext(t.Context(), `CREATE DATABASE `+name); err != nil {
		t.Fatal(err)
	}
	return i.PostgreSQLDSN(name)
}

func opened(t *testing.T, dsn string) *store {
	t.Helper()
	s, err := open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.db.Close() })
	return s
}
