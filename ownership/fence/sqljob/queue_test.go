package sqljob_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqljob"
)

// Who may claim which row. O-71: tokens are compared as numbers; O-73: an equal
// token of another owner is refused.
func TestClaimRule(t *testing.T) {
	cases := []struct {
		state string
		token fence.Token
		owner string
		by    fence.Stamp
		want  bool
	}{
		{"open", 0, "", at(1, "b"), true},
		{"open", 9, "a", at(10, "b"), true},
		{"open", 10, "a", at(9, "b"), false},
		{"open", 99, "a", at(100, "a"), true},
		{"open", 100, "a", at(99, "a"), false},
		{"open", 5, "a", at(5, "a"), true},
		{"open", 5, "a", at(5, "b"), false},
		{"claimed", 5, "a", at(5, "a"), false}, // it has it already
		{"claimed", 5, "a", at(5, "b"), false},
		{"claimed", 9, "a", at(10, "b"), true},
		{"claimed", 10, "a", at(9, "b"), false},
		{"claimed", 9, "a", at(10, "a"), true}, // the same worker under a new lease
		{"claimed", fence.MaxToken - 1, "a", at(fence.MaxToken, "b"), true},
		{"claimed", fence.MaxToken, "a", at(fence.MaxToken-1, "b"), false},
		{"claimed", 0, "", at(1, "b"), true},
		{"done", 5, "a", at(6, "b"), false},
		{"failed", 5, "a", at(6, "b"), false},
		{"open", 0, "", fence.Stamp{Keyspace: "mails", Partition: 2, Token: 9, Owner: "b"}, false},
		{"open", 0, "", fence.Stamp{Keyspace: "Mails", Partition: 1, Token: 9, Owner: "b"}, false},
		{"open", 0, "", fence.Stamp{Keyspace: "mails ", Partition: 1, Token: 9, Owner: "b"}, false},
	}
	each(t, func(t *testing.T, db database) {
		q := db.queue(t)
		for _, c := range cases {
			db.exec(t, "DELETE FROM leasehold_job")
			db.add(t, 7)
			db.exec(t, fmt.Sprintf("UPDATE leasehold_job SET state = '%s', token = %d, owner = '%s', attempts = 3", c.state, c.token, c.owner))
			jobs, err := q.Claim(t.Context(), c.by, 10)
			if err != nil || (len(jobs) == 1) != c.want {
				t.Errorf("%s under %d of %q claimed by %s: got %v, %v, want %v", c.state, c.token, c.owner, c.by, jobs, err, c.want)
			}
			want := fmt.Sprintf("%s %d %s 3", c.state, c.token, c.owner)
			if c.want {
				want = fmt.Sprintf("claimed %d %s 4", c.by.Token, c.by.Owner)
				if jobs[0].ID != 7 || jobs[0].Attempts != 4 || string(jobs[0].Payload) != "to 7" {
					t.Errorf("got job %+v", jobs[0])
				}
			}
			if got := row(t, db, 7); got != want {
				t.Errorf("the row is %q, want %q", got, want)
			}
		}
	})
}

func row(t *testing.T, db database, id int64) string {
	t.Helper()
	var state, owner string
	var token, attempts int64
	if err := db.QueryRow(fmt.Sprintf("SELECT state, token, owner, attempts FROM leasehold_job WHERE id = %d", id)).Scan(&state, &token, &owner, &attempts); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(state, " ", token, " ", owner, " ", attempts)
}

