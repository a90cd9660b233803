package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

// A guard without a transaction, or with one that is over, is told so.
func TestGuardNeedsATransaction(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 1)
		if err := w.f.Guard(t.Context(), nil, at(1, 1, "a")); !errors.Is(err, sqlfence.ErrNoTransaction) {
			t.Errorf("nil: %v", err)
		}
		tx := w.begin(t)
		tx.Commit()
		if err := w.f.Guard(t.Context(), tx, at(1, 1, "a")); !errors.Is(err, sqlfence.ErrNoTransaction) || !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("finished: %v", err)
		}
		if m := w.seen(t, orders(1)); m != (fence.Mark{}) {
			t.Errorf("the table holds %v", m)
		}
	})
}

// At any isolation level a transaction that began before a newer claim does not
// write after it: it is refused, or the database makes it try again.
func TestIsolationLevels(t *testing.T) {
	eachOf(t, dialects[1:], func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			t.Run(level.String(), func(t *testing.T) {
				w := newWorld(t, d, 3)
				old := at(1, 5, "old")
				w.claim(t, old)
				begin := func() *sql.Tx {
					tx, err := w.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { tx.Rollback() })
					var n int
					if err := tx.QueryRow(`SELECT count(*) FROM writes`).Scan(&n); err != nil { // takes the snapshot
						t.Fatal(err)
					}
					return tx
				}
				tx := begin()
				if level == sql.LevelSerializable && d != sqlfence.PostgreSQL {
					tx.Rollback() // a read locks there; the next part is about snapshots
					tx = w.begin(t)
				}
				w.claim(t, at(1, 6, "new"))
				err := w.f.Guard(t.Context(), tx, old)
				if !errors.Is(err, fence.ErrStale) && !sqlfence.Retryable(err) {
					t.Fatalf("after a newer claim: %v", err)
				}
				tx.Rollback()
				wantReason(t, w.write(t.Context(), old), fence.ReasonStale) // tried again
				// And a write that is in time is taken at every level, new tokens too.
				for _, s := range []fence.Stamp{at(1, 6, "new"), at(1, 7, "newer"), at(2, 1, "first")} {
					tx := begin()
					if err := errors.Join(w.f.Guard(t.Context(), tx, s), w.insert(t.Context(), tx, s), tx.Commit()); err != nil {
						t.Errorf("%s: %v", s, err)
					}
				}
			})
		}
	})
}

// A rollback to a savepoint takes back the guard that was called after it, and
// its lock with it (MariaDB's: if the transaction had touched nothing before):
// what is written then is not guarded. The next call sees what has become of the
// partition.
func TestGuardInsideASavepointIsRolledBack(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 2, sqlfence.WithTTL(3*time.Second))
		old := at(1, 5, "old")
		w.claim(t, old)
		tx := w.begin(t)
		exec := func(s string) {
			t.Helper()
			if _, err := tx.Exec(s); err != nil {
				t.Fatal(err)
			}
		}
		exec(`SAVEPOINT s`)
		if err := w.f.Guard(t.Context(), tx, old); err != nil {
			t.Fatal(err)
		}
		exec(`ROLLBACK TO SAVEPOINT s`)
		if d != sqlfence.SQLite {
			w.claim(t, at(1, 6, "new")) // does not wait
			wantReason(t, w.f.Guard(t.Context(), tx, old), fence.ReasonStale)
			return
		}
		// SQLite has one lock and keeps it to the end of the transaction.
		if err := errors.Join(w.f.Guard(t.Context(), tx, old), w.insert(t.Context(), tx, old), tx.Commit()); err != nil {
			t.Error(err)
		}
	})
}

