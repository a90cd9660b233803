package sqljob

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// Errors about the table. Nothing is claimed or ended until they are mended.
var (
	// ErrTable: a name in a Table cannot be one.
	ErrTable = errors.New("invalid table of jobs")
	// ErrColumn: the table, or one of its columns, is missing.
	ErrColumn = errors.New("missing column of the table of jobs")
	// ErrTokenType: the token column is not BIGINT (SQLite: some INT), so that
	// tokens would be compared as text, "9" above "10", or not fit.
	ErrTokenType = errors.New("token column of the table of jobs is not BIGINT")
)

// Table names a table of jobs and its columns. The zero Table is the ready one,
// leasehold_job, that Migrate makes; each empty field has the name given here.
// Names are those of ASCII letters, digits and underscores, at most 63 bytes,
// not beginning with a digit. They are quoted, so PostgreSQL minds their case.
//
// A program's own table needs a column of each kind and an index over keyspace
// (if it has one), partition, state and order, in this order:
//
//	ALTER TABLE mails ADD COLUMN partition_id BIGINT NOT NULL DEFAULT 0;
//	ALTER TABLE mails ADD COLUMN state VARCHAR(8) NOT NULL DEFAULT 'open';
//	ALTER TABLE mails ADD COLUMN token BIGINT NOT NULL DEFAULT 0;
//	ALTER TABLE mails ADD COLUMN owner VARCHAR(255) NOT NULL DEFAULT '';
//	ALTER TABLE mails ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0;
//	CREATE INDEX mails_claim ON mails (partition_id, state, id);
//
// The partition of a row is computed by who inserts it, from the job's key, the
// way the keyspace does it (ring/keyrange).
type Table struct {
	Name string // "leasehold_job"; may be "schema.name"

	ID        string // "id": the primary key, one column
	Partition string // "partition_id"
	State     string // "state"
	Token     string // "token": BIGINT; NULL is the same as 0, claimed by nobody
	Owner     string // "owner"
	Attempts  string // "attempts": how often the row was claimed

	// Keyspace is the column with the name of the keyspace. Empty: "keyspace"
	// in the ready table; in another one, all rows are of one keyspace.
	Keyspace string
	// Payload is a column that Claim reads along. Empty: "payload" in the ready
	// table; in another one, none.
	Payload string
	// Order is the column by which jobs are claimed, lowest first. Empty: ID.
	Order string

	// The words of the state column, the same characters as in names. Empty:
	// "open", "claimed", "done" and "failed".
	Open, Claimed, Done, Failed string
}

const readyTable = "leasehold_job"

// filled returns the table with its defaults.
func (t Table) filled() Table {
	def := func(s *string, to string) {
		if *s == "" {
			*s = to
		}
	}
	if t.Name == "" || t.Name == readyTable {
		def(&t.Keyspace, "keyspace")
		def(&t.Payload, "payload")
	}
	def(&t.Name, readyTable)
	def(&t.ID, "id")
	def(&t.Partition, "partition_id")
	def(&t.State, "state")
	def(&t.Token, "token")
	def(&t.Owner, "owner")
	def(&t.Attempts, "attempts")
	def(&t.Order, t.ID)
	def(&t.Open, "open")
	def(&t.Claimed, "claimed")
	def(&t.Done, "done")
	def(&t.Failed, "failed")
	return t
}

func (t Table) validate() error {
	schema, name, qualified := strings.Cut(t.Name, ".")
	if !qualified {
		schema, name = "ok", t.Name
	}
	for _, f := range []struct{ field, value string }{
		{"Name", schema}, {"Name", name}, {"ID", t.ID}, {"Partition", t.Partition}, {"State", t.State}, {"Token", t.Token},
		{"Owner", t.Owner}, {"Attempts", t.Attempts}, {"Order", t.Order}, {"Open", t.Open}, {"Claimed", t.Claimed}, {"Done", t.Done}, {"Failed", t.Failed},
	} {
		if !isName(f.value) {
			return fmt.Errorf("%w: %s %.80q: want 1 to %d letters, digits and underscores, no digit first", ErrTable, f.field, f.value, maxName)
		}
	}
	for _, f := range []struct{ field, value string }{{"Keyspace", t.Keyspace}, {"Payload", t.Payload}} {
		if f.value != "" && !isName(f.value) {
			return fmt.Errorf("%w: %s %.80q: want at most %d letters, digits and underscores, no digit first", ErrTable, f.field, f.value, maxName)
		}
	}
	seen := map[string]string{}
	for _, f := range []struct{ field, value string }{{"Open", t.Open}, {"Claimed", t.Claimed}, {"Done", t.Done}, {"Failed", t.Failed}} {
		if other, twice := seen[f.value]; twice {
			return fmt.Errorf("%w: %s and %s are both %q", ErrTable, other, f.field, f.value)
		}
		seen[f.value] = f.field
	}
	return nil
}

// maxName is the longest identifier of PostgreSQL, the shortest limit of all.
const maxName = 63

func isName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// Schemas has the statements that make the ready table, one plain file per
// dialect, for those who run migrations with their own tool. MySQL uses
// sql/mariadb.sql.
//
//go:embed sql/*.sql
var Schemas embed.FS

// Migrate makes the table leasehold_job if it is missing. It may be called at
// every start, by several processes at once. A program's own table is the
// program's to change.
func Migrate(ctx context.Context, db *sql.DB, dialect sqlfence.Dialect) error {
	d, err := dialectOf(dialect)
	if err != nil {
		return err
	}
	script, err := Schemas.ReadFile(d.schema)
	if err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	for statement := range strings.SplitSeq(string(script), ";\n") {
		if statement == "" {
			continue
		}
		// PostgreSQL's IF NOT EXISTS does not wait for another process that
		// makes the same just now, and fails; the second time it sees it.
		if _, err = db.ExecContext(ctx, statement); err != nil {
			_, err = db.ExecContext(ctx, statement)
		}
		if err != nil {
			return fmt.Errorf("create table %s: %w", readyTable, err)
		}
	}
	return nil
}
