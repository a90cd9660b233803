package sqlfence_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// Without its table a guard says so, accepts nothing and leaves nothing.
func TestMissingTable(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		b := newBase(t, d)
		db := b.open(t, 2)
		w := &world{b, sqlfence.New(db, d), db}
		if err := w.f.Claim(t.Context(), []fence.Stamp{at(1, 1, "a")}); !errors.Is(err, sqlfence.ErrNoTable) {
			t.Errorf("claim: %v", err)
		}
		if err := w.write(t.Context(), at(1, 1, "a")); !errors.Is(err, sqlfence.ErrNoTable) {
			t.Errorf("guard: %v", err)
		}
		if _, err := w.f.Seen(t.Context(), orders(1)); !errors.Is(err, sqlfence.ErrNoTable) {
			t.Errorf("seen: %v", err)
		}
		// And where it disappears later.
		if err := w.f.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.claim(t, at(1, 1, "a"))
		w.exec(t, `DROP TABLE leasehold_fence`)
		if err := w.write(t.Context(), at(1, 1, "a")); !errors.Is(err, sqlfence.ErrNoTable) {
			t.Errorf("dropped: %v", err)
		}
	})
	if err := sqlfence.New(nil, 9).Migrate(t.Context()); err == nil {
		t.Error("an unknown dialect was taken")
	}
}

// Migrate may be called again and by several at once.
func TestMigrateIsIdempotentAndConcurrent(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		b := newBase(t, d)
		var wg sync.WaitGroup
		for range 8 {
			db := b.open(t, 2)
			wg.Go(func() {
				f := sqlfence.New(db, d)
				for range 2 {
					if err := f.Migrate(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if err := f.Claim(t.Context(), []fence.Stamp{at(1, 1, "a")}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// O-71 and others: a table that is not ours is refused by Migrate and by the
// first use without it, with the column, what it is and what it should be.
func TestWrongTableIsRefused(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		schema, err := d.Schema()
		if err != nil {
			t.Fatal(err)
		}
		text := map[sqlfence.Dialect]string{sqlfence.SQLite: "TEXT", sqlfence.PostgreSQL: "TEXT"}[d]
		if text == "" {
			text = "VARCHAR(20)"
		}
		cases := []struct{ column, from, to string }{
			{"token", "BIGINT         NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991)", text + " NOT NULL"},
			{"token", "BIGINT           NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991)", text + " NOT NULL"},
			{"token", "BIGINT NOT NULL CHECK (typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991)", "NUMERIC"},
			{"owner", "  owner ", "  holder "},
			{"primary key", "PRIMARY KEY (keyspace, partition_id)", "PRIMARY KEY (keyspace)"},
			{"epoch", "  claimed_at ", "  epoch BIGINT, claimed_at "},
			{"engine", "InnoDB", "MyISAM"},
			{"keyspace", "keyspace     VARBINARY(255)", "keyspace     VARBINARY(128)"},
			{"keyspace", "keyspace     TEXT COLLATE \"C\"", "keyspace     VARCHAR(40)"},
		}
		ran := 0
		for _, c := range cases {
			made := strings.NewReplacer(c.from, c.to, "WITHOUT ROWID", "").Replace(schema)
			if !strings.Contains(schema, c.from) {
				continue
			}
			if c.column == "owner" {
				made = strings.ReplaceAll(made, "(owner)", "(holder)")
			}
			ran++
			b := newBase(t, d)
			db := b.open(t, 2)
			w := &world{b, sqlfence.New(db, d), db}
			w.exec(t, made)
			check := func(what string, err error) {
				t.Helper()
				var te *sqlfence.TableError
				exact := errors.As(err, &te) && te.Column == c.column
				if !errors.Is(err, sqlfence.ErrWrongTable) || !exact && (what == "migrate" || d != sqlfence.SQLite) {
					t.Errorf("%s with %s as %q: %v", what, c.column, c.to, err)
				}
				if c.column == "token" && !errors.Is(err, sqlfence.ErrTokenType) {
					t.Errorf("%s: %v, want ErrTokenType", what, err)
				}
			}
			check("migrate", w.f.Migrate(t.Context()))
			check("claim", w.f.Claim(t.Context(), []fence.Stamp{at(1, 9, "a")}))
			check("guard", w.write(t.Context(), at(1, 9, "a")))
			if n := w.number(t, `SELECT count(*) FROM leasehold_fence`); n != 0 {
				t.Errorf("with %s as %q the table holds %d rows", c.column, c.to, n)
			}
		}
		if ran < 4 {
			t.Errorf("only %d cases apply", ran)
		}
	})
}

// Rows that were edited by hand into what no guard writes: found by Migrate and
// by the first claim, and by whoever meets them later. Nothing is accepted.
func TestBadRowsAreRefused(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		table := map[sqlfence.Dialect]string{
			sqlfence.SQLite:     `CREATE TABLE leasehold_fence (keyspace TEXT, partition_id BIGINT, token BIGINT, owner TEXT, claimed_at TEXT, PRIMARY KEY (keyspace, partition_id))`,
			sqlfence.PostgreSQL: `CREATE TABLE leasehold_fence (keyspace TEXT, partition_id BIGINT, token BIGINT, owner TEXT, claimed_at TIMESTAMPTZ, PRIMARY KEY (keyspace, partition_id))`,
		}[d]
		if table == "" {
			table = `CREATE TABLE leasehold_fence (keyspace VARBINARY(255), partition_id BIGINT, token BIGINT, owner VARBINARY(255), claimed_at DATETIME(3), PRIMARY KEY (keyspace, partition_id))`
		}
		values := []string{"NULL", "0", "-1", "9007199254740992", "9223372036854775807"}
		if d == sqlfence.SQLite {
			values = append(values, "' 1x'", "'007a'", "x'3130'", "1.5")
		}
		for _, value := range values {
			b := newBase(t, d)
			db := b.open(t, 2)
			w := &world{b, sqlfence.New(db, d), db}
			w.exec(t, table)
			w.exec(t, `CREATE TABLE writes (partition_id BIGINT, token BIGINT, owner VARCHAR(20))`)
			w.exec(t, `INSERT INTO leasehold_fence VALUES ('orders', 1, `+value+`, 'a', NULL)`)
			before := w.number(t, `SELECT count(*) FROM leasehold_fence`)
			if err := w.f.Migrate(t.Context()); !errors.Is(err, sqlfence.ErrBadRow) {
				t.Errorf("migrate with %s: %v", value, err)
			}
			if err := w.f.Claim(t.Context(), []fence.Stamp{at(1, 5, "a"), at(2, 5, "a")}); !errors.Is(err, sqlfence.ErrBadRow) {
				t.Errorf("claim with %s: %v", value, err)
			}
			if err := w.write(t.Context(), at(1, 5, "a")); !errors.Is(err, sqlfence.ErrBadRow) && !errors.Is(err, fence.ErrStale) { // SQLite's driver reads x'3130' as 10
				t.Errorf("guard with %s: %v", value, err)
			}
			if n := w.number(t, `SELECT count(*) FROM leasehold_fence`) + w.number(t, `SELECT count(*) FROM writes`); n != before {
				t.Errorf("with %s: %d rows, want %d", value, n, before)
			}
		}
		// Our own table does not let them in.
		w := newWorld(t, d, 1)
		for _, value := range append(values, "NULL") {
			if _, err := w.db.Exec(`INSERT INTO leasehold_fence VALUES ('orders', 1, ` + value + `, 'a', '2001-02-03 04:05:06')`); err == nil {
				t.Errorf("the table took %s", value)
				w.exec(t, `DELETE FROM leasehold_fence`)
			}
		}
	})
}

// A table whose tokens are those of another cluster, or of one before a wipe:
// every stamp is refused, and the refusal carries the token that the cluster
// has to get past.
func TestTableOfAWipedCluster(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 1)
		const theirs = 7_000_000_000_000_000
		w.claim(t, at(1, theirs, "before the wipe"))
		for what, err := range map[string]error{
			"claim": w.f.Claim(t.Context(), []fence.Stamp{at(1, 12, "a"), at(2, 13, "a")}),
			"guard": w.write(t.Context(), at(1, 12, "a")),
		} {
			var stale *fence.StaleError
			if !errors.As(err, &stale) || stale.Current != theirs || stale.CurrentOwner != "before the wipe" {
				t.Errorf("%s: %v", what, err)
			}
		}
		if m := w.seen(t, orders(2)); m.Token != 13 {
			t.Errorf("the other partition has %v", m)
		}
	})
}