// A guard before a savepoint outlives a rollback to it.
func TestGuardBeforeASavepointStays(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		w := newWorld(t, d, 2)
		old := at(1, 5, "old")
		w.claim(t, old)
		tx := w.begin(t)
		if err := w.f.Guard(t.Context(), tx, old); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{`SAVEPOINT s`, `INSERT INTO writes (partition_id, token, owner) VALUES (9, 9, 'x')`, `ROLLBACK TO SAVEPOINT s`} {
			if _, err := tx.Exec(s); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		if err := w.f.Claim(ctx, []fence.Stamp{at(1, 6, "new")}); err == nil {
			t.Error("the claim did not wait")
		}
		if err := errors.Join(w.insert(t.Context(), tx, old), tx.Commit()); err != nil {
			t.Error(err)
		}
	})
}

// Two transactions that lock in opposite orders: one is the victim, can be
// recognised, has left nothing, and succeeds when tried again.
func TestDeadlockVictimTriesAgain(t *testing.T) {
	eachOf(t, servers, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 4)
		w.claim(t, at(1, 5, "a"), at(2, 5, "a"))
		var first sync.WaitGroup
		first.Add(2)
		attempt := func(p, q uint32, token fence.Token, meet bool) error {
			return w.f.Do(t.Context(), at(p, token, "a"), func(ctx context.Context, tx *sql.Tx) error {
				if meet {
					first.Done()
					first.Wait()
				}
				s := at(q, token, "a")
				if err := w.f.Guard(ctx, tx, s); err != nil {
					return err
				}
				return w.insert(ctx, tx, s)
			})
		}
		errs := make([]error, 2)
		var wg sync.WaitGroup
		wg.Go(func() { errs[0] = attempt(1, 2, 6, true) })
		wg.Go(func() { errs[1] = attempt(2, 1, 6, true) })
		wg.Wait()
		victims := 0
		for i, err := range errs {
			if err == nil {
				continue
			}
			victims++
			if !sqlfence.Retryable(err) || errors.Is(err, fence.ErrStale) {
				t.Errorf("the victim got %v", err)
			}
			if n := w.number(t, `SELECT count(*) FROM writes`); n != 1 {
				t.Errorf("%d writes, want the winner's alone", n)
			}
			if err := attempt(uint32(1+i), uint32(2-i), 6, false); err != nil {
				t.Errorf("tried again: %v", err)
			}
		}
		if victims != 1 {
			t.Errorf("%d victims: %v", victims, errs)
		}
	})
}

// A replica, or a transaction that may only read, is no place for a guard.
func TestReadOnlyConnection(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 2)
		s := at(1, 5, "a")
		w.claim(t, s)
		ro := w
		switch d {
		case sqlfence.SQLite:
			ro = &world{base: w.base}
			ro.dsn = strings.Replace(w.dsn, "_txlock=immediate", "_txlock=deferred&_pragma=query_only(1)", 1)
			ro = ro.other(t, 1)
		case sqlfence.PostgreSQL:
			ro.base = w.with("default_transaction_read_only", "on")
			ro = ro.other(t, 1)
		default:
			w.exec(t, `SET GLOBAL read_only = 1`)
			defer w.exec(t, `SET GLOBAL read_only = 0`)
		}
		for _, s := range []fence.Stamp{s, at(1, 6, "a"), at(2, 1, "a")} {
			err := ro.write(t.Context(), s)
			// SQLite reads the row of a repeated write; its write fails then.
			if !errors.Is(err, sqlfence.ErrReadOnly) && (d != sqlfence.SQLite || err == nil) {
				t.Errorf("%s: got %v, want ErrReadOnly", s, err)
			}
		}
		if n, _ := w.regressions(t); n != 0 {
			t.Errorf("%d writes", n)
		}
	})
}

