package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"pgregory.net/rapid"
)

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || stale.Reason != reason || !errors.Is(err, fence.ErrStale) {
		t.Fatalf("got %v, want a *fence.StaleError with reason %s", err, reason)
	}
}

// O-71: 10 comes after 9 and 100 after 99, and zero rows are a refusal.
func TestTokensAreComparedAsNumbers(t *testing.T) {
	f, db, _ := newFence(t, 2)
	ctx := t.Context()
	for _, tok := range []fence.Token{9, 10} {
		if err := write(ctx, db, f, at(1, tok, "a")); err != nil {
			t.Fatal(err)
		}
	}
	wantReason(t, write(ctx, db, f, at(1, 9, "a")), fence.ReasonStale)
	for _, tok := range []fence.Token{99, 100} {
		if err := f.Claim(ctx, []fence.Stamp{at(2, tok, "a")}); err != nil {
			t.Fatal(err)
		}
	}
	wantReason(t, f.Claim(ctx, []fence.Stamp{at(2, 99, "a")}), fence.ReasonStale)
	if n, _ := regressions(t, db); n != 2 {
		t.Errorf("%d writes in the table, want 2: a refused one must leave nothing", n)
	}
}

// O-71: a table that stores tokens as text is refused, by Migrate and by the
// first use without it, and accepts nothing.
func TestTextColumnIsRefused(t *testing.T) {
	for _, typ := range []string{"TEXT", "VARCHAR(20)", "NUMERIC", ""} {
		db := open(t, filepath.Join(t.TempDir(), "f.db"), 2)
		if _, err := db.Exec(`CREATE TABLE leasehold_fence (keyspace TEXT, partition_id BIGINT, token ` + typ + `, owner TEXT, claimed_at TEXT, PRIMARY KEY (keyspace, partition_id))`); err != nil {
			t.Fatal(err)
		}
		f := sqlfence.New(db, sqlfence.SQLite)
		if err := f.Migrate(t.Context()); !errors.Is(err, sqlfence.ErrTokenType) {
			t.Errorf("migrate with %q: %v", typ, err)
		}
		if err := f.Claim(t.Context(), []fence.Stamp{at(1, 9, "a")}); !errors.Is(err, sqlfence.ErrTokenType) {
			t.Errorf("claim with %q: %v", typ, err)
		}
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Guard(t.Context(), tx, at(1, 9, "a")); !errors.Is(err, sqlfence.ErrTokenType) {
			t.Errorf("guard with %q: %v", typ, err)
		}
		tx.Rollback()
		if m, err := f.Seen(t.Context(), fence.Key{Keyspace: "orders", Partition: 1}); err != nil || m != (fence.Mark{}) {
			t.Errorf("with %q the table holds %v, %v", typ, m, err)
		}
	}
}

// O-71: values that are no integers are found although the column is one.
func TestOddTokenValuesAreRefused(t *testing.T) {
	for _, value := range []string{"' 1x'", "'007a'", "x'3130'", "1.5"} {
		db := open(t, filepath.Join(t.TempDir(), "f.db"), 1)
		if _, err := db.Exec(`CREATE TABLE leasehold_fence (keyspace TEXT, partition_id BIGINT, token BIGINT, owner TEXT, claimed_at TEXT, PRIMARY KEY (keyspace, partition_id));
			INSERT INTO leasehold_fence VALUES ('orders', 1, ` + value + `, 'a', '')`); err != nil {
			t.Fatal(err)
		}
		if err := sqlfence.New(db, sqlfence.SQLite).Migrate(t.Context()); !errors.Is(err, sqlfence.ErrTokenType) {
			t.Errorf("migrate with %s: %v", value, err)
		}
	}
	// Our own table does not let them in.
	_, db, _ := newFence(t, 1)
	if _, err := db.Exec(`INSERT INTO leasehold_fence VALUES ('orders', 1, ' 1x', 'a', '')`); err == nil {
		t.Error("the table took a token that is no number")
	}
}

func TestMissingTableIsNamed(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "f.db"), 1)
	f := sqlfence.New(db, sqlfence.SQLite)
	if err := f.Claim(t.Context(), []fence.Stamp{at(1, 1, "a")}); err == nil || !strings.Contains(err.Error(), "leasehold_fence") {
		t.Errorf("got %v", err)
	}
	if err := sqlfence.New(db, 9).Migrate(t.Context()); err == nil {
		t.Error("an unknown dialect was taken")
	}
}

