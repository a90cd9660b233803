package sqlonce

import (
	"database/sql"
	"embed"
	"fmt"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// Schemas has the statements that make the table, one plain file per dialect,
// for those who run migrations with their own tool. MySQL uses sql/mariadb.sql.
//
//go:embed sql/*.sql
var Schemas embed.FS

// statements are all that the dialects differ in.
type statements struct {
	schema string // file of Schemas
	// insert takes key, request, token, owner. It waits for another transaction
	// that has inserted the key and does nothing when that was committed.
	insert string
	// inserted says whether insert has inserted.
	inserted func(sql.Result) (bool, error)
	read     string // takes key
	store    string // takes result, key
	prune    string // takes seconds
	table    string // how many there are of that name
	// isolation of the transactions that Do and Prune begin.
	isolation sql.IsolationLevel
}

const (
	insertInto = `INSERT INTO leasehold_once (once_key, request, token, owner) VALUES (?, ?, ?, ?)`
	readRow    = `SELECT request, status, result FROM leasehold_once WHERE once_key = ?`
	storeRow   = `UPDATE leasehold_once SET status = 'done', result = ? WHERE once_key = ? AND status = 'running'`
	pruneBatch = 1000
)

func dialect(d sqlfence.Dialect) (statements, error) {
	rowWasAffected := func(r sql.Result) (bool, error) {
		n, err := r.RowsAffected()
		return n == 1, err
	}
	switch d {
	case sqlfence.SQLite:
		return statements{
			schema:   "sql/sqlite.sql",
			insert:   insertInto + ` ON CONFLICT (once_key) DO NOTHING`,
			inserted: rowWasAffected,
			read:     readRow,
			store:    storeRow,
			prune: fmt.Sprintf(`DELETE FROM leasehold_once WHERE once_key IN (SELECT once_key FROM leasehold_once
WHERE created_at < strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now', '-' || ? || ' seconds') ORDER BY created_at LIMIT %d)`, pruneBatch),
			table: `SELECT count(*) FROM sqlite_master WHERE name = 'leasehold_once'`,
		}, nil
	case sqlfence.PostgreSQL:
		return statements{
			schema:   "sql/postgresql.sql",
			insert:   numbered(insertInto + ` ON CONFLICT (once_key) DO NOTHING`),
			inserted: rowWasAffected,
			read:     numbered(readRow),
			store:    numbered(storeRow),
			prune: numbered(fmt.Sprintf(`DELETE FROM leasehold_once WHERE once_key IN (SELECT once_key FROM leasehold_once
WHERE created_at < clock_timestamp() - make_interval(secs => ?) ORDER BY created_at LIMIT %d FOR UPDATE SKIP LOCKED)`, pruneBatch)),
			table:     `SELECT count(to_regclass('leasehold_once'))`,
			isolation: sql.LevelReadCommitted,
		}, nil
	case sqlfence.MariaDB, sqlfence.MySQL:
		return statements{
			schema: "sql/mariadb.sql",
			// Not INSERT IGNORE: that leaves two who waited for a third that
			// was rolled back with a shared lock each, a deadlock. The number
			// of affected rows depends on the driver's clientFoundRows, so the
			// branch that inserts nothing says so by the last insert id.
			insert: insertInto + ` ON DUPLICATE KEY UPDATE created_at = IF(LAST_INSERT_ID(1) = 1, created_at, created_at)`,
			inserted: func(r sql.Result) (bool, error) {
				id, err := r.LastInsertId()
				return id == 0, err
			},
			// A plain read would look at the transaction's snapshot, which may
			// be older than the row.
			read:      readRow + ` LOCK IN SHARE MODE`,
			store:     storeRow,
			prune:     fmt.Sprintf(`DELETE FROM leasehold_once WHERE created_at < UTC_TIMESTAMP(3) - INTERVAL ? SECOND ORDER BY created_at LIMIT %d`, pruneBatch),
			table:     `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'leasehold_once'`,
			isolation: sql.LevelReadCommitted,
		}, nil
	}
	return statements{}, fmt.Errorf("unknown %s: want SQLite, PostgreSQL, MariaDB or MySQL", d)
}

// numbered turns each ? into $1, $2 and so on.
func numbered(query string) string {
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			fmt.Fprintf(&b, "$%d", i)
		}
		b.WriteString(part)
	}
	return b.String()
}
