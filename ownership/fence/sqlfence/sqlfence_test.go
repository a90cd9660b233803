package sqlfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

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
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 2)
		ctx := t.Context()
		for _, tok := range []fence.Token{9, 10} {
			if err := w.write(ctx, at(1, tok, "a")); err != nil {
				t.Fatal(err)
			}
		}
		wantReason(t, w.write(ctx, at(1, 9, "a")), fence.ReasonStale)
		for _, tok := range []fence.Token{99, 100} {
			w.claim(t, at(2, tok, "a"))
		}
		wantReason(t, w.f.Claim(ctx, []fence.Stamp{at(2, 99, "a")}), fence.ReasonStale)
		if n, _ := w.regressions(t); n != 2 {
			t.Errorf("%d writes in the table, want 2: a refused one must leave nothing", n)
		}
	})
}

// O-73: the same token again is fine from its owner and an incident from
// another.
func TestEqualTokenFromAnotherOwner(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		var n fence.Tally
		w := newWorld(t, d, 2, sqlfence.WithCounter(&n))
		ctx := t.Context()
		for range 2 {
			if err := w.write(ctx, at(1, 5, "a")); err != nil {
				t.Fatal(err)
			}
		}
		err := w.write(ctx, at(1, 5, "b"))
		wantReason(t, err, fence.ReasonOtherOwner)
		if !errors.Is(err, fence.ErrOtherOwner) {
			t.Error("not ErrOtherOwner")
		}
		wantReason(t, w.f.Claim(ctx, []fence.Stamp{at(1, 5, "A")}), fence.ReasonOtherOwner) // not the same in any case
		wantReason(t, w.f.Claim(ctx, []fence.Stamp{at(1, 5, "a ")}), fence.ReasonOtherOwner)
		if n.Checks() != 5 || n.Rejections() != 3 || n.OtherOwner() != 3 {
			t.Errorf("tally %d/%d/%d, want 5/3/3", n.Checks(), n.Rejections(), n.OtherOwner())
		}
	})
}

// The numbers next to 2^53, where floats stop being exact.
func TestTokensNearTheTop(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 1)
		ctx := t.Context()
		top := fence.MaxToken
		for _, tok := range []fence.Token{top - 2, top - 1, top} {
			if err := w.write(ctx, at(1, tok, "a")); err != nil {
				t.Fatal(tok, err)
			}
			wantReason(t, w.write(ctx, at(1, tok-1, "a")), fence.ReasonStale)
		}
		if m := w.seen(t, orders(1)); m.Token != 9007199254740991 {
			t.Errorf("got %v", m)
		}
		if err := w.write(ctx, at(1, top+1, "a")); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("above the top: %v", err)
		}
	})
}

// O-76: whose clock is how wrong changes nothing. Two clients three minutes
// apart can show themselves to a database in one thing only, what claimed_at
// says: it is the database's, and it decides nothing.
func TestNoClockDecides(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		var verdicts []string
		for _, minutes := range []int{3, -3, 5_000_000, 0} {
			w := newWorld(t, d, 1)
			then := map[sqlfence.Dialect]string{
				sqlfence.SQLite:     fmt.Sprintf("datetime('now', '%+d minutes')", minutes),
				sqlfence.PostgreSQL: fmt.Sprintf("now() + interval '%d minutes'", minutes),
			}[d]
			if then == "" {
				then = fmt.Sprintf("UTC_TIMESTAMP() + INTERVAL %d MINUTE", minutes)
			}
			var got []string
			for _, s := range []fence.Stamp{at(1, 5, "a"), at(1, 4, "b"), at(1, 6, "b"), at(1, 5, "a"), at(1, 6, "a"), at(1, 6, "b")} {
				got = append(got, fmt.Sprint(w.write(t.Context(), s)))
				w.exec(t, `UPDATE leasehold_fence SET claimed_at = `+then)
			}
			verdicts = append(verdicts, strings.Join(got, "\n"))
		}
		for _, v := range verdicts[1:] {
			if v != verdicts[0] {
				t.Errorf("verdicts differ:\n%s\n---\n%s", verdicts[0], v)
			}
		}
	})
}