// Who may end which row: whoever claimed it, and nobody else. Zero rows are
// never success.
func TestEndRule(t *testing.T) {
	stale := func(reason string) func(error) bool {
		return func(err error) bool {
			var s *fence.StaleError
			return errors.As(err, &s) && s.Reason == reason && s.Current == 34 && s.CurrentOwner == "w4"
		}
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	other := func(err error) bool { return err != nil && !errors.Is(err, fence.ErrStale) }
	cases := []struct {
		state string // of the row, under token 34 of w4
		by    fence.Stamp
		ok    func(error) bool // nil: accepted
	}{
		{"claimed", at(34, "w4"), nil},
		{"claimed", at(33, "w2"), stale(fence.ReasonStale)},
		{"claimed", at(33, "w4"), stale(fence.ReasonStale)},
		{"claimed", at(9, "w2"), stale(fence.ReasonStale)},
		{"claimed", at(34, "w2"), stale(fence.ReasonOtherOwner)},
		{"claimed", at(34, "W4"), stale(fence.ReasonOtherOwner)},
		{"claimed", at(35, "w5"), other}, // has not claimed it
		{"open", at(33, "w2"), stale(fence.ReasonStale)},
		{"done", at(33, "w2"), stale(fence.ReasonStale)},
		{"done", at(34, "w4"), is(sqljob.ErrEnded)},
		{"open", at(34, "w4"), is(sqljob.ErrEnded)},
		{"failed", at(34, "w4"), is(sqljob.ErrEnded)},
		{"missing", at(34, "w4"), is(sqljob.ErrNoJob)},
		{"claimed", fence.Stamp{Keyspace: "mails", Partition: 1, Owner: "w4"}, is(fence.ErrInvalid)},
	}
	each(t, func(t *testing.T, db database) {
		var n fence.Tally
		q := newQueue(t, db.DB, db.dialect, sqljob.Table{}, &n)
		for name, c := range map[string]struct {
			end func(context.Context, sqljob.Querier, fence.Stamp, int64) error
			to  string
		}{"Done": {q.Done, "done"}, "Release": {q.Release, "open"}, "Fail": {q.Fail, "failed"}} {
			for _, k := range cases {
				db.exec(t, "DELETE FROM leasehold_job")
				want := k.state + " 34 w4 2"
				if k.state != "missing" {
					db.add(t, 7)
					db.exec(t, fmt.Sprintf("UPDATE leasehold_job SET state = '%s', token = 34, owner = 'w4', attempts = 2", k.state))
				}
				err := c.end(t.Context(), db.DB, k.by, 7)
				if k.ok == nil {
					want = c.to + " 34 w4 2"
					if err != nil {
						t.Errorf("%s by %s: %v", name, k.by, err)
					}
				} else if !k.ok(err) {
					t.Errorf("%s of a row that is %s by %s: got %v", name, k.state, k.by, err)
				}
				if k.state == "missing" {
					continue
				}
				if got := row(t, db, 7); got != want {
					t.Errorf("%s by %s: the row is %q, want %q", name, k.by, got, want)
				}
			}
		}
		if n.Rejections() != 3*7 || n.OtherOwner() != 3*2 || n.Checks() != 3*8 {
			t.Errorf("the counter heard of %d refusals, %d of them of other owners, in %d", n.Rejections(), n.OtherOwner(), n.Checks())
		}
	})
}

// The story of the package: w2 claims, is paused, loses its lease; w4 takes the
// row over; w2 wakes up inside its transaction.
func TestZombieBounces(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		q := db.queue(t)
		db.add(t, 1, 2, 3)
		if got := claim(t, q, at(33, "w2"), 2); !slices.Equal(got, []int64{1, 2}) {
			t.Fatalf("w2 got %v", got)
		}
		if got := claim(t, q, at(34, "w4"), 10); !slices.Equal(got, []int64{1, 2, 3}) {
			t.Fatalf("w4 got %v, want the rows of w2 first", got)
		}
		err := run(t.Context(), db.DB, q, at(33, "w2"), 1)
		if !errors.Is(err, fence.ErrStale) {
			t.Fatalf("got %v, want ErrStale", err)
		}
		if want := "end job 1: write to mails/1 token 33 of w2 refused: the resource has seen token 34 of w4"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
		if got := claim(t, q, at(33, "w2"), 10); got != nil {
			t.Errorf("w2 claimed %v again", got)
		}
		for id := int64(1); id <= 3; id++ {
			if err := run(t.Context(), db.DB, q, at(34, "w4"), id); err != nil {
				t.Error(err)
			}
		}
		if n := db.count(t, "effects WHERE token = 34"); n != 3 || db.count(t, "effects") != 3 {
			t.Errorf("%d of %d effects are of w4, want 3 of 3", n, db.count(t, "effects"))
		}
	})
}

// A released row keeps its token, so that a lower one does not get it.
func TestReleasedJobKeepsItsToken(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		q := db.queue(t)
		db.add(t, 1)
		claim(t, q, at(34, "w4"), 1)
		if err := q.Release(t.Context(), db.DB, at(34, "w4"), 1); err != nil {
			t.Fatal(err)
		}
		for _, s := range []fence.Stamp{at(33, "w2"), at(33, "w4"), at(34, "w2")} {
			if got := claim(t, q, s, 1); got != nil {
				t.Errorf("%s claimed a row released under 34", s)
			}
		}
		if got := claim(t, q, at(34, "w4"), 1); len(got) != 1 {
			t.Error("the owner could not claim again what it had released")
		}
	})
}

