package fence_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"pgregory.net/rapid"
)

func nothing(context.Context) error { return nil }

func TestGateGivesTheWriteItsStamp(t *testing.T) {
	g := fence.NewGate(nil, nil)
	s := stamp(5, "a")
	s.Resource = "ledger"
	wrong := errors.New("disk full")
	ctx := fence.NewContext(context.Background(), stamp(1, "outer"), 3*time.Second)
	err := g.Do(ctx, s, func(ctx context.Context) error {
		if got, ok := fence.FromContext(ctx); !ok || got != s {
			t.Errorf("the write's context carries %v, %v", got, ok)
		}
		if ttl := fence.TTLFromContext(ctx); ttl != 3*time.Second {
			t.Errorf("the write's context has lost the TTL: %v", ttl)
		}
		return wrong
	})
	if !errors.Is(err, wrong) {
		t.Errorf("got %v, want the write's own error", err)
	}
	if m := g.Seen(s.Key()); m != (fence.Mark{Token: 5, Owner: "a"}) {
		t.Errorf("mark %+v", m)
	}
}

// O-73: 5/A, 5/A, 5/B.
func TestGateEqualTokenOfAnotherOwner(t *testing.T) {
	for _, durable := range []fence.Guard{nil, fence.NewMemory(nil)} {
		var n fence.Tally
		g := fence.NewGate(durable, &n)
		ctx := context.Background()
		for range 2 {
			if err := g.Do(ctx, stamp(5, "A"), nothing); err != nil {
				t.Fatal(err)
			}
		}
		err := g.Do(ctx, stamp(5, "B"), func(context.Context) error { t.Error("B wrote"); return nil })
		if !errors.Is(err, fence.ErrOtherOwner) {
			t.Errorf("got %v, want ErrOtherOwner", err)
		}
		if n.Checks() != 3 || n.OtherOwner() != 1 {
			t.Errorf("tally %d checks, %d of another owner", n.Checks(), n.OtherOwner())
		}
	}
}

func TestGateRunsWritesOfOneLeaseInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGate(fence.NewMemory(nil), nil)
		release := make(chan struct{})
		inside := 0
		var mu sync.Mutex
		for range 50 {
			go func() {
				_ = g.Do(t.Context(), stamp(5, "a"), func(context.Context) error {
					mu.Lock()
					inside++
					mu.Unlock()
					<-release
					return nil
				})
			}()
		}
		synctest.Wait()
		if inside != 50 {
			t.Errorf("%d of 50 writes run together", inside)
		}
		close(release)
	})
}

// A newer stamp ends the older write's context, waits for its return, and in
// the meantime keeps every other older write out: it cannot be starved.
func TestGateWaitsForTheWriteInFlight(t *testing.T) {
	for _, how := range []string{"Do", "Claim"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := fence.NewGate(nil, nil)
				var order []string
				finish := make(chan struct{})
				go func() {
					err := g.Do(t.Context(), stamp(1, "a"), func(ctx context.Context) error {
						<-ctx.Done()
						var stale *fence.StaleError
						if !errors.As(context.Cause(ctx), &stale) || stale.Current != 2 || stale.CurrentOwner != "b" || stale.Token != 1 {
							t.Errorf("cause %v, want the stale error with the newer token", context.Cause(ctx))
						}
						<-finish
						order = append(order, "old")
						return nil
					})
					if err != nil {
						t.Errorf("old write: %v", err)
					}
				}()
				synctest.Wait()
				go func() {
					var err error
					if how == "Do" {
						err = g.Do(t.Context(), stamp(2, "b"), nothing)
					} else {
						err = g.Claim(t.Context(), []fence.Stamp{stamp(2, "b")})
					}
					if err != nil {
						t.Errorf("newer: %v", err)
					}
					order = append(order, "new")
				}()
				synctest.Wait()
				if err := g.Do(t.Context(), stamp(1, "a"), nothing); !errors.Is(err, fence.ErrStale) {
					t.Errorf("an older write while the newer one waits: got %v, want ErrStale", err)
				}
				if len(order) > 0 {
					t.Errorf("%v came while the old write was in flight", order)
				}
				close(finish)
				synctest.Wait()
				if fmt.Sprint(order) != "[old new]" {
					t.Errorf("order %v", order)
				}
			})
		})
	}
}

func TestGateWaitHonoursTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGate(nil, nil)
		stuck := make(chan struct{})
		go func() { _ = g.Do(t.Context(), stamp(1, "a"), func(context.Context) error { <-stuck; return nil }) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.Do(ctx, stamp(2, "b"), func(context.Context) error { t.Error("ran beside the old write"); return nil })
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fence.ErrStale) {
			t.Errorf("got %v, want the deadline", err)
		}
		if err := g.Claim(ctx, []fence.Stamp{stamp(2, "b")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("claim after the deadline: got %v", err)
		}
		if err := g.Do(t.Context(), stamp(1, "a"), nothing); !errors.Is(err, fence.ErrStale) {
			t.Errorf("old owner after the newer one gave up waiting: got %v, want ErrStale", err)
		}
		close(stuck)
		if err := g.Do(t.Context(), stamp(2, "b"), nothing); err != nil {
			t.Errorf("the newer one's second try: %v", err)
		}
	})
}

// Stamp 2 waits for 1, and 3 comes: 2 must not run afterwards.
func TestGateRefusesAWaiterThatWasOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGate(nil, nil)
		finish := make(chan struct{})
		go func() { _ = g.Do(t.Context(), stamp(1, "a"), func(context.Context) error { <-finish; return nil }) }()
		synctest.Wait()
		middle := make(chan error, 2)
		go func() {
			middle <- g.Do(t.Context(), stamp(2, "b"), func(context.Context) error { t.Error("2 ran after 3"); return nil })
		}()
		go func() { middle <- g.Claim(t.Context(), []fence.Stamp{stamp(2, "b")}) }()
		synctest.Wait()
		go func() { _ = g.Do(t.Context(), stamp(3, "c"), nothing) }()
		synctest.Wait()
		for range 2 {
			if err := <-middle; !errors.Is(err, fence.ErrStale) {
				t.Errorf("got %v, want ErrStale, without waiting for 1", err)
			}
		}
		close(finish)
	})
}

func TestGateOvertakesOnlyWhenAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGate(nil, nil, fence.Overtake(func() <-chan time.Time { return time.After(5 * time.Second) }))
		stuck := make(chan struct{})
		at := func(p uint32, token fence.Token) fence.Stamp {
			return fence.Stamp{Keyspace: "k", Partition: p, Token: token, Owner: "w"}
		}
		var batch []fence.Stamp
		for p := range uint32(20) {
			go func() { _ = g.Do(t.Context(), at(p, 1), func(context.Context) error { <-stuck; return nil }) }()
			batch = append(batch, at(p, 2))
		}
		synctest.Wait()
		start := time.Now()
		if err := g.Claim(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("a claim of 20 stuck keys waited %v, want the bound once", waited)
		}
		start = time.Now()
		if err := g.Do(t.Context(), at(3, 2), nothing); err != nil || time.Since(start) != 0 {
			t.Errorf("after the claim: %v in %v", err, time.Since(start))
		}
		if err := g.Do(t.Context(), at(3, 1), nothing); !errors.Is(err, fence.ErrStale) {
			t.Errorf("an overtaken owner: got %v, want ErrStale", err)
		}
		close(stuck)
	})
}

// What Overtake leaves open a guard in the write's own step closes.
func TestGateOvertakenWriteIsRefusedByItsOwnGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := fence.NewMemory(nil) // stands for a database with its fence table
		g := fence.NewGate(resource, nil, fence.Overtake(func() <-chan time.Time { return time.After(time.Second) }))
		stuck := make(chan struct{})
		old := make(chan error, 1)
		go func() {
			old <- g.Do(t.Context(), stamp(1, "a"), func(context.Context) error {
				<-stuck // deaf to its context
				return resource.Do(stamp(1, "a"), func() error { t.Error("wrote after the newer owner"); return nil })
			})
		}()
		synctest.Wait()
		if err := g.Do(t.Context(), stamp(2, "b"), nothing); err != nil {
			t.Fatal(err)
		}
		close(stuck)
		if err := <-old; !errors.Is(err, fence.ErrStale) {
			t.Errorf("got %v, want ErrStale", err)
		}
	})
}

func TestGatePanicInAWriteBlocksNobody(t *testing.T) {
	g := fence.NewGate(nil, nil)
	func() {
		defer func() { _ = recover() }()
		_ = g.Do(context.Background(), stamp(1, "a"), func(context.Context) error { panic("bug") })
	}()
	if err := g.Do(context.Background(), stamp(2, "b"), nothing); err != nil {
		t.Error(err)
	}
}

