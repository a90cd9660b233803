package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// A writer that is stopped inside its transaction keeps its lock for no longer
// than the TTL: the new owner's claim gets through, and when the writer wakes
// its commit fails.
func TestStoppedWriterDoesNotKeepTheNewOwnerOut(t *testing.T) {
	eachOf(t, servers, func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		const ttl = 2 * time.Second
		w := newWorld(t, d, 2, sqlfence.WithTTL(ttl))
		w.claim(t, at(1, 5, "zombie"))
		p := w.start(t, "hold", "zombie", ttl)
		if line := p.line(t); line != "holding" {
			t.Fatal(line)
		}
		if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		w.claim(t, at(1, 6, "new"))
		if took := time.Since(begun); took > ttl+8*time.Second {
			t.Errorf("the claim took %s, want at most about the TTL of %s", took, ttl)
		}
		if err := w.write(t.Context(), at(1, 6, "new")); err != nil {
			t.Fatal(err)
		}
		if err := p.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(p.in)
		if line := p.line(t); !strings.HasPrefix(line, "commit: ") || line == "commit: <nil>" {
			t.Errorf("the zombie said %q, want its commit to fail", line)
		}
		if n := w.number(t, `SELECT count(*) FROM writes WHERE owner = 'zombie'`); n != 0 {
			t.Errorf("%d writes of the zombie are there", n)
		}
	})
}

// A claim that gives up says who is in the way.
func TestBlockedClaimNamesTheBlocker(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 2, sqlfence.WithTTL(time.Minute))
		if d == sqlfence.PostgreSQL {
			w.base = w.with("application_name", "the culprit")
		}
		if d == sqlfence.SQLite {
			w.dsn = strings.Replace(w.dsn, "10000", "300", 1)
		}
		culprit := w.other(t, 1, sqlfence.WithTTL(time.Minute))
		w.claim(t, at(1, 5, "old"), at(2, 5, "old"))
		tx := culprit.begin(t)
		if err := culprit.f.Guard(t.Context(), tx, at(1, 5, "old")); err != nil {
			t.Fatal(err)
		}
		var pid int64
		if q := map[sqlfence.Dialect]string{sqlfence.PostgreSQL: "SELECT pg_backend_pid()", sqlfence.MariaDB: "SELECT CONNECTION_ID()", sqlfence.MySQL: "SELECT CONNECTION_ID()"}[d]; q != "" {
			if err := tx.QueryRow(q).Scan(&pid); err != nil {
				t.Fatal(err)
			}
		}
		claimer := w.other(t, 2, sqlfence.WithTTL(time.Second))
		if d == sqlfence.MySQL { // which can only be told so
			claimer.base = w.with("innodb_lock_wait_timeout", "2")
			claimer = claimer.other(t, 2, sqlfence.WithTTL(time.Second))
		}
		stamps := []fence.Stamp{at(1, 6, "new"), at(2, 6, "new")}
		err := claimer.f.Claim(t.Context(), stamps)
		var be *sqlfence.BlockedError
		if !errors.As(err, &be) || !errors.Is(err, sqlfence.ErrBlocked) || !sqlfence.Retryable(err) {
			t.Fatalf("got %v, want a *BlockedError", err)
		}
		if m := w.seen(t, orders(2)); m.Token != 5 {
			t.Errorf("half of the claim was made: %v", m)
		}
		switch {
		case d == sqlfence.SQLite:
		case len(be.Blockers) != 1 || be.Blockers[0].PID != pid || be.Blockers[0].Open <= 0 || !strings.Contains(err.Error(), fmt.Sprint("backend ", pid)):
			t.Errorf("want backend %d named: %v", pid, err)
		case d == sqlfence.PostgreSQL && (be.Blockers[0].Application != "the culprit" || be.Blockers[0].Client != "127.0.0.1" || be.Blockers[0].State != "idle in transaction"):
			t.Errorf("got %+v", be.Blockers[0])
		case d != sqlfence.PostgreSQL && (be.Blockers[0].Application != "root" || be.Blockers[0].State != "Sleep"): // no address: the test server keeps no accounts
			t.Errorf("got %+v", be.Blockers[0])
		}
		tx.Rollback()
		if err := claimer.f.Claim(t.Context(), stamps); err != nil {
			t.Errorf("once it is gone: %v", err)
		}
	})
}