func TestLimitOrderAndHeld(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		q := db.queue(t)
		db.add(t, 5, 3, 9, 1, 7)
		s := at(10, "a")
		if got := claim(t, q, s, 2); !slices.Equal(got, []int64{1, 3}) {
			t.Errorf("got %v, want 1 and 3", got)
		}
		if got := claim(t, q, s, 2); !slices.Equal(got, []int64{5, 7}) {
			t.Errorf("got %v, want 5 and 7", got)
		}
		if err := q.Done(t.Context(), db.DB, s, 3); err != nil {
			t.Fatal(err)
		}
		// What a claim whose answer was lost leaves behind.
		held, err := q.Held(t.Context(), s, 10)
		if err != nil || !slices.Equal(ids(held), []int64{1, 5, 7}) || held[0].Attempts != 1 || string(held[0].Payload) != "to 1" {
			t.Errorf("held %+v, %v", held, err)
		}
		if held, err := q.Held(t.Context(), at(10, "b"), 10); err != nil || held != nil {
			t.Errorf("another owner holds %v, %v", held, err)
		}
		// The limit goes over both kinds.
		if got := claim(t, q, at(11, "b"), 4); !slices.Equal(got, []int64{1, 5, 7, 9}) {
			t.Errorf("got %v, want 1, 5, 7 of a and 9", got)
		}
		for _, limit := range []int{0, -1, sqljob.MaxLimit + 1} {
			if _, err := q.Claim(t.Context(), s, limit); err == nil || !strings.Contains(err.Error(), fmt.Sprint(limit)) {
				t.Errorf("limit %d: got %v", limit, err)
			}
		}
		if _, err := q.Claim(t.Context(), at(0, "a"), 1); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("token 0: got %v, want ErrInvalid", err)
		}
	})
}

func TestClaimOfAsManyAsThereMayBe(t *testing.T) {
	each(t, func(t *testing.T, db database) {
		q := db.queue(t)
		var b strings.Builder
		b.WriteString("INSERT INTO leasehold_job (keyspace, partition_id) VALUES ('mails', 1)")
		for range sqljob.MaxLimit {
			b.WriteString(", ('mails', 1)")
		}
		db.exec(t, b.String())
		if got := claim(t, q, at(1, "a"), sqljob.MaxLimit); len(got) != sqljob.MaxLimit {
			t.Errorf("claimed %d, want %d", len(got), sqljob.MaxLimit)
		}
		if got := claim(t, q, at(2, "b"), sqljob.MaxLimit); len(got) != sqljob.MaxLimit {
			t.Errorf("took over %d, want %d", len(got), sqljob.MaxLimit)
		}
	})
}

// A program's own table: text ids, other names and words, NULL where the rows
// are older than the columns.
func TestOwnTable(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			db := empty(t, d)
			create := `CREATE TABLE "Order" ("key" VARCHAR(40) PRIMARY KEY, "group" BIGINT NOT NULL, "status" VARCHAR(20) NOT NULL, "select" BIGINT, "user" VARCHAR(99), "tries" BIGINT, "rank" INTEGER NOT NULL)`
			insert := `INSERT INTO "Order" ("key", "group", "status", "rank") VALUES ('x''1', 1, 'pending', 3), ('😀', 1, 'pending', 1), ('b', 1, 'running', 2), ('c', 2, 'pending', 0), ('e', 1, 'ok', 0)`
			schema := ""
			switch d {
			case sqlfence.MariaDB:
				create, insert = strings.ReplaceAll(create, `"`, "`")+" CHARACTER SET utf8mb4", strings.ReplaceAll(insert, `"`, "`")
			case sqlfence.SQLite:
				schema = "main."
			}
			db.exec(t, create)
			db.exec(t, insert)
			q, err := sqljob.New[string](db.DB, d, sqljob.Table{
				Name: schema + "Order", ID: "key", Partition: "group", State: "status", Token: "select", Owner: "user", Attempts: "tries", Order: "rank",
				Open: "pending", Claimed: "running", Done: "ok", Failed: "dead",
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			jobs, err := q.Claim(t.Context(), at(7, "a"), 10)
			if got := fmt.Sprint(jobs); err != nil || got != "[{b 1 []} {😀 1 []} {x'1 1 []}]" {
				t.Fatalf("got %s, %v", got, err)
			}
			if err := q.Done(t.Context(), db.DB, at(7, "a"), "x'1"); err != nil {
				t.Error(err)
			}
			if err := q.Fail(t.Context(), db.DB, at(7, "a"), "😀"); err != nil {
				t.Error(err)
			}
			if err := q.Done(t.Context(), db.DB, at(6, "z"), "b"); !errors.Is(err, fence.ErrStale) {
				t.Errorf("got %v, want ErrStale", err)
			}
			if jobs, err = q.Claim(t.Context(), at(8, "b"), 10); err != nil || fmt.Sprint(jobs) != "[{b 2 []}]" {
				t.Errorf("got %v, %v", jobs, err)
			}
		})
	}
}