// O-73: the same token again is fine from its owner and an incident from
// another.
func TestEqualTokenFromAnotherOwner(t *testing.T) {
	var n fence.Tally
	f, db, _ := newFence(t, 2, sqlfence.WithCounter(&n))
	ctx := t.Context()
	for range 2 {
		if err := write(ctx, db, f, at(1, 5, "a")); err != nil {
			t.Fatal(err)
		}
	}
	err := write(ctx, db, f, at(1, 5, "b"))
	wantReason(t, err, fence.ReasonOtherOwner)
	if !errors.Is(err, fence.ErrOtherOwner) {
		t.Error("not ErrOtherOwner")
	}
	wantReason(t, f.Claim(ctx, []fence.Stamp{at(1, 5, "A")}), fence.ReasonOtherOwner) // not the same in any case
	wantReason(t, f.Claim(ctx, []fence.Stamp{at(1, 5, "a ")}), fence.ReasonOtherOwner)
	if n.Checks() != 5 || n.Rejections() != 3 || n.OtherOwner() != 3 {
		t.Errorf("tally %d/%d/%d, want 5/3/3", n.Checks(), n.Rejections(), n.OtherOwner())
	}
}

// The numbers next to 2^53, where floats stop being exact.
func TestTokensNearTheTop(t *testing.T) {
	f, db, _ := newFence(t, 1)
	ctx := t.Context()
	top := fence.MaxToken
	for _, tok := range []fence.Token{top - 2, top - 1, top} {
		if err := write(ctx, db, f, at(1, tok, "a")); err != nil {
			t.Fatal(tok, err)
		}
		wantReason(t, write(ctx, db, f, at(1, tok-1, "a")), fence.ReasonStale)
	}
	if m, err := f.Seen(ctx, fence.Key{Keyspace: "orders", Partition: 1}); err != nil || m.Token != 9007199254740991 {
		t.Errorf("got %v, %v", m, err)
	}
	if err := write(ctx, db, f, at(1, top+1, "a")); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("above the top: %v", err)
	}
}

// O-76: what claimed_at says, and so whose clock is how wrong, changes
// nothing.
func TestNoClockDecides(t *testing.T) {
	var verdicts []string
	for _, skew := range []string{"+3 minutes", "-3 minutes", "+10 years", "0 seconds"} {
		f, db, _ := newFence(t, 1)
		var got []string
		for _, s := range []fence.Stamp{at(1, 5, "a"), at(1, 4, "b"), at(1, 6, "b"), at(1, 5, "a"), at(1, 6, "a"), at(1, 6, "b")} {
			err := write(t.Context(), db, f, s)
			got = append(got, fmt.Sprint(err))
			if _, err := db.Exec(`UPDATE leasehold_fence SET claimed_at = datetime('now', ?)`, skew); err != nil {
				t.Fatal(err)
			}
		}
		verdicts = append(verdicts, strings.Join(got, "\n"))
	}
	for _, v := range verdicts[1:] {
		if v != verdicts[0] {
			t.Errorf("verdicts differ:\n%s\n---\n%s", verdicts[0], v)
		}
	}
}

func TestClaimedAtIsTheTimeOfTheClaim(t *testing.T) {
	f, db, _ := newFence(t, 1)
	read := func() (s string) {
		t.Helper()
		if err := db.QueryRow(`SELECT claimed_at FROM leasehold_fence`).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := f.Claim(t.Context(), []fence.Stamp{at(1, 1, "a")}); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", read()); err != nil {
		t.Error(err)
	}
	if _, err := db.Exec(`UPDATE leasehold_fence SET claimed_at = 'then'`); err != nil {
		t.Fatal(err)
	}
	if err := write(t.Context(), db, f, at(1, 1, "a")); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "then" {
		t.Errorf("a write of the same lease moved it to %s", got)
	}
	if err := write(t.Context(), db, f, at(1, 2, "a")); err != nil {
		t.Fatal(err)
	}
	if got := read(); got == "then" {
		t.Error("a higher token did not move it")
	}
}

// A claim larger than one statement, with refusals in several chunks and
// keyspaces, duplicates included.
func TestBulkClaim(t *testing.T) {
	f, db, _ := newFence(t, 2)
	ctx := t.Context()
	const n = 700
	var first, second []fence.Stamp
	for i := range uint32(n) {
		for _, ks := range []string{"a", "b"} {
			first = append(first, fence.Stamp{Keyspace: ks, Partition: i, Token: 100, Owner: "old"})
			s := fence.Stamp{Keyspace: ks, Partition: n - 1 - i, Token: 200, Owner: "new"}
			if s.Partition%500 == 7 {
				s.Token = 99
			}
			second = append(second, s)
		}
	}
	second = append(second,
		fence.Stamp{Keyspace: "a", Partition: 1, Token: 200, Owner: "new"},   // the same again
		fence.Stamp{Keyspace: "a", Partition: 1, Token: 150, Owner: "new"},   // lower in the same claim
		fence.Stamp{Keyspace: "a", Partition: 1, Token: 200, Owner: "other"}, // not issued twice
	)
	if err := f.Claim(ctx, first); err != nil {
		t.Fatal(err)
	}
	var ce *fence.ClaimError
	if err := f.Claim(ctx, second); !errors.As(err, &ce) {
		t.Fatalf("got %v", err)
	}
	if len(ce.Refused) != 2*2+2 {
		t.Errorf("%d refused, want 6", len(ce.Refused))
	}
	for _, r := range ce.Refused {
		switch {
		case r.Partition == 1 && r.Current == 200 && r.CurrentOwner == "new":
		case r.Partition%500 == 7 && r.Current == 100 && r.CurrentOwner == "old" && r.Reason == fence.ReasonStale:
		default:
			t.Errorf("refused %+v", r)
		}
	}
	var raised int
	if err := db.QueryRow(`SELECT count(*) FROM leasehold_fence WHERE token = 200 AND owner = 'new'`).Scan(&raised); err != nil || raised != 2*n-4 {
		t.Errorf("%d raised (%v), want %d", raised, err, 2*n-4)
	}
	if err := f.Claim(ctx, nil); err != nil {
		t.Error(err)
	}
}