// O-76: claimed_at is the database's time of the claim, and stays with it.
func TestClaimedAtIsTheTimeOfTheClaim(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 1)
		age := map[sqlfence.Dialect]string{
			sqlfence.SQLite:     `SELECT CAST(abs(strftime('%s', 'now') - strftime('%s', claimed_at)) AS INTEGER) FROM leasehold_fence`,
			sqlfence.PostgreSQL: `SELECT abs(extract(epoch FROM clock_timestamp() - claimed_at))::bigint FROM leasehold_fence`,
		}[d]
		if age == "" {
			age = `SELECT ABS(TIMESTAMPDIFF(SECOND, claimed_at, UTC_TIMESTAMP())) FROM leasehold_fence`
		}
		w.claim(t, at(1, 1, "a"))
		if n := w.number(t, age); n > 60 {
			t.Errorf("a claim of now is said to be %d s old", n)
		}
		w.exec(t, `UPDATE leasehold_fence SET claimed_at = '2001-02-03 04:05:06'`)
		if err := w.write(t.Context(), at(1, 1, "a")); err != nil {
			t.Fatal(err)
		}
		if w.number(t, age) < 3600 {
			t.Error("a write of the same lease moved it")
		}
		w.claim(t, at(1, 1, "a"))
		if w.number(t, age) < 3600 {
			t.Error("a repeated claim of the same lease moved it")
		}
		if err := w.write(t.Context(), at(1, 2, "a")); err != nil {
			t.Fatal(err)
		}
		if n := w.number(t, age); n > 60 {
			t.Error("a higher token did not move it")
		}
	})
}

// A claim larger than one statement, with refusals in several chunks and
// keyspaces, named resources in between, duplicates included.
func TestBulkClaim(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 2)
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
			r := fence.Stamp{Keyspace: "a", Partition: i, Resource: fmt.Sprint("resource ", i), Token: 100, Owner: "old"}
			first = append(first, r)
			r.Token, r.Owner = 200, "new"
			second = append(second, r)
		}
		second = append(second,
			fence.Stamp{Keyspace: "a", Partition: 1, Token: 200, Owner: "new"},   // the same again
			fence.Stamp{Keyspace: "a", Partition: 1, Token: 150, Owner: "new"},   // lower in the same claim
			fence.Stamp{Keyspace: "a", Partition: 1, Token: 200, Owner: "other"}, // not issued twice
		)
		if err := w.f.Claim(ctx, first); err != nil {
			t.Fatal(err)
		}
		var ce *fence.ClaimError
		if err := w.f.Claim(ctx, second); !errors.As(err, &ce) {
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
		if raised := w.number(t, `SELECT count(*) FROM leasehold_fence WHERE token = 200 AND owner = 'new'`); raised != 3*n-4 {
			t.Errorf("%d raised, want %d", raised, 3*n-4)
		}
		if err := w.f.Claim(ctx, nil); err != nil {
			t.Error(err)
		}
	})
}

// A claim that cannot finish claims nothing.
func TestCancelledClaimChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.f.Claim(ctx, []fence.Stamp{at(1, 1, "a")}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if m := w.seen(t, orders(1)); m != (fence.Mark{}) {
			t.Errorf("the table holds %v", m)
		}
	})
}