// With a deadline nearer than the TTL the claim gives up before it, and so can
// still say why.
func TestBlockedClaimSpeaksBeforeItsDeadline(t *testing.T) {
	w := newWorld(t, sqlfence.PostgreSQL, 3)
	tx := w.begin(t)
	if err := w.f.Guard(t.Context(), tx, at(1, 5, "old")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var be *sqlfence.BlockedError
	if err := w.f.Claim(ctx, []fence.Stamp{at(1, 6, "new")}); !errors.As(err, &be) || len(be.Blockers) == 0 {
		t.Errorf("got %v, want a *BlockedError with a name", err)
	}
}

// Writers that share the row without a gap do not starve a claim.
func TestEndlessWritersDoNotStarveAClaim(t *testing.T) {
	eachOf(t, servers, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 16)
		old := at(1, 5, "old")
		w.claim(t, old)
		var stop atomic.Bool
		var wg sync.WaitGroup
		var writes atomic.Int64
		for range 12 {
			wg.Go(func() {
				for !stop.Load() {
					err := w.f.Do(t.Context(), old, func(ctx context.Context, tx *sql.Tx) error {
						// Long enough that somebody always holds the row.
						if d == sqlfence.PostgreSQL {
							_, err := tx.Exec(`SELECT pg_sleep(0.02)`)
							return err
						}
						_, err := tx.Exec(`DO SLEEP(0.02)`)
						return err
					})
					switch {
					case errors.Is(err, fence.ErrStale):
						return
					case err != nil:
						t.Error(err)
						return
					}
					writes.Add(1)
				}
			})
		}
		eventually(t, "writers at work", func() bool { return writes.Load() > 24 })
		begun := time.Now()
		err := w.f.Claim(t.Context(), []fence.Stamp{at(1, 6, "new")})
		took := time.Since(begun)
		stop.Store(true)
		wg.Wait()
		if err != nil || took > 15*time.Second {
			t.Errorf("the claim took %s: %v", took, err)
		}
	})
}

// Several writers of one lease work at the same time.
func TestWritersOfOneLeaseShareTheRow(t *testing.T) {
	eachOf(t, servers, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 4)
		s := at(1, 5, "a")
		w.claim(t, s)
		for range 3 {
			if err := w.f.Guard(t.Context(), w.begin(t), s); err != nil { // all stay open
				t.Fatal(err)
			}
		}
		if d == sqlfence.PostgreSQL {
			before := w.number(t, `SELECT (ctid::text::point)[1]::bigint FROM leasehold_fence`)
			if err := w.write(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if after := w.number(t, `SELECT (ctid::text::point)[1]::bigint FROM leasehold_fence`); after != before {
				t.Error("a repeated write of one lease wrote the row anew")
			}
		}
	})
}

