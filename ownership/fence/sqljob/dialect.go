package sqljob

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// dialect is all that the databases differ in.
type dialect struct {
	schema   string // file of Schemas
	quote    string
	numbered bool   // $1, $2 and not ?
	skip     string // lock the rows that are read and pass over the locked ones
	share    string // read the newest version of a row
	// columnType takes table and column (of a schema, "" for the current one:
	// schema, table, column) and gives the column's declared type.
	columnType string
	bigint     func(declared string) bool
	isolation  sql.IsolationLevel
}

func dialectOf(d sqlfence.Dialect) (dialect, error) {
	bigint := func(declared string) bool { return strings.EqualFold(declared, "bigint") }
	switch d {
	case sqlfence.SQLite:
		// There is one writer at a time, so there is nothing to lock.
		return dialect{
			schema:     "sql/sqlite.sql",
			quote:      `"`,
			columnType: `SELECT type FROM pragma_table_info(?2, CASE ?1 WHEN '' THEN 'main' ELSE ?1 END) WHERE name = ?3`,
			// What contains INT stores numbers as integers, also where they
			// came as text: https://www.sqlite.org/datatype3.html §3.1.
			bigint: func(declared string) bool { return strings.Contains(strings.ToUpper(declared), "INT") },
		}, nil
	case sqlfence.PostgreSQL:
		return dialect{
			schema:   "sql/postgresql.sql",
			quote:    `"`,
			numbered: true,
			skip:     " FOR UPDATE SKIP LOCKED",
			columnType: `SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE NOT attisdropped AND attname = $3
  AND attrelid = to_regclass(CASE $1 WHEN '' THEN '' ELSE quote_ident($1) || '.' END || quote_ident($2))`,
			bigint:    bigint,
			isolation: sql.LevelReadCommitted,
		}, nil
	case sqlfence.MariaDB, sqlfence.MySQL:
		// MariaDB 10.6, MySQL 8.0.
		return dialect{
			schema: "sql/mariadb.sql",
			quote:  "`",
			skip:   " FOR UPDATE SKIP LOCKED",
			share:  " LOCK IN SHARE MODE",
			columnType: `SELECT data_type FROM information_schema.columns
WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ? AND column_name = ?`,
			bigint: bigint,
			// REPEATABLE READ would lock the gaps between the rows as well, and
			// hold up those who insert jobs.
			isolation: sql.LevelReadCommitted,
		}, nil
	}
	return dialect{}, fmt.Errorf("unknown %s: want SQLite, PostgreSQL, MariaDB or MySQL", d)
}

// statements of one table. Their parameters are in the order of the text.
type statements struct {
	dialect
	takeOver  string // keyspace?, partition, token; limit is appended
	open      string // keyspace?, partition, token, token, owner; limit is appended
	claimHead string // token, owner; then the ids
	claimTail string // token, token, owner
	held      string // keyspace?, partition, token, owner
	end       [3]string
	look      string // id
}

// The ways a claimed job ends.
type ending int

const (
	done ending = iota
	released
	failed
)

func newStatements(d dialect, t Table) statements {
	q := func(name string) string { return d.quote + name + d.quote }
	table := q(t.Name)
	if schema, name, ok := strings.Cut(t.Name, "."); ok {
		table = q(schema) + "." + q(name)
	}
	id, token, owner, state, attempts := q(t.ID), q(t.Token), q(t.Owner), q(t.State), q(t.Attempts)
	is := func(s string) string { return state + " = '" + s + "'" }
	where := q(t.Partition) + " = ?"
	if t.Keyspace != "" {
		where = q(t.Keyspace) + " = ? AND " + where
	}
	payload := "NULL"
	if t.Payload != "" {
		payload = q(t.Payload)
	}
	// The rule, once for each state: then both reads follow the index.
	dead := is(t.Claimed) + " AND (" + token + " IS NULL OR " + token + " < ?)"
	free := is(t.Open) + " AND (" + token + " IS NULL OR " + token + " < ? OR (" + token + " = ? AND " + owner + " = ?))"
	mine := is(t.Claimed) + " AND " + token + " = ? AND " + owner + " = ?"
	read := "SELECT " + id + ", COALESCE(" + attempts + ", 0), " + payload + " FROM " + table + " WHERE " + where + " AND "
	order := " ORDER BY " + q(t.Order) + " LIMIT "
	s := statements{
		dialect:   d,
		takeOver:  read + dead + order,
		open:      read + free + order,
		claimHead: "UPDATE " + table + " SET " + state + " = '" + t.Claimed + "', " + token + " = ?, " + owner + " = ?, " + attempts + " = COALESCE(" + attempts + ", 0) + 1 WHERE " + id + " IN (",
		claimTail: ") AND (" + dead + " OR " + free + ")",
		held:      read + mine + order,
		look:      "SELECT " + state + ", COALESCE(" + token + ", 0), COALESCE(" + owner + ", '') FROM " + table + " WHERE " + id + " = ?" + d.share,
	}
	for e, to := range map[ending]string{done: t.Done, released: t.Open, failed: t.Failed} {
		s.end[e] = "UPDATE " + table + " SET " + state + " = '" + to + "' WHERE " + id + " = ? AND " + mine
	}
	return s
}

// bind gives a statement the placeholders of the dialect.
func (d dialect) bind(query string) string {
	if !d.numbered {
		return query
	}
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			fmt.Fprintf(&b, "$%d", i)
		}
		b.WriteString(part)
	}
	return b.String()
}