var oddNames = []string{"orders", "Orders", "orders ", "orde\u0301", "ord\u00e9", "ord\u00c9", "'; DROP TABLE leasehold_fence; --", "a/b", "😀", `"`, `\`, "%", "{", "\t\n", strings.Repeat("ü", 127)}

// Odd names of keyspaces, owners and resources are kept apart byte for byte
// (O-79 for what reaches the guard).
func TestNamesAreBytes(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 1)
		for i, name := range oddNames {
			low := fence.Token(100 - i)
			w.claim(t, fence.Stamp{Keyspace: name, Partition: 1, Token: low, Owner: name},
				fence.Stamp{Keyspace: "any", Partition: 1, Token: low + 100, Owner: name, Resource: name})
			if err := w.write(t.Context(), fence.Stamp{Keyspace: "other", Partition: 7, Token: low + 100, Owner: name, Resource: name}); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		for i, name := range oddNames {
			want := fence.Mark{Token: fence.Token(100 - i), Owner: name}
			if m := w.seen(t, fence.Key{Keyspace: name, Partition: 1}); m != want {
				t.Errorf("%q: %v", name, m)
			}
			want.Token += 100
			if m := w.seen(t, fence.Key{Resource: name}); m != want {
				t.Errorf("resource %q: %v", name, m)
			}
		}
		long := fence.Stamp{Keyspace: "orders", Token: 1, Owner: "a", Resource: strings.Repeat("r", fence.MaxResourceLen)}
		w.claim(t, long)
		for what, s := range map[string]fence.Stamp{
			"resource of 256 bytes": {Keyspace: "orders", Token: 1, Owner: "a", Resource: strings.Repeat("r", fence.MaxResourceLen+1)},
			"resource of 1 MiB":     {Keyspace: "orders", Token: 1, Owner: "a", Resource: strings.Repeat("r", 1<<20)},
			"keyspace of 1 MiB":     {Keyspace: strings.Repeat("k", 1<<20), Token: 1, Owner: "a"},
			"keyspace not UTF-8":    {Keyspace: "\xff", Token: 1, Owner: "a"},
			"owner with NUL":        {Keyspace: "orders", Token: 1, Owner: "a\x00"},
		} {
			if err := w.f.Claim(t.Context(), []fence.Stamp{at(9, 9, "a"), s}); !errors.Is(err, fence.ErrInvalid) || len(err.Error()) > 400 {
				t.Errorf("claim with %s: %.200v", what, err)
			}
			if err := w.write(t.Context(), s); !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("write with %s: %.200v", what, err)
			}
		}
		if m := w.seen(t, orders(9)); m != (fence.Mark{}) {
			t.Errorf("an invalid claim left %v behind", m)
		}
	})
}

// The database decides as the rule does, whatever comes.
func TestSameVerdictsAsTheRule(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		w := newWorld(t, d, 2)
		round := 0
		rapid.Check(t, func(rt *rapid.T) {
			round++
			keyspace := fmt.Sprint("k", round)
			model := fence.NewMemory(nil)
			gen := rapid.Custom(func(t *rapid.T) fence.Stamp {
				s := fence.Stamp{
					Keyspace:  keyspace,
					Partition: rapid.Uint32Range(0, 3).Draw(t, "partition"),
					Token:     fence.Token(rapid.Uint64Range(8, 12).Draw(t, "token")), // one digit and two
					Owner:     rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"),
				}
				if rapid.Bool().Draw(t, "named") {
					s.Resource = keyspace
				}
				return s
			})
			for range rapid.IntRange(1, 6).Draw(rt, "steps") {
				var got, want error
				if rapid.Bool().Draw(rt, "claim") {
					batch := rapid.SliceOfN(gen, 1, 8).Draw(rt, "stamps")
					got, want = w.f.Claim(t.Context(), batch), model.Claim(t.Context(), batch)
				} else {
					s := gen.Draw(rt, "stamp")
					got, want = w.write(t.Context(), s), model.Do(s, func() error { return nil })
				}
				if describe(got) != describe(want) {
					rt.Fatalf("database: %s\nrule:     %s", describe(got), describe(want))
				}
				for p := range uint32(5) {
					k := fence.Key{Keyspace: keyspace, Partition: p}
					if p == 4 {
						k = fence.Key{Resource: keyspace}
					}
					if m, err := w.f.Seen(t.Context(), k); err != nil || m != model.Seen(k) {
						rt.Fatalf("%s: %v, %v; want %v", k, m, err, model.Seen(k))
					}
				}
			}
		})
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