// A claim that cannot finish claims nothing.
func TestCancelledClaimChangesNothing(t *testing.T) {
	f, _, _ := newFence(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Claim(ctx, []fence.Stamp{at(1, 1, "a")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if m, _ := f.Seen(t.Context(), fence.Key{Keyspace: "orders", Partition: 1}); m != (fence.Mark{}) {
		t.Errorf("the table holds %v", m)
	}
}

// Odd names are kept apart byte for byte (O-79 for what reaches the guard).
func TestNamesAreBytes(t *testing.T) {
	f, _, _ := newFence(t, 1)
	names := []string{"orders", "Orders", "orders ", "orde\u0301", "ord\u00e9", "'; DROP TABLE leasehold_fence; --", "a/b", "😀", `"`, "%"}
	for i, name := range names {
		s := fence.Stamp{Keyspace: name, Partition: 1, Token: fence.Token(100 - i), Owner: name}
		if err := f.Claim(t.Context(), []fence.Stamp{s}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for i, name := range names {
		m, err := f.Seen(t.Context(), fence.Key{Keyspace: name, Partition: 1})
		if err != nil || m != (fence.Mark{Token: fence.Token(100 - i), Owner: name}) {
			t.Errorf("%q: %v, %v", name, m, err)
		}
	}
}

// The database decides as the rule does, whatever comes.
func TestSameVerdictsAsTheRule(t *testing.T) {
	f, db, _ := newFence(t, 2)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		keyspace := fmt.Sprint("k", round)
		model := fence.NewMemory(nil)
		gen := rapid.Custom(func(t *rapid.T) fence.Stamp {
			return fence.Stamp{
				Keyspace:  keyspace,
				Partition: rapid.Uint32Range(0, 3).Draw(t, "partition"),
				Token:     fence.Token(rapid.Uint64Range(8, 12).Draw(t, "token")), // one digit and two
				Owner:     rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"),
			}
		})
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			var got, want error
			if rapid.Bool().Draw(rt, "claim") {
				batch := rapid.SliceOfN(gen, 1, 8).Draw(rt, "stamps")
				got, want = f.Claim(t.Context(), batch), model.Claim(t.Context(), batch)
			} else {
				s := gen.Draw(rt, "stamp")
				got, want = write(t.Context(), db, f, s), model.Do(s, func() error { return nil })
			}
			if describe(got) != describe(want) {
				rt.Fatalf("database: %s\nrule:     %s", describe(got), describe(want))
			}
			for p := range uint32(4) {
				m, err := f.Seen(t.Context(), fence.Key{Keyspace: keyspace, Partition: p})
				if err != nil || m != model.Seen(fence.Key{Keyspace: keyspace, Partition: p}) {
					rt.Fatalf("partition %d: %v, %v; want %v", p, m, err, model.Seen(fence.Key{Keyspace: keyspace, Partition: p}))
				}
			}
		}
	})
}

func describe(err error) string {
	var ce *fence.ClaimError
	if errors.As(err, &ce) {
		var b strings.Builder
		for _, r := range ce.Refused {
			fmt.Fprintf(&b, "%s %s; ", r.Reason, r)
		}
		return b.String()
	}
	return fmt.Sprint(err)
}

// A guard in a transaction that the caller made otherwise than advised works
// or fails cleanly, and never lets an old write through.
func TestDeferredTransactionFailsCleanly(t *testing.T) {
	f, _, file := newFence(t, 1)
	plain, err := sql.Open("sqlite", file2dsn(file))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	g := sqlfence.New(plain, sqlfence.SQLite)
	tx, err := plain.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRow(`SELECT count(*) FROM writes`).Scan(&n); err != nil { // a reader now
		t.Fatal(err)
	}
	if err := f.Claim(t.Context(), []fence.Stamp{at(1, 2, "b")}); err != nil {
		t.Fatal(err)
	}
	err = g.Guard(t.Context(), tx, at(1, 1, "a"))
	if err == nil || errors.Is(err, fence.ErrStale) {
		t.Fatalf("got %v, want the database's refusal to turn a reader into a writer", err)
	}
	if m, _ := f.Seen(t.Context(), fence.Key{Keyspace: "orders", Partition: 1}); m.Token != 2 {
		t.Errorf("the table holds %v", m)
	}
}

func file2dsn(file string) string {
	return strings.Replace(testDSN(file), "_txlock=immediate", "_txlock=deferred", 1)
}