// The guard bounds waiting and idling, by the shorter of its own TTL and that of
// the context, for the transaction only, and leaves a shorter setting of the
// user alone.
func TestGuardSetsTimeoutsForItsTransaction(t *testing.T) {
	w := newWorld(t, sqlfence.PostgreSQL, 1, sqlfence.WithTTL(5*time.Second))
	show := func(q interface {
		QueryRow(string, ...any) *sql.Row
	}) (s string) {
		t.Helper()
		if err := q.QueryRow(`SELECT current_setting('lock_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout')`).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name, before, want string
		ttl                time.Duration
		token              fence.Token
	}{
		{"first of its token", "", "5s 5s", 0, 1},
		{"repeated", "", "5s 5s", 0, 1},
		{"TTL of the context", "", "3s 3s", 3 * time.Second, 1},
		{"longer TTL of the context", "", "5s 5s", 30 * time.Second, 1},
		{"TTL in milliseconds", "", "1500ms 1500ms", 1500 * time.Millisecond, 1},
		{"shorter by the user", "SET LOCAL lock_timeout = '200ms'", "200ms 5s", 0, 1},
		{"longer by the user", "SET LOCAL lock_timeout = '2min'", "5s 5s", 0, 1},
		{"refused", "", "5s 5s", 0, 0},
	} {
		ctx := t.Context()
		if c.ttl > 0 {
			ctx = fence.NewContext(ctx, fence.Stamp{}, c.ttl)
		}
		tx := w.begin(t)
		if c.before != "" {
			if _, err := tx.Exec(c.before); err != nil {
				t.Fatal(err)
			}
		}
		s := at(1, 7, "a")
		if c.token == 0 {
			s.Token = 6
			wantReason(t, w.f.Guard(ctx, tx, s), fence.ReasonStale)
		} else if err := w.f.Guard(ctx, tx, s); err != nil {
			t.Fatal(err)
		}
		if got := show(tx); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		tx.Commit()
		if got := show(w.db); got != "0 0" {
			t.Errorf("%s: %s after the transaction", c.name, got)
		}
	}
}

// The timeouts hold for the wait of the very statement that sets them: behind
// another transaction's row lock, and behind a claim's turnstile.
func TestTimeoutHoldsForTheGuardsOwnWait(t *testing.T) {
	eachOf(t, servers, func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		w := newWorld(t, d, 2, sqlfence.WithTTL(time.Second))
		w.claim(t, at(1, 5, "a"))
		locks := []string{`UPDATE leasehold_fence SET token = 6`}
		if d == sqlfence.PostgreSQL {
			locks = append(locks, `SELECT pg_advisory_xact_lock(1818583411, hashtext('orders/1'))`)
		}
		holder := w.other(t, 1)
		for _, lock := range locks {
			tx := holder.begin(t)
			if _, err := tx.Exec(lock); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			err := w.write(ctx, at(1, 5, "a"))
			cancel()
			if !errors.Is(err, sqlfence.ErrBlocked) || !sqlfence.Retryable(err) {
				t.Errorf("behind %q: got %v, want ErrBlocked", lock, err)
			}
			tx.Rollback()
			if err := w.write(t.Context(), at(1, 5, "a")); err != nil {
				t.Errorf("tried again: %v", err)
			}
		}
	})
}

// MariaDB's idle timeout belongs to the connection: the guard sets it where it
// is longer or missing, and the wait for a lock does not leak.
func TestMariaDBSession(t *testing.T) {
	w := newWorld(t, sqlfence.MariaDB, 1, sqlfence.WithTTL(4*time.Second))
	if err := w.write(t.Context(), at(1, 1, "a")); err != nil {
		t.Fatal(err)
	}
	if n := w.number(t, `SELECT @@idle_transaction_timeout`); n != 4 {
		t.Errorf("idle_transaction_timeout %d, want 4", n)
	}
	if n := w.number(t, `SELECT @@innodb_lock_wait_timeout`); n != 50 {
		t.Errorf("innodb_lock_wait_timeout %d, want the server's", n)
	}
	own := w.base.with("idle_transaction_timeout", "2")
	v := &world{own, nil, own.open(t, 1)}
	v.f = sqlfence.New(v.db, v.dialect, sqlfence.WithTTL(4*time.Second))
	if err := v.write(t.Context(), at(1, 1, "a")); err != nil {
		t.Fatal(err)
	}
	if n := v.number(t, `SELECT @@idle_transaction_timeout`); n != 2 {
		t.Errorf("idle_transaction_timeout %d, want the user's 2", n)
	}
}
