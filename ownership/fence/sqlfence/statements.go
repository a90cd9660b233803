package sqlfence

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// resourcePartition is the partition_id of a row whose keyspace is the name of
// a resource (Stamp.Resource). Partitions are never negative.
const resourcePartition = -1

// row is a key as the table has it.
type row struct {
	Keyspace  string `json:"keyspace"`
	Partition int64  `json:"partition_id"`
}

func rowOf(k fence.Key) row {
	if k.Resource != "" {
		return row{k.Resource, resourcePartition}
	}
	return row{k.Keyspace, int64(k.Partition)}
}

func (r row) String() string {
	if r.Partition == resourcePartition {
		return fmt.Sprintf("%q", r.Keyspace)
	}
	return fmt.Sprintf("%s/%d", r.Keyspace, r.Partition)
}

// statement is one with its parameters.
type statement struct {
	text string
	args []any
}

// text is a name as a parameter: bytes where the columns are bytes, so that no
// character set of a connection comes between.
func (d Dialect) text(s string) any {
	if d == MariaDB || d == MySQL {
		return []byte(s)
	}
	return s
}

// ms is a timeout as PostgreSQL's settings take it, at least 1 ms: 0 means for ever there.
func ms(d time.Duration) string { return fmt.Sprintf("%dms", max(d.Milliseconds(), 1)) }

// seconds is a timeout as MariaDB takes it.
func seconds(d time.Duration) int64 { return max(int64(d/time.Second), 1) }

// bounded prefixes a statement that may wait for a row's lock. MariaDB's SET
// STATEMENT ends with the statement and a shorter setting of the user stays;
// MySQL has no such thing, and SQLite's busy timeout belongs to the connection.
func (d Dialect) bounded(wait time.Duration) string {
	if d != MariaDB {
		return ""
	}
	return fmt.Sprintf("SET STATEMENT innodb_lock_wait_timeout = LEAST(@@innodb_lock_wait_timeout, %d) FOR ", seconds(wait))
}

// turnstile is the advisory lock of a key, see claimPostgreSQL: a number of our
// own ("leas") and a hash of the key.
const turnstile = `1818583411, hashtext(%[1]s || '/' || %[2]s::text)`

// lock reads the row of a stamp and keeps it from changing until the
// transaction ends; many writers may hold it at once. SQLite's is the read of a
// transaction that must write later, see the package comment. In MySQL's
// dialects the answer is always one row, which also has the idle timeout of the
// session in seconds and whether the server is read-only.
//
// PostgreSQL locks the row only if it is the stamp's own, so that a transaction
// that has to raise it does not hold the lock that another one like it waits
// for. All the settings are made, and the turnstile is passed, before the row
// is looked for: sub-selects that do not depend on it are the plan's gate.
func (d Dialect) lock(r row, s fence.Stamp, bound time.Duration) statement {
	switch d {
	case PostgreSQL:
		return statement{lockPostgreSQL, []any{r.Keyspace, r.Partition, int64(s.Token), s.Owner, ms(bound)}}
	case SQLite:
		return statement{`SELECT keyspace, partition_id, token, owner FROM leasehold_fence WHERE keyspace = ? AND partition_id = ?`,
			[]any{r.Keyspace, r.Partition}}
	}
	idle := "@@idle_transaction_timeout"
	if d == MySQL {
		idle = "-1" // has none
	}
	return statement{d.bounded(bound) + `SELECT f.keyspace, f.partition_id, f.token, f.owner, ` + idle + `, @@global.read_only
FROM (SELECT 1) AS one LEFT JOIN leasehold_fence AS f ON f.keyspace = ? AND f.partition_id = ?
LOCK IN SHARE MODE`, []any{[]byte(r.Keyspace), r.Partition}}
}

var lockPostgreSQL = `SELECT 1 FROM leasehold_fence
WHERE keyspace = $1::text AND partition_id = $2::bigint AND token = $3::bigint AND owner = $4::text
  AND (` + boundPostgreSQL("$5") + `) IS NOT NULL
  AND (SELECT pg_advisory_xact_lock_shared(` + fmt.Sprintf(turnstile, "$1::text", "$2::bigint") + `)) IS NOT NULL
FOR SHARE`

// boundPostgreSQL sets the two timeouts for the rest of the transaction, unless
// they are shorter already.
func boundPostgreSQL(limit string) string {
	set := func(name string) string {
		return fmt.Sprintf(`CASE WHEN current_setting('%[1]s') = '0' OR current_setting('%[1]s')::interval > %[2]s::text::interval
    THEN set_config('%[1]s', %[2]s::text, true) ELSE '' END`, name, limit)
	}
	return `SELECT ` + set("lock_timeout") + `
    || ` + set("idle_in_transaction_session_timeout")
}

// upsert is the one writing statement.
func (d Dialect) upsert(stamps []fence.Stamp, wait time.Duration) statement {
	const into = `INSERT INTO leasehold_fence (keyspace, partition_id, token, owner, claimed_at) `
	const returning = "\nRETURNING keyspace, partition_id, token, owner"
	if d == PostgreSQL {
		type full struct {
			row
			Token fence.Token `json:"token"`
			Owner string      `json:"owner"`
		}
		rows := make([]full, len(stamps))
		for i, s := range stamps {
			rows[i] = full{rowOf(s.Key()), s.Token, s.Owner}
		}
		return statement{into + `SELECT keyspace, partition_id, token, owner, clock_timestamp()
FROM json_to_recordset($1::text::json) AS claimed (keyspace text, partition_id bigint, token bigint, owner text)` +
			onConflict + returning, []any{inJSON(rows)}}
	}
	now, conflict := `UTC_TIMESTAMP(3)`, onDuplicate+returning
	switch d {
	case SQLite:
		now, conflict = `strftime('%Y-%m-%dT%H:%M:%fZ', 'now')`, onConflict+returning
	case MySQL:
		conflict = onDuplicate // the table is read afterwards
	}
	args := make([]any, 0, 4*len(stamps))
	for _, s := range stamps {
		r := rowOf(s.Key())
		args = append(args, d.text(r.Keyspace), r.Partition, int64(s.Token), d.text(s.Owner))
	}
	return statement{d.bounded(wait) + into + `VALUES ` + repeat("(?, ?, ?, ?, "+now+")", len(stamps)) + conflict, args}
}

// lookup reads rows; locked, it waits for those who are changing them.
func (d Dialect) lookup(rows []row, locked bool) statement {
	s := d.among(`SELECT keyspace, partition_id, token, owner FROM leasehold_fence WHERE (keyspace, partition_id) IN `, rows)
	if locked {
		s.text += ` FOR UPDATE`
	}
	return s
}

// among ends a statement with a list of keys.
func (d Dialect) among(text string, rows []row) statement {
	if d == PostgreSQL {
		return statement{text + keysPostgreSQL, []any{inJSON(rows)}}
	}
	args := make([]any, 0, 2*len(rows))
	for _, r := range rows {
		args = append(args, d.text(r.Keyspace), r.Partition)
	}
	if d == SQLite {
		return statement{text + `(VALUES ` + repeat("(?, ?)", len(rows)) + `)`, args}
	}
	return statement{text + `(` + repeat("(?, ?)", len(rows)) + `)`, args}
}

const keysPostgreSQL = `(SELECT keyspace, partition_id FROM json_to_recordset($1::text::json) AS wanted (keyspace text, partition_id bigint))`

func repeat(s string, n int) string {
	return strings.TrimSuffix(strings.Repeat(s+", ", n), ", ")
}

// inJSON is a list as one parameter, which any driver and any pooler takes.
func inJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and integers only
	}
	return string(b)
}
