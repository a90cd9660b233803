package sqlfence_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// forms are the statements of a file for other languages, by name.
func forms(t *testing.T, d sqlfence.Dialect) map[string]string {
	t.Helper()
	name := d.String()
	if d == sqlfence.MySQL {
		name = "mariadb"
	}
	b, err := fs.ReadFile(sqlfence.Schemas, "sql/"+name+"-write.sql")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, part := range strings.Split(string(b), "-- name: ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		all[name] = text
	}
	return all
}

// bank is a world with the tables that the forms write.
func bank(t *testing.T, d sqlfence.Dialect) *world {
	t.Helper()
	w := newWorld(t, d, 3)
	w.exec(t, `CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT, token BIGINT NOT NULL, owner VARCHAR(40) NOT NULL)`)
	w.exec(t, `CREATE TABLE journal (account BIGINT, amount BIGINT)`)
	w.exec(t, `INSERT INTO accounts VALUES (1, 0, 0, '')`)
	return w
}

// args gives a form its parameters, in the order that its dialect wants.
func args(d sqlfence.Dialect, form string, s fence.Stamp, value int64) []any {
	k, p, tok, o, id := s.Keyspace, int64(s.Partition), int64(s.Token), s.Owner, int64(1)
	pg := d == sqlfence.PostgreSQL
	switch form {
	case "claim":
		return []any{k, p, tok, o}
	case "guard":
		if pg {
			return []any{k, p, tok, o, "10s"}
		}
		return []any{k, p, tok, o}
	case "claim own token":
		if pg {
			return []any{id, tok, o}
		}
		return []any{tok, o, id, tok, tok, o}
	case "write own token":
		if pg {
			return []any{id, tok, o, value}
		}
		return []any{value, tok, o, id, tok, tok, o}
	case "update locking the fence":
		switch d {
		case sqlfence.PostgreSQL:
			return []any{k, p, tok, o, id, value}
		case sqlfence.SQLite:
			return []any{value, id, k, p, tok, o}
		}
		return []any{k, p, tok, o, value, id}
	}
	if pg {
		return []any{k, p, tok, o, id, value}
	}
	return []any{id, value, k, p, tok, o}
}

// The statements for other languages accept and refuse as the guard does, and
// get on with it in one table.
func TestFormsForOtherLanguages(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w, f := bank(t, d), forms(t, d)
		old, now := at(1, 9, "old"), at(1, 10, "new")
		run := func(form string, s fence.Stamp, value int64) error {
			t.Helper()
			if form == "guard" {
				var n int
				err := w.db.QueryRow(f[form], args(d, form, s, value)...).Scan(&n)
				if errors.Is(err, sql.ErrNoRows) {
					return &sqlfence.NotAppliedError{Stamp: s}
				}
				return err
			}
			res, err := w.db.Exec(f[form], args(d, form, s, value)...)
			if err != nil {
				t.Fatalf("%s: %v", form, err)
			}
			return sqlfence.Applied(res, s)
		}
		writes := []string{"guard", "write own token", "update locking the fence", "insert locking the fence"}
		for i, s := range []fence.Stamp{old, now} {
			for _, form := range append([]string{"claim", "claim own token"}, writes...) {
				if err := run(form, s, int64(i)); err != nil {
					t.Errorf("%s of %s: %v", form, s, err)
				}
			}
			if m := w.seen(t, orders(1)); m != (fence.Mark{Token: s.Token, Owner: s.Owner}) {
				t.Errorf("after its claim in SQL the table holds %v", m)
			}
		}
		for _, form := range append([]string{"claim own token"}, writes...) {
			for _, s := range []fence.Stamp{old, at(1, 10, "other")} {
				if err := run(form, s, 77); !errors.Is(err, fence.ErrStale) {
					t.Errorf("%s of %s: %v, want a refusal", form, s, err)
				}
			}
		}
		run("claim", old, 0) // changes nothing, whatever it answers
		if m := w.seen(t, orders(1)); m.Token != 10 || m.Owner != "new" {
			t.Errorf("an older claim left %v", m)
		}
		wantReason(t, w.write(t.Context(), old), fence.ReasonStale)
		if n := w.number(t, `SELECT count(*) FROM journal WHERE amount = 77`) + w.number(t, `SELECT count(*) FROM accounts WHERE balance = 77`); n != 0 {
			t.Errorf("%d refused writes are there", n)
		}
	})
}