func TestNamesThatCannotBeOnes(t *testing.T) {
	db := empty(t, sqlfence.SQLite)
	long := strings.Repeat("x", 64)
	for name, table := range map[string]sqljob.Table{
		"Name":      {Name: `jobs"; DROP TABLE x; --`},
		"dots":      {Name: "a.b.c"},
		"no schema": {Name: ".b"},
		"ID":        {ID: "1d"},
		"Partition": {Partition: "a b"},
		"State":     {State: "é"},
		"Token":     {Token: long},
		"Owner":     {Owner: "a\x00"},
		"Attempts":  {Attempts: "a-b"},
		"Order":     {Order: "id DESC"},
		"Keyspace":  {Name: "jobs", Keyspace: "`"},
		"Payload":   {Name: "jobs", Payload: "a'"},
		"Open":      {Open: "o'pen"},
		"Done":      {Done: "open"},
		"Failed":    {Failed: strings.Repeat("x", 1<<20)},
	} {
		_, err := sqljob.New[int64](db.DB, db.dialect, table, nil)
		if !errors.Is(err, sqljob.ErrTable) || len(err.Error()) > 300 {
			t.Errorf("%s: got %.100v, want a short ErrTable", name, err)
		}
	}
	if _, err := sqljob.New[int64](db.DB, sqlfence.Dialect(99), sqljob.Table{}, nil); err == nil {
		t.Error("an unknown dialect was accepted")
	}
}

// O-71: a token column that would compare as text, or cannot hold a token, is
// refused, and nothing is changed.
func TestTablesThatWillNotDo(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			types := map[sqlfence.Dialect][]string{
				sqlfence.SQLite:     {"TEXT", "REAL", ""},
				sqlfence.PostgreSQL: {"TEXT", "INTEGER", "NUMERIC", "DOUBLE PRECISION"},
				sqlfence.MariaDB:    {"VARCHAR(20)", "INTEGER", "DOUBLE"},
			}[d]
			db := empty(t, d)
			for i, typ := range types {
				name := fmt.Sprint("jobs", i)
				db.exec(t, "CREATE TABLE "+name+" (id BIGINT PRIMARY KEY, partition_id BIGINT, state VARCHAR(8), token "+typ+", owner VARCHAR(9), attempts BIGINT)")
				db.exec(t, "INSERT INTO "+name+" VALUES (1, 1, 'open', NULL, NULL, 0), (2, 1, 'claimed', '9', 'a', 0)")
				q := newQueue(t, db.DB, d, sqljob.Table{Name: name}, nil)
				if _, err := q.Claim(t.Context(), at(10, "b"), 9); !errors.Is(err, sqljob.ErrTokenType) {
					t.Errorf("%s: claim: got %v, want ErrTokenType", typ, err)
				}
				if err := q.Done(t.Context(), db.DB, at(9, "a"), 2); err == nil {
					t.Errorf("%s: Done was accepted", typ)
				}
				tx, err := db.Begin()
				if err != nil {
					t.Fatal(err)
				}
				if err := q.Done(t.Context(), tx, at(9, "a"), 2); err == nil {
					t.Errorf("%s: Done was accepted in a transaction", typ)
				}
				tx.Rollback()
				if n := db.count(t, name+" WHERE state = 'done' OR attempts > 0"); n != 0 {
					t.Errorf("%s: %d rows were changed", typ, n)
				}
			}
			if _, err := db.queue(t).Claim(t.Context(), at(1, "a"), 1); !errors.Is(err, sqljob.ErrColumn) {
				t.Errorf("no table: got %v, want ErrColumn", err)
			}
			db.exec(t, "CREATE TABLE half (id BIGINT PRIMARY KEY, partition_id BIGINT, state VARCHAR(8), token BIGINT, owner VARCHAR(9))")
			q := newQueue(t, db.DB, d, sqljob.Table{Name: "half"}, nil)
			if _, err := q.Claim(t.Context(), at(1, "a"), 1); !errors.Is(err, sqljob.ErrColumn) || !strings.Contains(err.Error(), "attempts") {
				t.Errorf("no attempts: got %v, want ErrColumn that names it", err)
			}
		})
	}
}

// The driver's way of counting rows does not matter.
func TestMariaDBClientFoundRows(t *testing.T) {
	db := fresh(t, sqlfence.MariaDB)
	other := db.open(t, db.dsn+"?clientFoundRows=true&interpolateParams=true", 2)
	q := newQueue(t, other, db.dialect, sqljob.Table{}, nil)
	db.add(t, 1)
	claim(t, q, at(33, "w2"), 1)
	claim(t, q, at(34, "w4"), 1)
	if err := run(t.Context(), other, q, at(33, "w2"), 1); !errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
	if err := run(t.Context(), other, q, at(34, "w4"), 1); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), other, q, at(34, "w4"), 1); !errors.Is(err, sqljob.ErrEnded) {
		t.Errorf("a second Done: got %v, want ErrEnded", err)
	}
}

var _ = []sqljob.Querier{(*sql.DB)(nil), (*sql.Tx)(nil), (*sql.Conn)(nil)}
