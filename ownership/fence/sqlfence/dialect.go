package sqlfence

import (
	"database/sql"
	"embed"
	"fmt"
	"net/url"
)

// Dialect is the SQL that a database speaks.
type Dialect uint8

// The dialects. This release has been tested against SQLite 3.5x (modernc.org/sqlite),
// PostgreSQL 15 (pgx, also behind PgBouncer 1.18) and MariaDB 10.11
// (go-sql-driver/mysql). The statements of MySQL use nothing that MySQL 8 does
// not have, but they have been run on MariaDB only: no MySQL was at hand.
const (
	SQLite     Dialect = 1 // 3.35 or later
	PostgreSQL Dialect = 2 // 9.6 or later
	MariaDB    Dialect = 3 // 10.5 or later
	MySQL      Dialect = 4 // 8.0 or later
)

// String is the name in lower case.
func (d Dialect) String() string {
	switch d {
	case SQLite:
		return "sqlite"
	case PostgreSQL:
		return "postgresql"
	case MariaDB:
		return "mariadb"
	case MySQL:
		return "mysql"
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// Schemas has the statement that makes the table, one plain file per dialect,
// for those who run migrations with their own tool: sql/sqlite.sql and so on.
// Beside them, in sql/sqlite-write.sql and so on, are the statements that other
// languages guard their writes with; sql/README.md explains them.
//
//go:embed sql/*.sql
var Schemas embed.FS

// Schema returns the statement that makes the table. It does nothing when the
// table exists.
func (d Dialect) Schema() (string, error) {
	b, err := Schemas.ReadFile("sql/" + d.String() + ".sql")
	if err != nil {
		return "", fmt.Errorf("read schema of %s: %w", d, err)
	}
	return string(b), nil
}

// The rule of fence.Check in SQL: higher, or equal with the same owner.
const onConflict = ` ON CONFLICT (keyspace, partition_id) DO UPDATE SET
  token = excluded.token,
  owner = excluded.owner,
  claimed_at = CASE WHEN excluded.token > leasehold_fence.token THEN excluded.claimed_at ELSE leasehold_fence.claimed_at END
WHERE excluded.token > leasehold_fence.token
   OR (excluded.token = leasehold_fence.token AND excluded.owner = leasehold_fence.owner)`

// The same for MySQL, which has no WHERE there: a row that may not be raised is
// set to what it is. The columns are assigned from left to right, so token is
// the last.
const onDuplicate = ` ON DUPLICATE KEY UPDATE
  claimed_at = IF(VALUES(token) > token, VALUES(claimed_at), claimed_at),
  owner = IF(VALUES(token) > token, VALUES(owner), owner),
  token = GREATEST(token, VALUES(token))`

// isolation is that of the guard's own transactions; those of the caller may
// have any.
func (d Dialect) isolation() sql.IsolationLevel {
	if d == SQLite {
		return sql.LevelDefault // there is only one
	}
	return sql.LevelReadCommitted
}

// chunk is how many partitions one statement claims. PostgreSQL takes them all
// in one parameter; for the others 500 rows are 2,000 parameters, well below
// what any of them allows.
func (d Dialect) chunk() int {
	if d == PostgreSQL {
		return 1 << 30
	}
	return 500
}

// SQLiteDSN is a data source name for the driver modernc.org/sqlite that suits
// a guard: transactions take the write lock when they begin and wait for it up
// to ten seconds instead of failing, readers and the writer do not block each
// other, and a commit survives a power loss.
func SQLiteDSN(file string) string {
	return (&url.URL{Scheme: "file", Opaque: url.PathEscape(file), RawQuery: url.Values{
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)"},
	}.Encode()}).String()
}