// Two ways for a stale write to slip past a check in the statement. With the
// plain sub-select it does; with the forms of the files it does not.
func TestPlainSubqueryIsWriteSkew(t *testing.T) {
	eachOf(t, servers, func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		const plain = "plain sub-select"
		for _, form := range []string{plain, "update locking the fence", "write own token"} {
			for _, late := range []string{"commit after the claim", "wait for the new owner's row"} {
				t.Run(form+"/"+late, func(t *testing.T) {
					w, f := bank(t, d), forms(t, d)
					f[plain] = w.sql(`UPDATE accounts SET balance = ? WHERE id = 1 AND (SELECT token FROM leasehold_fence WHERE keyspace = 'orders' AND partition_id = 1) <= ?`)
					write := func(tx *sql.Tx, s fence.Stamp, value int64) (int64, error) {
						a := []any{value, int64(s.Token)}
						if form != plain {
							a = args(d, form, s, value)
						}
						res, err := tx.Exec(f[form], a...)
						if err != nil {
							return 0, err
						}
						return res.RowsAffected()
					}
					begin := func() *sql.Tx {
						tx, err := w.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
						if err != nil {
							t.Fatal(err)
						}
						t.Cleanup(func() { tx.Rollback() })
						return tx
					}
					old, now := at(1, 5, "old"), at(1, 6, "new")
					w.claim(t, old)
					zombie := begin()
					claimed := make(chan error, 1)
					stale := false
					if late == "commit after the claim" {
						if n, err := write(zombie, old, 5); err != nil || n < 1 {
							t.Fatal(n, err)
						}
						go func() {
							err := w.f.Claim(t.Context(), []fence.Stamp{now})
							if form == "write own token" && err == nil {
								var res sql.Result
								if res, err = w.db.Exec(f["claim own token"], args(d, "claim own token", now, 0)...); err == nil {
									err = sqlfence.Applied(res, now)
								}
							}
							claimed <- err
						}()
						select {
						case err := <-claimed: // it did not wait for the zombie
							claimed <- err
							stale = true
						case <-time.After(600 * time.Millisecond):
						}
						if err := zombie.Commit(); err != nil {
							t.Fatal(err)
						}
						if err := <-claimed; err != nil {
							t.Fatal(err)
						}
					} else {
						// The new owner claims and writes in one transaction; the
						// zombie's statement begins before that commits.
						owner := begin()
						if err := w.f.Guard(t.Context(), owner, now); err != nil {
							t.Fatal(err)
						}
						if n, err := write(owner, now, 6); err != nil || n < 1 {
							t.Fatal(n, err)
						}
						go func() {
							n, err := write(zombie, old, 5)
							stale = n > 0
							claimed <- err
						}()
						select {
						case err := <-claimed:
							t.Fatalf("the zombie did not wait: %v", err)
						case <-time.After(300 * time.Millisecond):
						}
						if err := owner.Commit(); err != nil {
							t.Fatal(err)
						}
						if err := <-claimed; err != nil && !sqlfence.Retryable(err) {
							t.Fatal(err)
						}
						zombie.Commit()
						if overwritten := w.number(t, `SELECT balance FROM accounts WHERE id = 1`) == 5; overwritten != stale {
							t.Errorf("balance overwritten %v, rows affected %v", overwritten, stale)
						}
					}
					if d == sqlfence.PostgreSQL && stale != (form == plain) || stale && form != plain {
						t.Errorf("stale write accepted: %v", stale)
					}
				})
			}
		}
	})
}
