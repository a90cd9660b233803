package sqlonce_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlonce"
)

func TestManyAtOnceIsCarriedOutOnce(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		once := db.once(sqlonce.WithWait(30 * time.Second))
		var ran, replays atomic.Int64
		var wg sync.WaitGroup
		const keys, callers = 5, 12
		for i := range keys * callers {
			wg.Go(func() {
				key := fmt.Sprint("k", i%keys)
				got, replayed, err := once.Do(t.Context(), key, nil, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					if ran.Add(1)%3 == 1 {
						return nil, errTryAgain // those who wait must find the key free
					}
					return effect(key)(ctx, tx)
				})
				for errors.Is(err, errTryAgain) {
					got, replayed, err = once.Do(t.Context(), key, nil, effect(key))
				}
				if err != nil || string(got) != key {
					t.Errorf("%s: %q, %v", key, got, err)
				}
				if replayed {
					replays.Add(1)
				}
			})
		}
		wg.Wait()
		if n := db.count(t, "effects"); n != keys || replays.Load() != keys*(callers-1) {
			t.Errorf("%d writes and %d replays, want %d and %d", n, replays.Load(), keys, keys*(callers-1))
		}
	})
}

var errTryAgain = errors.New("try again")

const childEnv = "SQLONCE_TEST_CHILD"

// child carries out 50 requests and prints how many it did itself.
func child(driver, dsn, dialect string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, d := range dialects {
		if d.String() != dialect {
			continue
		}
		once, own := sqlonce.New(db, d), 0
		for i := range 50 {
			_, replayed, err := once.Do(context.Background(), fmt.Sprint("k", i), nil, effect(fmt.Sprint(i)))
			if err != nil {
				return err
			}
			if !replayed {
				own++
			}
		}
		fmt.Print(own)
		return nil
	}
	return fmt.Errorf("no dialect %q", dialect)
}

func TestTwoProcessesCarryOutEachKeyOnce(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		var outs [2]bytes.Buffer
		var cmds [2]*exec.Cmd
		for i := range cmds {
			cmds[i] = exec.Command(os.Args[0], db.dsn, db.dialect.String())
			cmds[i].Env = append(os.Environ(), childEnv+"="+db.driver)
			cmds[i].Stdout, cmds[i].Stderr = &outs[i], os.Stderr
			if err := cmds[i].Start(); err != nil {
				t.Fatal(err)
			}
		}
		sum := 0
		for i, c := range cmds {
			var n int
			err := c.Wait()
			if _, scanErr := fmt.Sscan(outs[i].String(), &n); err != nil || scanErr != nil {
				t.Fatalf("%v: %s", err, &outs[i])
			}
			sum += n
		}
		if n := db.count(t, "effects"); n != 50 || sum != 50 {
			t.Errorf("%d writes, %d say they did one; want 50", n, sum)
		}
	})
}

// The second one waits for the first, for as long as it was told to.
func TestSecondCallWaitsThenSaysInProgress(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		if db.dialect == sqlfence.SQLite {
			t.Skip("SQLite's writers wait for one another before there is a key, for the busy timeout")
		}
		started, finish := make(chan struct{}), make(chan struct{})
		first := make(chan error, 1)
		go func() {
			_, _, err := db.once().Do(t.Context(), "k", nil, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
				close(started)
				<-finish
				return effect("first")(ctx, tx)
			})
			first <- err
		}()
		<-started
		if _, _, err := db.once(sqlonce.WithWait(50*time.Millisecond)).Do(t.Context(), "k", nil, mustNotRun(t)); !errors.Is(err, sqlonce.ErrInProgress) {
			t.Errorf("got %v, want ErrInProgress", err)
		}
		// The caller's own deadline is not called progress.
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, _, err := db.once().Do(short, "k", nil, mustNotRun(t)); err == nil || errors.Is(err, sqlonce.ErrInProgress) {
			t.Errorf("got %v, want the context's error", err)
		}
		// Another key does not wait.
		if _, _, err := db.once(sqlonce.WithWait(5*time.Second)).Do(t.Context(), "other", nil, effect("other")); err != nil {
			t.Error(err)
		}
		second := make(chan string, 1)
		go func() {
			got, replayed, err := db.once().Do(t.Context(), "k", nil, mustNotRun(t))
			second <- fmt.Sprint(string(got), replayed, err)
		}()
		close(finish)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		if got := <-second; got != "firsttrue <nil>" {
			t.Errorf("the one that waited: %s", got)
		}
	})
}

