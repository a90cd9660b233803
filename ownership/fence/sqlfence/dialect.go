package sqlfence

import (
	"database/sql"
	"embed"
	"fmt"
	"net/url"
	"strings"
)

// Dialect is the SQL that a database speaks.
type Dialect uint8

// The dialects. This release has been tested against SQLite; the statements
// of the others are written, and wait for their tests.
const (
	SQLite     Dialect = 1 // 3.35 or later
	PostgreSQL Dialect = 2 // 9.5 or later
	MariaDB    Dialect = 3 // 10.5 or later; not MySQL, which has no RETURNING
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
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// Schemas has the statement that makes the table, one plain file per dialect,
// for those who run migrations with their own tool: sql/sqlite.sql and so on.
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

// statements are all that the dialects differ in.
type statements struct {
	now string // the database's clock, UTC
	// conflict follows the rows of an INSERT. It raises a row that the rule of
	// fence.Check allows to be raised and leaves all others as they are.
	conflict string
	// numbered is true for $1, $2 and false for ?.
	numbered bool
	// tokenType gives the declared type of the token column, no row when the
	// table is missing.
	tokenType string
	integer   func(declared string) bool
	// odd gives the number of rows whose token is no integer in spite of its
	// column; empty where that cannot be.
	odd       string
	isolation sql.IsolationLevel
}

// The rule of fence.Check in SQL: higher, or equal with the same owner.
const onConflict = ` ON CONFLICT (keyspace, partition_id) DO UPDATE SET
  token = excluded.token,
  owner = excluded.owner,
  claimed_at = CASE WHEN excluded.token > leasehold_fence.token THEN excluded.claimed_at ELSE leasehold_fence.claimed_at END
WHERE excluded.token > leasehold_fence.token
   OR (excluded.token = leasehold_fence.token AND excluded.owner = leasehold_fence.owner)`

func (d Dialect) statements() (statements, error) {
	bigint := func(declared string) bool { return strings.EqualFold(declared, "bigint") }
	switch d {
	case SQLite:
		return statements{
			now:       `strftime('%Y-%m-%dT%H:%M:%fZ', 'now')`,
			conflict:  onConflict,
			tokenType: `SELECT type FROM pragma_table_info('leasehold_fence') WHERE name = 'token'`,
			// What contains INT stores numbers as integers, also where they
			// came as text: https://www.sqlite.org/datatype3.html §3.1.
			integer: func(declared string) bool { return strings.Contains(strings.ToUpper(declared), "INT") },
			odd:     `SELECT count(*) FROM leasehold_fence WHERE typeof(token) <> 'integer'`,
		}, nil
	case PostgreSQL:
		// A row whose WHERE is false is locked all the same.
		return statements{
			now:       `clock_timestamp()`,
			conflict:  onConflict,
			numbered:  true,
			tokenType: `SELECT data_type FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = 'leasehold_fence' AND column_name = 'token'`,
			integer:   bigint,
			isolation: sql.LevelReadCommitted,
		}, nil
	case MariaDB:
		// There is no WHERE here: a row that may not be raised is set to what
		// it is, and comes back with its own token. The columns are assigned
		// from left to right, so token is the last.
		return statements{
			now: `UTC_TIMESTAMP(3)`,
			conflict: ` ON DUPLICATE KEY UPDATE
  claimed_at = IF(VALUES(token) > token, VALUES(claimed_at), claimed_at),
  owner = IF(VALUES(token) > token, VALUES(owner), owner),
  token = GREATEST(token, VALUES(token))`,
			tokenType: `SELECT data_type FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'leasehold_fence' AND column_name = 'token'`,
			integer:   bigint,
			isolation: sql.LevelReadCommitted,
		}, nil
	}
	return statements{}, fmt.Errorf("unknown %s: want SQLite, PostgreSQL or MariaDB", d)
}

// upsert is the one writing statement: n rows of one keyspace.
func (s statements) upsert(n int) string {
	var b strings.Builder
	b.WriteString(`INSERT INTO leasehold_fence (keyspace, partition_id, token, owner, claimed_at) VALUES `)
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("(")
		s.marks(&b, 4*i, 4)
		b.WriteString(", " + s.now + ")")
	}
	b.WriteString(s.conflict)
	b.WriteString("\nRETURNING partition_id, token, owner")
	return b.String()
}

// lookup reads n partitions of one keyspace.
func (s statements) lookup(n int) string {
	var b strings.Builder
	b.WriteString(`SELECT partition_id, token, owner FROM leasehold_fence WHERE keyspace = `)
	s.marks(&b, 0, 1)
	b.WriteString(` AND partition_id IN (`)
	s.marks(&b, 1, n)
	b.WriteString(`)`)
	return b.String()
}

func (s statements) marks(b *strings.Builder, from, n int) {
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		if s.numbered {
			fmt.Fprintf(b, "$%d", from+i+1)
		} else {
			b.WriteByte('?')
		}
	}
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