func TestGateClaimsInBulk(t *testing.T) {
	ctx := context.Background()
	durable := &flaky{Guard: fence.NewMemory(nil)}
	g := fence.NewGate(durable, nil)
	at := func(p uint32, token fence.Token) fence.Stamp {
		return fence.Stamp{Keyspace: "k", Partition: p, Token: token, Owner: "w"}
	}
	if err := durable.Guard.Claim(ctx, []fence.Stamp{at(7, 50)}); err != nil {
		t.Fatal(err)
	}
	if err := g.Do(ctx, at(8, 60), nothing); err != nil {
		t.Fatal(err)
	}
	var batch []fence.Stamp
	for p := range uint32(10_000) {
		batch = append(batch, at(p, 10))
	}
	err := g.Claim(ctx, batch)
	var ce *fence.ClaimError
	if !errors.As(err, &ce) || len(ce.Refused) != 2 {
		t.Fatalf("got %v, want two refusals", err)
	}
	slices.SortFunc(ce.Refused, func(a, b *fence.StaleError) int { return int(a.Partition) - int(b.Partition) })
	if ce.Refused[0].Partition != 7 || ce.Refused[0].Current != 50 || ce.Refused[1].Partition != 8 || ce.Refused[1].Current != 60 {
		t.Errorf("refused %v and %v", ce.Refused[0], ce.Refused[1])
	}
	if len(durable.calls) != 2 || len(durable.calls[1]) != 9_999 {
		t.Errorf("%d durable calls", len(durable.calls))
	}
	if err := g.Claim(ctx, []fence.Stamp{at(1, 0)}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("token 0: got %v, want ErrInvalid", err)
	}
	if err := g.Do(ctx, fence.Stamp{}, nothing); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("zero stamp: got %v, want ErrInvalid", err)
	}
}

// Used by one, a gate decides as Memory does, with and without a durable
// guard, and also when it is restarted in between.
func TestGateDecidesAsMemoryDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		model := fence.NewMemory(nil)
		var durable fence.Guard
		if rapid.Bool().Draw(t, "durable") {
			durable = fence.NewMemory(nil)
		}
		g := fence.NewGate(durable, nil)
		stampGen := rapid.Custom(func(t *rapid.T) fence.Stamp {
			return fence.Stamp{
				Keyspace:  "k",
				Partition: rapid.Uint32Range(0, 2).Draw(t, "partition"),
				Token:     fence.Token(rapid.Uint64Range(1, 6).Draw(t, "token")),
				Owner:     rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner"),
			}
		})
		refusals := func(err error) map[fence.StaleError]bool {
			out := map[fence.StaleError]bool{}
			var ce *fence.ClaimError
			var stale *fence.StaleError
			switch {
			case err == nil:
			case errors.As(err, &ce):
				for _, r := range ce.Refused {
					out[*r] = true
				}
			case errors.As(err, &stale):
				out[*stale] = true
			default:
				t.Fatalf("unexpected %v", err)
			}
			return out
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			var want, got error
			if rapid.Bool().Draw(t, "claim") {
				batch := rapid.SliceOfN(stampGen, 1, 6).Draw(t, "batch")
				want, got = model.Claim(ctx, batch), g.Claim(ctx, batch)
			} else {
				s := stampGen.Draw(t, "stamp")
				ran := false
				want = model.Do(s, func() error { return nil })
				got = g.Do(ctx, s, func(context.Context) error { ran = true; return nil })
				if ran != (want == nil) {
					t.Fatalf("%v: ran %v, want %v", s, ran, want == nil)
				}
			}
			if w, o := fmt.Sprint(refusals(want)), fmt.Sprint(refusals(got)); w != o {
				t.Fatalf("memory refused %s, the gate %s", w, o)
			}
			if durable != nil && rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				g = fence.NewGate(durable, nil)
			}
		}
	})
}

// Many writers with rising tokens: a write never runs beside or after one with
// a higher token.
func TestGateUnderConcurrencyNeverFalls(t *testing.T) {
	for _, durable := range []fence.Guard{nil, fence.NewMemory(nil)} {
		g := fence.NewGate(durable, nil)
		var (
			mu      sync.Mutex
			highest fence.Token
			running = map[fence.Token]int{}
			wrote   int
			wg      sync.WaitGroup
		)
		for w := range 8 {
			wg.Go(func() {
				for i := range 300 {
					token := fence.Token(1 + i/3 + w%3)
					_ = g.Do(context.Background(), stamp(token, fmt.Sprint("w", token)), func(context.Context) error {
						mu.Lock()
						if token < highest {
							t.Errorf("token %d writes after %d", token, highest)
						}
						highest = token
						running[token]++
						mu.Unlock()
						runtime.Gosched()
						mu.Lock()
						defer mu.Unlock()
						wrote++
						for other, n := range running {
							if n > 0 && other != token {
								t.Errorf("tokens %d and %d write at the same time", token, other)
							}
						}
						running[token]--
						return nil
					})
				}
			})
		}
		wg.Wait()
		if wrote == 0 || highest != 102 {
			t.Errorf("%d writes, highest token %d of 102", wrote, highest)
		}
	}
}

func BenchmarkGateDo(b *testing.B) {
	g := fence.NewGate(fence.NewMemory(nil), nil)
	ctx := context.Background()
	for b.Loop() {
		if err := g.Do(ctx, stamp(5, "a"), nothing); err != nil {
			b.Fatal(err)
		}
	}
}