func TestConnectionKilledInTheTransaction(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		if db.dialect == sqlfence.SQLite {
			t.Skip("SQLite has no connection that could be killed alone")
		}
		once := db.once()
		_, _, err := once.Do(t.Context(), "k", nil, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			res, err := effect("lost")(ctx, tx)
			db.terminate(t, tx)
			return res, err
		})
		if err == nil {
			t.Fatal("the call succeeded without its connection")
		}
		if got, replayed, err := once.Do(t.Context(), "k", nil, effect("done")); string(got) != "done" || replayed || err != nil {
			t.Errorf("again: %q, %v, %v", got, replayed, err)
		}
		if n := db.count(t, "effects"); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	})
}

// The line is cut at the COMMIT, before the server has it or after it has
// answered: the client cannot tell, and the same call again finds out.
func TestConnectionLostAtCommit(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		if db.dialect == sqlfence.SQLite {
			t.Skip("SQLite has no connection that could be lost")
		}
		for i, arrives := range []bool{false, true} {
			var armed atomic.Bool
			addr := proxy(t, db.addr, func(b []byte) (bool, bool) {
				if armed.Load() && bytes.HasSuffix(bytes.ToLower(bytes.TrimRight(b, "\x00")), []byte("commit")) {
					return arrives, true
				}
				return true, false
			})
			far := sqlonce.New(db.open(t, strings.Replace(db.dsn, db.addr, addr, 1)), db.dialect)
			key := fmt.Sprint("arrives ", arrives)
			armed.Store(true)
			if _, _, err := far.Do(t.Context(), key, nil, effect("far")); !errors.Is(err, sqlonce.ErrUnknown) {
				t.Fatalf("%s: got %v, want ErrUnknown", key, err)
			}
			armed.Store(false)
			if _, replayed, err := far.Do(t.Context(), key, nil, effect("far")); err != nil || replayed != arrives {
				t.Errorf("%s: replayed %v, %v", key, replayed, err)
			}
			if n := db.count(t, "effects"); n != i+1 {
				t.Errorf("%s: %d writes, want %d", key, n, i+1)
			}
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

// In transactions whose snapshot is older than the first call's commit, at any
// level: the result, or an error after which the transaction is begun again.
func TestIsolationLevels(t *testing.T) {
	for _, d := range []sqlfence.Dialect{sqlfence.PostgreSQL, sqlfence.MariaDB} {
		for _, c := range []struct {
			level sql.IsolationLevel
			code  map[sqlfence.Dialect]string // the server's refusal, "" for an answer at once
		}{
			{sql.LevelReadCommitted, nil},
			{sql.LevelRepeatableRead, map[sqlfence.Dialect]string{sqlfence.PostgreSQL: "40001"}},
			{sql.LevelSerializable, map[sqlfence.Dialect]string{sqlfence.PostgreSQL: "40001"}},
		} {
			t.Run(d.String()+"/"+c.level.String(), func(t *testing.T) {
				db := fresh(t, d)
				once := db.once()
				try := func(between func()) (got []byte, replayed bool, err error) {
					tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: c.level})
					if err != nil {
						t.Fatal(err)
					}
					defer tx.Rollback()
					var n int
					if err := tx.QueryRow("SELECT count(*) FROM accounts WHERE id > 5").Scan(&n); err != nil { // takes the snapshot
						t.Fatal(err)
					}
					between()
					if got, replayed, err = once.DoTx(t.Context(), tx, "k", nil, mustNotRun(t)); err != nil {
						return nil, false, err
					}
					return got, replayed, tx.Commit()
				}
				got, replayed, err := try(func() {
					if _, _, err := once.Do(t.Context(), "k", nil, effect("first")); err != nil {
						t.Fatal(err)
					}
				})
				if code := serverSays(err); code != c.code[d] || code == "" && err != nil {
					t.Fatalf("got code %q, %v; want %q", code, err, c.code[d])
				}
				if err != nil {
					got, replayed, err = try(func() {})
				}
				if err != nil || !replayed || string(got) != "first" {
					t.Errorf("got %q, %v, %v", got, replayed, err)
				}
			})
		}
	}
}