// O-75: 100,000 short-lived names leave 100,000 rows, and Prune removes those
// below a token; what is at or above it, and every partition, stays.
func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	names := map[sqlfence.Dialect]int{sqlfence.PostgreSQL: 100_000}
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		n := max(names[d], 2_500)
		w := newWorld(t, d, 2)
		stamps := make([]fence.Stamp, n)
		for i := range stamps {
			stamps[i] = fence.Stamp{Keyspace: "jobs", Token: fence.Token(1 + i), Owner: "a", Resource: fmt.Sprint("job ", i)}
		}
		w.claim(t, stamps...)
		w.claim(t, at(1, 3, "a"))
		limit := fence.Token(n - 9)
		removed, err := w.f.Prune(t.Context(), limit)
		if err != nil || removed != n-10 {
			t.Fatalf("removed %d (%v), want %d", removed, err, n-10)
		}
		if left := w.number(t, `SELECT count(*) FROM leasehold_fence`); left != 10+1 {
			t.Errorf("%d rows are left, want ten names and a partition", left)
		}
		// A lease that is still alive goes on, and who is older than it does not.
		alive := stamps[n-1]
		if err := w.write(t.Context(), alive); err != nil {
			t.Error(err)
		}
		zombie := alive
		zombie.Token, zombie.Owner = limit-1, "z"
		wantReason(t, w.write(t.Context(), zombie), fence.ReasonStale)
		if removed, err := w.f.Prune(t.Context(), limit); err != nil || removed != 0 {
			t.Errorf("again: %d, %v", removed, err)
		}
		if _, err := w.f.Prune(t.Context(), fence.MaxToken+1); !errors.Is(err, fence.ErrInvalid) {
			t.Error(err)
		}
		w.claim(t, fence.Stamp{Keyspace: "Orders", Partition: 1, Token: 3, Owner: "a"})
		if err := w.f.Forget(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if m := w.seen(t, orders(1)); m != (fence.Mark{}) {
			t.Errorf("a forgotten keyspace has %v", m)
		}
		if left := w.number(t, `SELECT count(*) FROM leasehold_fence`); left != 10+1 {
			t.Errorf("%d rows are left, want ten names and the other keyspace", left)
		}
	})
}
