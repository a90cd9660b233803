package sqljob_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqljob"
)

// A zombie that was stopped inside its transaction holds up no claim: its rows
// are passed over, and taken when its connection is gone.
func TestClaimPassesOverLockedRows(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		if db.dialect == sqlfence.SQLite {
			t.Skip("SQLite's writers wait for one another")
		}
		q := db.queue(t)
		db.add(t, 1, 2, 3, 4)
		claim(t, q, at(33, "w2"), 3)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := work(t.Context(), tx, q, at(33, "w2"), 2); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		jobs, err := q.Claim(ctx, at(34, "w4"), 10)
		if err != nil || !slices.Equal(ids(jobs), []int64{1, 3, 4}) {
			t.Fatalf("got %v, %v, want all but the locked one", ids(jobs), err)
		}
		// Two claims at once share the rest without waiting.
		db.add(t, 5, 6)
		other, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Rollback()
		if jobs, err = q.ClaimTx(ctx, other, at(34, "w4"), 1); err != nil || !slices.Equal(ids(jobs), []int64{5}) {
			t.Fatalf("got %v, %v, want 5", ids(jobs), err)
		}
		if jobs, err = q.Claim(ctx, at(34, "w4"), 1); err != nil || !slices.Equal(ids(jobs), []int64{6}) {
			t.Errorf("got %v, %v, want 6", ids(jobs), err)
		}
		db.terminate(t, tx)
		eventually(t, func() bool { return slices.Equal(claim(t, q, at(34, "w4"), 10), []int64{2}) })
		if n := db.count(t, "effects"); n != 0 {
			t.Errorf("%d effects of a killed transaction", n)
		}
	})
}

// eventually waits for the server to notice what happened to a connection.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it never happened")
		}
		<-tick.C
	}
}

// terminate ends the server's side of the transaction's connection.
func (d database) terminate(t *testing.T, tx *sql.Tx) {
	t.Helper()
	if err := d.kill(tx); err != nil {
		t.Fatal(err)
	}
}

func (d database) kill(tx *sql.Tx) error {
	var id int64
	whoami, kill := "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%d)"
	if d.dialect == sqlfence.MariaDB {
		whoami, kill = "SELECT CONNECTION_ID()", "KILL %d"
	}
	if err := tx.QueryRow(whoami).Scan(&id); err != nil {
		return err
	}
	_, err := d.Exec(fmt.Sprintf(kill, id))
	return err
}

// The connection is killed between Done and the commit: nothing of the job is
// kept, and the next owner does it.
func TestConnectionKilledAfterDone(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		if db.dialect == sqlfence.SQLite {
			t.Skip("SQLite has no connection that could be killed alone")
		}
		q := db.queue(t)
		db.add(t, 1)
		claim(t, q, at(33, "w2"), 1)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := work(t.Context(), tx, q, at(33, "w2"), 1); err != nil {
			t.Fatal(err)
		}
		db.terminate(t, tx)
		if err := tx.Commit(); err == nil {
			t.Fatal("the commit succeeded without its connection")
		}
		eventually(t, func() bool { return len(claim(t, q, at(34, "w4"), 1)) == 1 })
		if err := run(t.Context(), db.DB, q, at(34, "w4"), 1); err != nil {
			t.Error(err)
		}
		if n := db.count(t, "effects"); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}

// serverSays returns the code of a server's error: SQLSTATE or number.
func serverSays(err error) string {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case errors.As(err, &pg):
		return pg.Code
	case errors.As(err, &my):
		return fmt.Sprint(my.Number)
	}
	return ""
}

// A zombie whose snapshot is older than the takeover does not end the job, at
// any level, whichever way the database says no.
func TestDoneWithAnOldSnapshot(t *testing.T) {
	for _, d := range []sqlfence.Dialect{sqlfence.PostgreSQL, sqlfence.MariaDB} {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			t.Run(d.String()+"/"+level.String(), func(t *testing.T) {
				db := fresh(t, d)
				q := db.queue(t)
				db.add(t, 1, 2)
				claim(t, q, at(33, "w2"), 1)
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				var n int
				if err := tx.QueryRow("SELECT count(*) FROM accounts").Scan(&n); err != nil { // takes the snapshot
					t.Fatal(err)
				}
				if got := claim(t, q, at(34, "w4"), 2); len(got) != 2 {
					t.Fatalf("claimed %v", got)
				}
				err = work(t.Context(), tx, q, at(33, "w2"), 1)
				wantCode := ""
				if d == sqlfence.PostgreSQL && level != sql.LevelReadCommitted {
					wantCode = "40001"
				}
				if code := serverSays(err); code != wantCode || code == "" && !errors.Is(err, fence.ErrStale) {
					t.Errorf("got code %q, %v; want %q, or ErrStale", code, err, wantCode)
				}
				tx.Rollback()
				if got, want := row(t, db, 1), "claimed 34 w4 2"; got != want {
					t.Errorf("the row is %q, want %q", got, want)
				}
			})
		}
	}
}