// At every level, with transactions begun again as documented, each key is
// carried out once.
func TestRetriedTransactionsCarryOutOnce(t *testing.T) {
	for _, d := range dialects {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			if d == sqlfence.SQLite && level != sql.LevelSerializable {
				continue // it has one level
			}
			t.Run(d.String()+"/"+level.String(), func(t *testing.T) {
				db := fresh(t, d)
				once := db.once()
				var wg sync.WaitGroup
				for range 6 {
					wg.Go(func() {
						for i := range 10 {
							for {
								err := inTx(t.Context(), db, level, func(tx *sql.Tx) error {
									_, _, err := once.DoTx(t.Context(), tx, fmt.Sprint("k", i), nil, effect(fmt.Sprint(i)))
									return err
								})
								if err == nil {
									break
								}
								if code := serverSays(err); code != "40001" && code != "40P01" && code != "1213" && code != "1020" {
									t.Error(err)
									return
								}
							}
						}
					})
				}
				wg.Wait()
				if n := db.count(t, "effects"); n != 10 {
					t.Errorf("%d writes, want 10", n)
				}
			})
		}
	}
}

func inTx(ctx context.Context, db database, level sql.IsolationLevel, f func(*sql.Tx) error) error {
	opts := &sql.TxOptions{Isolation: level}
	if db.dialect == sqlfence.SQLite {
		opts = nil
	}
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// deadlock runs two requests that lock two rows in opposite order until they
// meet. after gets what each one's second lock returned.
func deadlock(t *testing.T, db database, after func(error) error) (errs [2]error) {
	t.Helper()
	var both, wg sync.WaitGroup
	both.Add(2)
	for i := range 2 {
		wg.Go(func() {
			_, _, errs[i] = db.once().Do(t.Context(), fmt.Sprint("k", i), nil, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
				_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE accounts SET balance = balance + 1 WHERE id = %d", 1+i))
				both.Done()
				if err != nil {
					return nil, err
				}
				both.Wait()
				_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE accounts SET balance = balance + 1 WHERE id = %d", 2-i))
				return nil, after(err)
			})
		})
	}
	wg.Wait()
	return errs
}

// The victim of a deadlock keeps nothing; called again it does its work.
func TestDeadlockVictim(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		if db.dialect == sqlfence.SQLite {
			t.Skip("SQLite's writers do not overlap")
		}
		for name, after := range map[string]func(error) error{
			"reported":  func(err error) error { return err },
			"swallowed": func(error) error { return nil },
		} {
			db.exec(t, "DELETE FROM leasehold_once")
			db.exec(t, "UPDATE accounts SET balance = 0")
			errs := deadlock(t, db, after)
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("%s: got %v and %v, want one victim", name, errs[0], errs[1])
			}
			if name == "swallowed" && db.dialect == sqlfence.MariaDB && !errors.Is(errors.Join(errs[:]...), sqlonce.ErrLost) {
				// MariaDB has ended the transaction, and goes on without one.
				t.Errorf("swallowed: got %v and %v, want ErrLost", errs[0], errs[1])
			}
			for i := range errs {
				_, replayed, err := db.once().Do(t.Context(), fmt.Sprint("k", i), nil, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + 1")
					return nil, err
				})
				if err != nil || replayed != (errs[i] == nil) {
					t.Errorf("%s: k%d again: %v, %v after %v", name, i, replayed, err, errs[i])
				}
			}
			var balance int
			if err := db.QueryRow("SELECT sum(balance) FROM accounts").Scan(&balance); err != nil || balance != 4 {
				t.Errorf("%s: balances add up to %d, %v; want 4", name, balance, err)
			}
		}
	})
}

// The driver's way of counting rows does not matter.
func TestMariaDBClientFoundRows(t *testing.T) {
	db := fresh(t, sqlfence.MariaDB)
	once := sqlonce.New(db.open(t, db.dsn+"?clientFoundRows=true&interpolateParams=true"), db.dialect)
	for i := range 3 {
		for _, key := range []string{"a", "b"} {
			if got, replayed, err := once.Do(t.Context(), key, nil, effect(key)); err != nil || string(got) != key || replayed != (i > 0) {
				t.Errorf("%s: %q, %v, %v", key, got, replayed, err)
			}
		}
	}
}

func TestMigrateByManyAtOnce(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			db := empty(t, d)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if err := db.once().Migrate(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	}
}
