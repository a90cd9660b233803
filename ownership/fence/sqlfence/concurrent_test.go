package sqlfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// hammer has eight owners claim and write two partitions, each with its own
// rising tokens, and says what was wrong in the end.
func hammer(t *testing.T, w *world) {
	t.Helper()
	var wg sync.WaitGroup
	for owner := range 8 {
		wg.Go(func() {
			for i := range 15 {
				s := at(uint32(i%2), fence.Token(1+owner+8*i), fmt.Sprint("w", owner))
				if err := w.f.Claim(t.Context(), []fence.Stamp{s}); err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
				err := w.write(t.Context(), s)
				for sqlfence.Retryable(err) {
					err = w.write(t.Context(), s)
				}
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	writes, bad := w.regressions(t)
	if bad != 0 || writes == 0 {
		t.Errorf("%d of %d writes came after a higher token", bad, writes)
	}
	for p, last := range map[uint32]fence.Token{0: 8 + 8*14, 1: 8 + 8*13} {
		if m := w.seen(t, orders(p)); m.Token != last {
			t.Errorf("partition %d: %v, want token %d", p, m, last)
		}
	}
}

// O-74: with any pool the outcome is the same, no write follows one with a
// higher token, and nothing stays locked.
func TestAnyPoolSize(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		for _, pool := range []int{1, 2, 10} {
			t.Run(fmt.Sprint(pool), func(t *testing.T) { hammer(t, newWorld(t, d, pool)) })
		}
	})
}

// O-74: a client killed inside its transaction leaves nothing locked, and what
// it had raised is not there.
func TestKilledClientLeavesNothingLocked(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		w := newWorld(t, d, 1)
		p := w.start(t, "hold", "killed", time.Minute)
		if line := p.line(t); line != "holding" {
			t.Fatal(line)
		}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := w.write(short, at(1, 6, "me")); err == nil {
			t.Fatal("wrote while the row was held: it is not locked")
		}
		p.Process.Kill()
		p.Wait()
		if err := w.write(t.Context(), at(1, 4, "me")); err != nil {
			t.Fatalf("after the kill: %v", err)
		}
		if n := w.number(t, `SELECT count(*) FROM writes`); n != 1 {
			t.Errorf("%d writes, want mine alone", n)
		}
	})
}

// A newer claim waits for a write in flight; the next write bounces. The write
// in flight is once the first of its lease and once a repeated one, which locks
// without writing.
func TestNewerClaimWaitsForTheWriteInFlight(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		for _, claimed := range []bool{false, true} {
			w := newWorld(t, d, 2)
			ctx := t.Context()
			old := at(17, 33, "w2")
			if claimed {
				w.claim(t, old)
			}
			tx := w.begin(t)
			if err := w.f.Guard(ctx, tx, old); err != nil {
				t.Fatal(err)
			}
			// The new owner is another process: another handle.
			other := w.other(t, 2)
			done := make(chan error, 1)
			go func() { done <- other.f.Claim(ctx, []fence.Stamp{at(17, 34, "w4")}) }()
			select {
			case err := <-done:
				t.Fatalf("the claim did not wait: %v", err)
			case <-time.After(400 * time.Millisecond): // past the first try on PostgreSQL
			}
			if err := w.insert(ctx, tx, old); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			err := w.write(ctx, old)
			wantReason(t, err, fence.ReasonStale)
			var stale *fence.StaleError
			if errors.As(err, &stale); stale.Current != 34 || stale.CurrentOwner != "w4" {
				t.Errorf("the refusal names %d of %s", stale.Current, stale.CurrentOwner)
			}
		}
	})
}

// A rolled back write takes its token with it.
func TestRollbackUndoesTheRaise(t *testing.T) {
	each(t, func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 1)
		tx := w.begin(t)
		if err := w.f.Guard(t.Context(), tx, at(1, 9, "a")); err != nil {
			t.Fatal(err)
		}
		tx.Rollback()
		if err := w.write(t.Context(), at(1, 8, "b")); err != nil {
			t.Error(err)
		}
	})
}

// Two real processes take a partition from one another, each writing until it
// is refused. No write of one comes after a claim of the other.
func TestTwoProcesses(t *testing.T) {
	eachOf(t, dialects[:3], func(t *testing.T, d sqlfence.Dialect) {
		w := newWorld(t, d, 1)
		procs := []*process{w.start(t, "race", "w1", 10*time.Second), w.start(t, "race", "w2", 10*time.Second)}
		const rounds = 6
		fmt.Fprintln(procs[0].in, 1)
		for tok := 2; tok <= rounds; tok++ {
			taker, loser := procs[(tok+1)%2], procs[tok%2]
			fmt.Fprintln(taker.in, tok)
			line := loser.line(t)
			if !strings.Contains(line, "refused") || !strings.Contains(line, fmt.Sprintf("token %d of w%d", tok, (tok+1)%2+1)) {
				t.Fatalf("round %d: %s", tok, line)
			}
		}
		writes, bad := w.regressions(t)
		if bad != 0 || writes == 0 {
			t.Errorf("%d of %d writes came after a higher token", bad, writes)
		}
	})
}