// A claim from an old snapshot takes nothing that it must not.
func TestClaimWithAnOldSnapshot(t *testing.T) {
	for _, d := range []sqlfence.Dialect{sqlfence.PostgreSQL, sqlfence.MariaDB} {
		t.Run(d.String(), func(t *testing.T) {
			db := fresh(t, d)
			q := db.queue(t)
			db.add(t, 1)
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if got, err := q.ClaimTx(t.Context(), tx, fence.Stamp{Keyspace: "mails", Partition: 2, Token: 1, Owner: "x"}, 1); err != nil || got != nil { // takes the snapshot
				t.Fatal(got, err)
			}
			claim(t, q, at(34, "w4"), 1)
			jobs, err := q.ClaimTx(t.Context(), tx, at(33, "w2"), 1)
			if len(jobs) != 0 || err != nil && serverSays(err) != "40001" {
				t.Errorf("a lower token got %v, %v", jobs, err)
			}
			tx.Rollback()
			if got, want := row(t, db, 1), "claimed 34 w4 1"; got != want {
				t.Errorf("the row is %q, want %q", got, want)
			}
		})
	}
}

// Two jobs of one owner lock two rows in opposite order. The victim keeps
// nothing, and is done when it is tried again under the same stamp.
func TestDeadlockVictimIsDoneAgain(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		if db.dialect == sqlfence.SQLite {
			t.Skip("SQLite's writers do not overlap")
		}
		q := db.queue(t)
		db.add(t, 1, 2)
		s := at(33, "w2")
		claim(t, q, s, 2)
		var both, wg sync.WaitGroup
		both.Add(2)
		var errs [2]error
		job := func(i int, meet func()) error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			defer tx.Rollback()
			for step := range 2 {
				if _, err := tx.Exec(fmt.Sprintf("UPDATE accounts SET balance = balance + 1 WHERE id = %d", 1+(i+step)%2)); err != nil {
					return err
				}
				if step == 0 {
					meet()
				}
			}
			if err := work(t.Context(), tx, q, s, int64(i+1)); err != nil {
				return err
			}
			return tx.Commit()
		}
		for i := range 2 {
			wg.Go(func() { errs[i] = job(i, func() { both.Done(); both.Wait() }) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("got %v and %v, want one victim", errs[0], errs[1])
		}
		for i, err := range errs {
			if err == nil {
				continue
			}
			if err := job(i, func() {}); err != nil {
				t.Errorf("the victim again: %v", err)
			}
		}
		if n := db.count(t, "effects"); n != 2 || db.count(t, "accounts WHERE balance = 2") != 2 {
			t.Errorf("%d effects, want 2 and each balance 2", n)
		}
	})
}

// O-74: with any pool, owners that take a partition from one another again and
// again do each job once.
func TestAnyPoolSize(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		for _, pool := range []int{1, 2, 10} {
			t.Run(fmt.Sprint(pool), func(t *testing.T) {
				handle := db.open(t, db.dsn, pool)
				q := newQueue(t, handle, db.dialect, sqljob.Table{}, nil)
				db.exec(t, "DELETE FROM leasehold_job")
				db.exec(t, "DELETE FROM effects")
				const jobs = 24
				for id := range int64(jobs) {
					db.add(t, id+1)
				}
				var wg sync.WaitGroup
				for owner := range 4 {
					wg.Go(func() {
						for turn := range 5 {
							s := at(fence.Token(1+owner+4*turn), fmt.Sprint("w", owner))
							got, err := q.Claim(t.Context(), s, 7)
							if err != nil {
								t.Error(err)
								return
							}
							for _, j := range got {
								if err := run(t.Context(), handle, q, s, j.ID); err != nil && !errors.Is(err, fence.ErrStale) {
									t.Error(err)
								}
							}
						}
					})
				}
				wg.Wait()
				last := at(1000, "last")
				for _, id := range claim(t, q, last, jobs) {
					if err := run(t.Context(), handle, q, last, id); err != nil {
						t.Error(err)
					}
				}
				if n, once := db.count(t, "effects"), db.count(t, "(SELECT job FROM effects GROUP BY job HAVING count(*) = 1) AS once"); n != jobs || once != jobs {
					t.Errorf("%d effects, %d jobs done once; want %d", n, once, jobs)
				}
			})
		}
	})
}

func TestMigrateByManyAtOnce(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			db := empty(t, d)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if err := sqljob.Migrate(t.Context(), db.DB, d); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	}
}
