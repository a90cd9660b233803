package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// BlockedError says that a claim did not get a lock in time: none of its stamps
// is claimed, and it may be tried again. Blockers is empty where the database
// did not tell, or keeps no record (SQLite). MariaDB gives all transactions that
// have written nothing yet one id, so others of that kind may be named besides
// the one that is in the way. It matches ErrBlocked.
type BlockedError struct {
	Waited   time.Duration
	Blockers []Blocker // the oldest transaction first
	Err      error     // the database's own
}

// Blocker is a session that is in the way.
type Blocker struct {
	PID         int64         // of the backend (PostgreSQL), or the connection's id
	Application string        // application_name; the user's name where there is none
	Client      string        // address, "" over a Unix socket
	State       string        // such as "idle in transaction" or "Sleep"
	Open        time.Duration // for how long its transaction has been open
}

// String names the session and what may end it.
func (b Blocker) String() string {
	return fmt.Sprintf("backend %d (%q from %q, %s, transaction open for %s)", b.PID, b.Application, b.Client, b.State, b.Open.Round(time.Millisecond))
}

// Error names the blockers.
func (e *BlockedError) Error() string {
	who := "the database did not say whose"
	if len(e.Blockers) > 0 {
		names := make([]string, len(e.Blockers))
		for i, b := range e.Blockers {
			names[i] = b.String()
		}
		who = "held by " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%v after %s: %s: %v", ErrBlocked, e.Waited.Round(time.Millisecond), who, e.Err)
}

// Is matches ErrBlocked.
func (e *BlockedError) Is(target error) bool { return target == ErrBlocked }

// Unwrap gives the database's error.
func (e *BlockedError) Unwrap() error { return e.Err }

// watch arranges for a look, from another connection, at who blocks this one
// while it still waits. The function that it returns ends that and says who it
// was, nobody if the wait was short.
func (t *try) watch(ctx context.Context, tx Queryer) (func() []Blocker, error) {
	self, query := t.f.dialect.blockers()
	if query == "" {
		return func() []Blocker { return nil }, nil
	}
	var id int64
	if err := tx.Query(ctx, self, nil, func(scan func(...any) error) error { return scan(&id) }); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan []Blocker, 1)
	look := time.AfterFunc(min(t.wait, t.total)*2/5, func() {
		var all []Blocker
		// An answer that does not come is no reason to fail: rights may be missing.
		_ = t.f.db.Query(ctx, query, []any{id}, func(scan func(...any) error) error {
			var b Blocker
			var application, client, state sql.NullString
			var open sql.NullFloat64
			if err := scan(&b.PID, &application, &client, &state, &open); err != nil {
				return err
			}
			b.Application, b.Client, b.State = application.String, client.String, state.String
			b.Open = time.Duration(open.Float64 * float64(time.Second))
			all = append(all, b)
			return nil
		})
		found <- all
	})
	return func() []Blocker {
		defer cancel()
		if look.Stop() {
			return nil
		}
		cancel()
		return <-found
	}, nil
}

// blockers returns the query for a connection's own id, and the one for the
// sessions that block a given id.
func (d Dialect) blockers() (self, query string) {
	switch d {
	case PostgreSQL:
		return `SELECT pg_backend_pid()::bigint`, `SELECT pid::bigint, application_name, host(client_addr), state, extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids($1::int)) ORDER BY xact_start`
	case MariaDB:
		return `SELECT CONNECTION_ID()`, `SELECT DISTINCT b.trx_mysql_thread_id, p.user, p.host, p.command, TIMESTAMPDIFF(MICROSECOND, b.trx_started, SYSDATE(6)) / 1000000.0
FROM information_schema.innodb_trx AS r
JOIN information_schema.innodb_lock_waits AS w ON w.requesting_trx_id = r.trx_id
JOIN information_schema.innodb_trx AS b ON b.trx_id = w.blocking_trx_id
LEFT JOIN information_schema.processlist AS p ON p.id = b.trx_mysql_thread_id
WHERE r.trx_mysql_thread_id = ? ORDER BY 5 DESC`
	case MySQL:
		return `SELECT CONNECTION_ID()`, `SELECT w.blocking_pid, p.user, p.host, p.command, TIMESTAMPDIFF(MICROSECOND, w.blocking_trx_started, SYSDATE(6)) / 1000000.0
FROM sys.innodb_lock_waits AS w LEFT JOIN information_schema.processlist AS p ON p.id = w.blocking_pid
WHERE w.waiting_pid = ? ORDER BY 5 DESC`
	}
	return "", ""
}
