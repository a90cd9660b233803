package sqlonce_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlonce"
)

func TestRepeatIsAnsweredFromTheFirstResult(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		for name, result := range map[string][]byte{
			"text": []byte("paid"), "bytes": {0, 1, 0xff, '\'', 0}, "empty": {}, "nil": nil,
			"longest": bytes.Repeat([]byte{0xa5}, sqlonce.MaxResultLen),
		} {
			got, replayed, err := db.once().Do(t.Context(), name, []byte("body"), func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
				return result, nil
			})
			if err != nil || replayed || !bytes.Equal(got, result) {
				t.Fatalf("%s: %.20q, %v, %v", name, got, replayed, err)
			}
			for range 2 {
				got, replayed, err = db.once().Do(t.Context(), name, []byte("body"), mustNotRun(t))
				if err != nil || !replayed || !bytes.Equal(got, result) {
					t.Fatalf("%s again: %.20q, %v, %v", name, got, replayed, err)
				}
			}
		}
	})
}

func TestAnotherRequestUnderTheSameKeyIsRefused(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		once := db.once()
		if _, _, err := once.Do(t.Context(), "k", []byte("pay 10"), effect("first")); err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"pay 100", "", "pay 10 "} {
			_, replayed, err := once.Do(t.Context(), "k", []byte(other), mustNotRun(t))
			if !errors.Is(err, sqlonce.ErrMismatch) || replayed {
				t.Errorf("%q: got %v, %v, want ErrMismatch", other, replayed, err)
			}
		}
		if got, replayed, err := once.Do(t.Context(), "k", []byte("pay 10"), mustNotRun(t)); string(got) != "first" || !replayed || err != nil {
			t.Errorf("the right request afterwards: %q, %v, %v", got, replayed, err)
		}
	})
}

// Whatever way a call fails, the next one with its key does the work.
func TestFailedCallKeepsNothing(t *testing.T) {
	errFull := errors.New("account is empty")
	fail := func(err error, result []byte, panics bool) sqlonce.Func {
		return func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			if _, err := effect("failed")(ctx, tx); err != nil {
				return nil, err
			}
			if panics {
				panic("fn")
			}
			return result, err
		}
	}
	each(t, func(t *testing.T, db database) {
		once := db.once()
		inTx := func(ctx context.Context, fn sqlonce.Func) (err error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			// A caller who should roll back, and commits.
			defer func() { err = errors.Join(err, tx.Commit()) }()
			_, _, err = once.DoTx(ctx, tx, "k", nil, fn)
			return err
		}
		own := func(ctx context.Context, fn sqlonce.Func) error {
			_, _, err := once.Do(ctx, "k", nil, fn)
			return err
		}
		for name, do := range map[string]func(context.Context, sqlonce.Func) error{"Do": own, "DoTx": inTx} {
			if err := do(t.Context(), fail(errFull, nil, false)); !errors.Is(err, errFull) {
				t.Errorf("%s: got %v, want fn's own error", name, err)
			}
			if err := do(t.Context(), fail(nil, make([]byte, sqlonce.MaxResultLen+1), false)); !errors.Is(err, sqlonce.ErrResultTooLong) {
				t.Errorf("%s: got %v, want ErrResultTooLong", name, err)
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s swallowed a panic", name)
					}
				}()
				_ = do(t.Context(), fail(nil, nil, true))
			}()
			if n, rows := db.count(t, "effects"), db.count(t, "leasehold_once"); n != 0 || rows != 0 {
				t.Fatalf("%s: %d writes and %d keys of failed calls were kept", name, n, rows)
			}
		}
		if got, replayed, err := once.Do(t.Context(), "k", nil, effect("done")); string(got) != "done" || replayed || err != nil {
			t.Errorf("after the failures: %q, %v, %v", got, replayed, err)
		}
	})
}

func TestKeys(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		once := db.once()
		good := []string{
			"a", "A", "a ", " a", `'"; DROP TABLE leasehold_once; --`, "`k`", `back\slash`, "é", "e\u0301", "😀", "%", "_",
			strings.Repeat("k", sqlonce.MaxKeyLen), strings.Repeat("k", sqlonce.MaxKeyLen-1), strings.Repeat("é", 127),
		}
		for _, key := range good {
			if got, replayed, err := once.Do(t.Context(), key, nil, func(context.Context, *sql.Tx) ([]byte, error) { return []byte(key), nil }); err != nil || replayed || string(got) != key {
				t.Errorf("%q: %q, %v, %v", key, got, replayed, err)
			}
		}
		for _, key := range good {
			if got, replayed, err := once.Do(t.Context(), key, nil, mustNotRun(t)); err != nil || !replayed || string(got) != key {
				t.Errorf("%q again: %q, %v, %v", key, got, replayed, err)
			}
		}
		for _, key := range []string{"", strings.Repeat("k", sqlonce.MaxKeyLen+1), strings.Repeat("k", 1<<20), "a\x00b", "\xff"} {
			_, _, err := once.Do(t.Context(), key, nil, mustNotRun(t))
			if !errors.Is(err, sqlonce.ErrInvalid) || len(err.Error()) > 250 {
				t.Errorf("%.20q: got %.80v, want a short ErrInvalid", key, err)
			}
		}
		if n := db.count(t, "leasehold_once"); n != len(good) {
			t.Errorf("%d rows, want %d", n, len(good))
		}
	})
}

