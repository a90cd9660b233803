package pgxfence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/pgxfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

const insertWrite = `INSERT INTO writes (partition_id, token, owner) VALUES ($1, $2, $3)`

func inBatch(ctx context.Context, f *pgxfence.Fence, s fence.Stamp) error {
	b := &pgx.Batch{}
	b.Queue(insertWrite, int64(s.Partition), int64(s.Token), s.Owner)
	return f.Batch(ctx, s, b)
}

func count(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM writes`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A batch is accepted and refused as a write of several round trips is, in
// every mode of the driver, and leaves nothing when it is refused.
func TestBatch(t *testing.T) {
	for _, params := range []string{"", "&default_query_exec_mode=exec", "&default_query_exec_mode=simple_protocol"} {
		t.Run(params, func(t *testing.T) {
			var n fence.Tally
			f, pool := newFence(t, params, sqlfence.WithCounter(&n))
			ctx := t.Context()
			for i, step := range []struct {
				s      fence.Stamp
				reason string
			}{
				{at(1, 9, "a"), ""}, // nobody has claimed: the first write does
				{at(1, 9, "a"), ""},
				{at(1, 10, "b"), ""},
				{at(1, 9, "a"), fence.ReasonStale},
				{at(1, 10, "c"), fence.ReasonOtherOwner},
				{at(2, 1, "a"), ""},
			} {
				before := count(t, pool)
				err := inBatch(ctx, f, step.s)
				var stale *fence.StaleError
				switch {
				case step.reason == "" && err != nil:
					t.Errorf("step %d, %s: %v", i, step.s, err)
				case step.reason != "" && (!errors.As(err, &stale) || stale.Reason != step.reason || stale.Current != 10):
					t.Errorf("step %d, %s: %v, want a refusal as %s", i, step.s, err, step.reason)
				}
				want := before
				if step.reason == "" {
					want++
				}
				if got := count(t, pool); got != want {
					t.Errorf("step %d, %s: %d rows, want %d", i, step.s, got, want)
				}
			}
			if n.Rejections() != 2 || n.OtherOwner() != 1 {
				t.Errorf("%d rejections, %d of another owner counted, want 2 and 1", n.Rejections(), n.OtherOwner())
			}
		})
	}
}

// An error of a later statement takes the earlier ones back, and a division by
// zero in the user's own statement is not taken for a refusal.
func TestBatchIsOneTransaction(t *testing.T) {
	f, pool := newFence(t, "")
	s := at(1, 5, "a")
	for _, broken := range []string{`SELECT 1 / (count(*) - count(*)) FROM writes`, `SELECT nothing FROM nowhere`} {
		b := &pgx.Batch{}
		b.Queue(insertWrite, int64(1), int64(5), "a")
		b.Queue(broken)
		err := f.Batch(t.Context(), s, b)
		var answer *pgconn.PgError
		if !errors.As(err, &answer) || errors.Is(err, fence.ErrStale) || errors.Is(err, sqlfence.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want the database's own error", broken, err)
		}
	}
	if n := count(t, pool); n != 0 {
		t.Errorf("%d rows are left of batches that failed", n)
	}
	if err := f.Batch(t.Context(), at(1, 0, "a"), &pgx.Batch{}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("token 0: %v", err)
	}
}

// A newer claim waits for a batch in flight, and the next batch of the old
// owner bounces: the guard locks the row in the batch's transaction.
func TestBatchHoldsOffANewerClaim(t *testing.T) {
	f, pool := newFence(t, "")
	ctx := t.Context()
	old, next := at(1, 5, "old"), at(1, 6, "next")
	if err := f.Claim(ctx, []fence.Stamp{old}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	gate, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Rollback(ctx)
	if _, err := gate.Exec(ctx, `SELECT pg_advisory_xact_lock(4242)`); err != nil {
		t.Fatal(err)
	}
	wrote, claimed := make(chan error, 1), make(chan error, 1)
	wg.Go(func() {
		b := &pgx.Batch{}
		b.Queue(insertWrite, int64(1), int64(5), "old")
		b.Queue(`SELECT pg_advisory_xact_lock(4242)`) // stands here, under the guard
		wrote <- f.Batch(ctx, old, b)
	})
	waiting := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; {
			var now int
			if err := pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&now); err != nil {
				t.Fatal(err)
			}
			if now >= n {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d backends wait for a lock, want %d", now, n)
			}
		}
	}
	waiting(1)
	wg.Go(func() { claimed <- f.Claim(ctx, []fence.Stamp{next}) })
	waiting(2)
	select {
	case err := <-claimed:
		t.Fatalf("the claim did not wait for the batch in flight: %v", err)
	default:
	}
	if err := gate.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-wrote, <-claimed); err != nil {
		t.Fatal(err)
	}
	if err := inBatch(ctx, f, old); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the old owner's next batch: %v, want ErrStale", err)
	}
}

// BenchmarkBatch compares BEGIN; INSERT; COMMIT with the guarded batch, by turns
// and with commits that reach the disk, as BenchmarkGuard of sqlfence does.
func BenchmarkBatch(b *testing.B) {
	for _, writers := range []int{1, 32} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			f, pool := newFence(b, fmt.Sprintf("&pool_max_conns=%d&synchronous_commit=on", writers))
			plain := func(ctx context.Context, s fence.Stamp) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return insert(ctx, tx, s) })
			}
			guarded := func(ctx context.Context, s fence.Stamp) error { return inBatch(ctx, f, s) }
			const each = 8
			turn := func(write func(context.Context, fence.Stamp) error) time.Duration {
				var wg sync.WaitGroup
				begun := time.Now()
				for i := range writers {
					wg.Go(func() {
						for range each {
							if err := write(b.Context(), at(uint32(i), 100, "a")); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
				return time.Since(begun)
			}
			turn(plain)
			turn(guarded)
			var ratios []float64
			b.ResetTimer()
			for n := 0; n < b.N; n += each * writers {
				p, g := turn(plain), turn(guarded)
				ratios = append(ratios, g.Seconds()/p.Seconds())
			}
			b.StopTimer()
			slices.Sort(ratios)
			b.ReportMetric(100*(ratios[len(ratios)/2]-1), "overhead-%")
			b.ReportMetric(0, "ns/op")
		})
	}
}