// The connection is lost between check and commit: the caller hears that the
// outcome is unknown or that nothing was written, and the partition is free.
func TestConnectionLostBeforeTheCommit(t *testing.T) {
	eachOf(t, servers, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 3)
		s := at(1, 5, "a")
		err := w.f.Do(t.Context(), s, func(ctx context.Context, tx *sql.Tx) error {
			if err := w.insert(ctx, tx, s); err != nil {
				return err
			}
			self, kill := `SELECT pg_backend_pid()`, `SELECT pg_terminate_backend(%d)`
			if d == sqlfence.MariaDB {
				self, kill = `SELECT CONNECTION_ID()`, `KILL %d`
			}
			var pid int64
			if err := tx.QueryRow(self).Scan(&pid); err != nil {
				return err
			}
			_, err := w.db.Exec(fmt.Sprintf(kill, pid))
			return err
		})
		if !errors.Is(err, sqlfence.ErrOutcomeUnknown) || sqlfence.Retryable(err) {
			t.Errorf("got %v, want ErrOutcomeUnknown, not to be tried again blindly", err)
		}
		if err := w.write(t.Context(), at(1, 6, "b")); err != nil {
			t.Fatal(err)
		}
		wantReason(t, w.write(t.Context(), s), fence.ReasonStale)
		if n, bad := w.regressions(t); n != 1 || bad != 0 {
			t.Errorf("%d writes, %d of them bad", n, bad)
		}
	})
}

// O-74: behind a pooler in transaction mode, where each transaction may get
// another connection, nothing changes.
func TestBehindPgBouncer(t *testing.T) {
	bouncer := dbtest.StartPgBouncer(t, postgres.Get(t), 3)
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			direct := newWorld(t, sqlfence.PostgreSQL, 2)
			schema := direct.dsn[strings.LastIndex(direct.dsn, "=")+1:]
			// The pooler does not pass on search_path; the database's user does.
			direct.exec(t, `ALTER ROLE postgres IN DATABASE postgres SET search_path = `+schema)
			defer direct.exec(t, `ALTER ROLE postgres IN DATABASE postgres RESET search_path`)
			direct.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name NOT LIKE 'pg%' AND backend_type = 'client backend' AND client_port IS NOT NULL AND state = 'idle'`)
			b := base{sqlfence.PostgreSQL, "pgx", bouncer.PostgreSQLDSN("postgres")}.with("default_query_exec_mode", mode)
			db := b.open(t, 8)
			w := &world{b, sqlfence.New(db, b.dialect), db}
			eventually(t, "fresh connections in the pooler", func() bool {
				var s string
				return w.db.QueryRow(`SHOW search_path`).Scan(&s) == nil && s == schema
			})
			hammer(t, w)
			if n := direct.number(t, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`); n != 0 {
				t.Errorf("%d advisory locks are left", n)
			}
		})
	}
}

// SQLite: the guard of a repeated write is a plain read. In a deferred
// transaction a newer claim may pass it by; then the write itself fails.
func TestDeferredTransactionFailsCleanly(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		for _, token := range []fence.Token{1, 2} { // new to the table, and repeated
			b := newBase(t, sqlfence.SQLite)
			b.dsn = strings.NewReplacer("WAL", journal, "10000", "300").Replace(b.dsn)
			w := inBase(t, b, 1)
			w.claim(t, at(1, 2, "a"), at(9, 1, "x"))
			w.dsn = strings.Replace(w.dsn, "_txlock=immediate", "_txlock=deferred", 1)
			deferred, claimer := w.other(t, 1), w.other(t, 1)
			s := at(1, token, "a")
			if token == 1 {
				s = at(9, 2, "x")
			}
			newer := s
			newer.Token, newer.Owner = 3, "b"
			tx := deferred.begin(t)
			var n int
			if err := tx.QueryRow(`SELECT count(*) FROM writes`).Scan(&n); err != nil { // a reader now
				t.Fatal(err)
			}
			if token == 2 {
				if err := deferred.f.Guard(t.Context(), tx, s); err != nil {
					t.Fatal(err)
				}
			}
			claimed := claimer.f.Claim(t.Context(), []fence.Stamp{newer})
			if journal == "WAL" && claimed != nil {
				t.Fatal(claimed)
			}
			var err error
			if token == 1 {
				err = deferred.f.Guard(t.Context(), tx, s)
			}
			err = errors.Join(err, deferred.insert(t.Context(), tx, s), tx.Commit())
			if (err == nil) == (claimed == nil) || errors.Is(err, fence.ErrStale) {
				t.Errorf("%s: the claim got %v and the older write %v; want exactly one to fail, of a database that is busy", journal, claimed, err)
			}
		}
	}
}