// The lease under which a request was carried out is told to people.
func TestStampIsStored(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		ctx := fence.NewContext(t.Context(), fence.Stamp{Keyspace: "orders", Partition: 3, Token: fence.MaxToken, Owner: "w4"}, time.Second)
		for key, ctx := range map[string]context.Context{"with": ctx, "without": t.Context()} {
			if _, _, err := db.once().Do(ctx, key, nil, effect(key)); err != nil {
				t.Fatal(err)
			}
		}
		var token sql.NullInt64
		var owner sql.NullString
		if err := db.QueryRow(`SELECT token, owner FROM leasehold_once WHERE once_key = 'with'`).Scan(&token, &owner); err != nil || token.Int64 != int64(fence.MaxToken) || owner.String != "w4" {
			t.Errorf("got %v of %v, %v", token, owner, err)
		}
		if err := db.QueryRow(`SELECT token, owner FROM leasehold_once WHERE once_key = 'without'`).Scan(&token, &owner); err != nil || token.Valid || owner.Valid {
			t.Errorf("got %v of %v, %v; want NULL", token, owner, err)
		}
	})
}

func TestNesting(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		once := db.once()
		_, _, err := once.Do(t.Context(), "a", nil, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			if _, _, err := once.DoTx(ctx, tx, "b", nil, effect("inner")); err != nil {
				return nil, err
			}
			// Failed, undone and survived: the outer one is not touched.
			boom := errors.New("boom")
			_, _, err := once.DoTx(ctx, tx, "c", nil, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
				_, _ = effect("undone")(ctx, tx)
				return nil, boom
			})
			if !errors.Is(err, boom) {
				t.Errorf("got %v, want fn's error", err)
			}
			if _, _, err := once.DoTx(ctx, tx, "a", nil, mustNotRun(t)); !errors.Is(err, sqlonce.ErrNested) {
				t.Errorf("its own key: got %v, want ErrNested", err)
			}
			return effect("outer")(ctx, tx)
		})
		if err != nil {
			t.Fatal(err)
		}
		if n, rows := db.count(t, "effects"), db.count(t, "leasehold_once"); n != 2 || rows != 2 {
			t.Errorf("%d writes and %d keys, want 2 and 2", n, rows)
		}
	})
}

func TestNoTable(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			db := empty(t, d)
			db.SetMaxOpenConns(1) // looking for the table must not need a second connection
			once := db.once()
			if _, _, err := once.Do(t.Context(), "k", nil, mustNotRun(t)); !errors.Is(err, sqlonce.ErrNoTable) {
				t.Errorf("Do: got %v, want ErrNoTable", err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, _, err := once.DoTx(t.Context(), tx, "k", nil, mustNotRun(t)); !errors.Is(err, sqlonce.ErrNoTable) {
				t.Errorf("DoTx: got %v, want ErrNoTable", err)
			}
		})
	}
}

func TestBadConfiguration(t *testing.T) {
	db := fresh(t, sqlfence.SQLite)
	if _, _, err := db.once(sqlonce.WithWait(0)).Do(t.Context(), "k", nil, mustNotRun(t)); err == nil {
		t.Error("a wait of 0 was accepted")
	}
	if err := sqlonce.New(db.DB, sqlfence.Dialect(99)).Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "dialect(99)") {
		t.Errorf("unknown dialect: got %v", err)
	}
}

func TestPrune(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		once := db.once()
		ctx := t.Context()
		old := map[sqlfence.Dialect]string{
			sqlfence.SQLite:     `strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-90 minutes')`,
			sqlfence.PostgreSQL: `clock_timestamp() - interval '90 minutes'`,
			sqlfence.MariaDB:    `UTC_TIMESTAMP(3) - INTERVAL 90 MINUTE`,
		}[db.dialect]
		if _, _, err := once.Do(ctx, "old", nil, effect("old")); err != nil {
			t.Fatal(err)
		}
		// More than one batch.
		for range 11 {
			db.exec(t, `INSERT INTO leasehold_once (once_key, request, status, result) SELECT `+newKey(db.dialect)+`, request, status, result FROM leasehold_once`)
		}
		want := int64(db.count(t, "leasehold_once"))
		db.exec(t, `UPDATE leasehold_once SET created_at = `+old)
		if _, _, err := once.Do(ctx, "new", nil, effect("new")); err != nil {
			t.Fatal(err)
		}
		for _, age := range []time.Duration{-time.Hour, 0, 24, sqlonce.MinAge - 1} {
			if n, err := once.Prune(ctx, age); !errors.Is(err, sqlonce.ErrAge) || n != 0 {
				t.Errorf("age %v: got %d, %v, want ErrAge", age, n, err)
			}
		}
		if n, err := once.Prune(ctx, 2*time.Hour); err != nil || n != 0 {
			t.Errorf("2 h: deleted %d, %v, want 0", n, err)
		}
		if n, err := once.Prune(ctx, time.Hour); err != nil || n != want || want < 2000 {
			t.Errorf("1 h: deleted %d, %v, want %d", n, err, want)
		}
		if _, replayed, err := once.Do(ctx, "new", nil, mustNotRun(t)); err != nil || !replayed {
			t.Errorf("a young key: %v, %v", replayed, err)
		}
		// The documented price of an age that is too short.
		if _, replayed, err := once.Do(ctx, "old", nil, effect("again")); err != nil || replayed {
			t.Errorf("a pruned key: %v, %v", replayed, err)
		}
	})
}

// newKey is an expression for a new key.
func newKey(d sqlfence.Dialect) string {
	switch d {
	case sqlfence.PostgreSQL:
		return `gen_random_uuid()::text`
	case sqlfence.MariaDB:
		return `UUID()`
	}
	return `hex(randomblob(16))`
}
