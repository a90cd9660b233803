package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"pgregory.net/rapid"
)

func stamp(token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "orders", Partition: 17, Token: token, Owner: owner}
}

func TestCheckTable(t *testing.T) {
	for _, c := range []struct {
		name string
		seen fence.Mark
		got  fence.Stamp
		want string // reason, "" for accepted
	}{
		{"first token ever", fence.Mark{}, stamp(1, "a"), ""},
		{"higher", fence.Mark{Token: 33, Owner: "a"}, stamp(34, "b"), ""},
		{"higher by the same owner", fence.Mark{Token: 33, Owner: "a"}, stamp(34, "a"), ""},
		{"lower", fence.Mark{Token: 34, Owner: "b"}, stamp(33, "a"), fence.ReasonStale},
		{"lower by the same owner", fence.Mark{Token: 34, Owner: "a"}, stamp(33, "a"), fence.ReasonStale},
		{"as numbers, not as text: 10 after 9", fence.Mark{Token: 9, Owner: "a"}, stamp(10, "b"), ""},
		{"as numbers, not as text: 9 after 10", fence.Mark{Token: 10, Owner: "a"}, stamp(9, "b"), fence.ReasonStale},
		{"O-73 equal, same owner", fence.Mark{Token: 5, Owner: "a"}, stamp(5, "a"), ""},
		{"O-73 equal, other owner", fence.Mark{Token: 5, Owner: "a"}, stamp(5, "b"), fence.ReasonOtherOwner},
		{"one below the top", fence.Mark{Token: fence.MaxToken, Owner: "a"}, stamp(fence.MaxToken-1, "b"), fence.ReasonStale},
		{"the top", fence.Mark{Token: fence.MaxToken - 1, Owner: "a"}, stamp(fence.MaxToken, "b"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := fence.Check(c.seen, c.got)
			if c.want == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			var stale *fence.StaleError
			if !errors.As(err, &stale) {
				t.Fatalf("got %v, want a *StaleError", err)
			}
			if stale.Reason != c.want || stale.Current != c.seen.Token || stale.CurrentOwner != c.seen.Owner || stale.Stamp != c.got {
				t.Errorf("got %+v, want reason %q and the mark %+v", stale, c.want, c.seen)
			}
			if !errors.Is(err, fence.ErrStale) {
				t.Error("errors.Is(err, ErrStale) is false")
			}
			if got := errors.Is(err, fence.ErrOtherOwner); got != (c.want == fence.ReasonOtherOwner) {
				t.Errorf("errors.Is(err, ErrOtherOwner) = %v", got)
			}
		})
	}
}

func TestInvalidStampChangesNothing(t *testing.T) {
	g := fence.NewMemory(nil)
	for _, s := range []fence.Stamp{
		{Partition: 1, Token: 1, Owner: "a"},
		{Keyspace: "orders", Token: 1},
		{Keyspace: "orders", Owner: "a"},
		{Keyspace: "orders", Owner: "a", Token: fence.MaxToken + 1},
	} {
		ok := stamp(7, "a")
		if err := g.Claim(context.Background(), []fence.Stamp{ok, s}); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("claim %+v: got %v, want ErrInvalid", s, err)
		}
		if err := g.Do(s, func() error { t.Error("write ran"); return nil }); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("do %+v: got %v, want ErrInvalid", s, err)
		}
	}
	if m := g.Seen(fence.Key{Keyspace: "orders", Partition: 17}); m != (fence.Mark{}) {
		t.Errorf("an invalid claim left %+v behind", m)
	}
}

// The zombie story of the README: the old owner is paused between its check
// and its write, the new one has claimed but written nothing yet.
func TestZombieBouncesBeforeTheNewOwnersFirstWrite(t *testing.T) {
	var n fence.Tally
	g := fence.NewMemory(&n)
	ctx := context.Background()
	if err := g.Claim(ctx, []fence.Stamp{stamp(33, "w2")}); err != nil {
		t.Fatal(err)
	}
	if err := g.Claim(ctx, []fence.Stamp{stamp(34, "w4")}); err != nil {
		t.Fatal(err)
	}
	err := g.Do(stamp(33, "w2"), func() error { t.Error("the zombie wrote"); return nil })
	if !errors.Is(err, fence.ErrStale) {
		t.Fatalf("got %v, want ErrStale", err)
	}
	if want := "write to orders/17 token 33 of w2 refused: the resource has seen token 34 of w4"; err.Error() != want {
		t.Errorf("message %q, want %q", err, want)
	}
	if n.Checks() != 3 || n.Rejections() != 1 || n.OtherOwner() != 0 {
		t.Errorf("tally %d/%d/%d, want 3/1/0", n.Checks(), n.Rejections(), n.OtherOwner())
	}
}

func TestClaimIsPerStamp(t *testing.T) {
	var n fence.Tally
	g := fence.NewMemory(&n)
	ctx := context.Background()
	at := func(p uint32, tok fence.Token, o string) fence.Stamp {
		return fence.Stamp{Keyspace: "k", Partition: p, Token: tok, Owner: o}
	}
	if err := g.Claim(ctx, []fence.Stamp{at(1, 10, "a"), at(2, 11, "a"), at(3, 12, "a")}); err != nil {
		t.Fatal(err)
	}
	err := g.Claim(ctx, []fence.Stamp{at(3, 20, "b"), at(2, 9, "b"), at(1, 10, "b"), at(4, 8, "b")})
	var ce *fence.ClaimError
	if !errors.As(err, &ce) || len(ce.Refused) != 2 {
		t.Fatalf("got %v, want two refusals", err)
	}
	if ce.Refused[0].Partition != 1 || ce.Refused[0].Reason != fence.ReasonOtherOwner ||
		ce.Refused[1].Partition != 2 || ce.Refused[1].Reason != fence.ReasonStale {
		t.Errorf("refused %v, %v", ce.Refused[0], ce.Refused[1])
	}
	if g.Seen(fence.Key{Keyspace: "k", Partition: 3}) != (fence.Mark{Token: 20, Owner: "b"}) || g.Seen(fence.Key{Keyspace: "k", Partition: 4}) != (fence.Mark{Token: 8, Owner: "b"}) {
		t.Error("a refused neighbour kept others from being claimed")
	}
	if n.Checks() != 7 || n.Rejections() != 2 || n.OtherOwner() != 1 {
		t.Errorf("tally %d/%d/%d, want 7/2/1", n.Checks(), n.Rejections(), n.OtherOwner())
	}
}

// A newer claim waits for a write in flight, and no older write follows it.
func TestClaimWaitsForAWriteInFlight(t *testing.T) {
	g := fence.NewMemory(nil)
	writing, finish := make(chan struct{}), make(chan struct{})
	var order []string
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = g.Do(stamp(1, "a"), func() error {
			close(writing)
			<-finish
			order = append(order, "write 1")
			return nil
		})
	})
	<-writing
	wg.Go(func() {
		_ = g.Do(stamp(2, "b"), func() error { order = append(order, "write 2"); return nil })
	})
	close(finish)
	wg.Wait()
	if fmt.Sprint(order) != "[write 1 write 2]" {
		t.Errorf("order %v", order)
	}
}

// Whatever comes in whatever order: the accepted tokens of a partition never
// fall, the same token is accepted from one owner only, and the mark is the
// highest accepted one.
func TestAcceptedTokensNeverFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := fence.NewMemory(nil)
		type key struct{ p uint32 }
		best := map[key]fence.Mark{}
		stamps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fence.Stamp {
			return fence.Stamp{
				Keyspace:  "k",
				Partition: rapid.Uint32Range(0, 2).Draw(t, "partition"),
				Token:     fence.Token(rapid.Uint64Range(1, 6).Draw(t, "token")),
				Owner:     rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner"),
			}
		}), 1, 40).Draw(t, "stamps")
		for len(stamps) > 0 {
			n := rapid.IntRange(1, len(stamps)).Draw(t, "batch")
			batch := stamps[:n]
			stamps = stamps[n:]
			err := g.Claim(context.Background(), batch)
			refused := map[fence.Stamp]bool{}
			var ce *fence.ClaimError
			if errors.As(err, &ce) {
				for _, r := range ce.Refused {
					refused[r.Stamp] = true
				}
			}
			for _, s := range batch {
				before, after := best[key{s.Partition}], g.Seen(fence.Key{Keyspace: "k", Partition: s.Partition})
				if after.Token < before.Token || after.Token == before.Token && after.Owner != before.Owner {
					t.Fatalf("mark went from %+v to %+v", before, after)
				}
				accepted := !refused[s]
				if accepted && (s.Token < after.Token || s.Owner != after.Owner) {
					t.Fatalf("accepted %v although the mark is %+v", s, after)
				}
				if !accepted && s.Token > after.Token {
					t.Fatalf("refused %v although the mark is %+v", s, after)
				}
			}
			for _, s := range batch {
				best[key{s.Partition}] = g.Seen(fence.Key{Keyspace: "k", Partition: s.Partition})
			}
		}
	})
}

// Sorted is a permutation, ordered, and leaves its argument alone.
func TestSorted(t *testing.T) {
	in := []fence.Stamp{
		{Keyspace: "b", Partition: 1, Token: 1, Owner: "x"},
		{Keyspace: "a", Partition: 2, Token: 5, Owner: "x"},
		{Keyspace: "a", Partition: 2, Token: 9, Owner: "x"},
		{Keyspace: "a", Partition: 1, Token: 3, Owner: "x"},
	}
	got := fence.Sorted(in)
	if want := "[a/1 token 3 of x a/2 token 9 of x a/2 token 5 of x b/1 token 1 of x]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if in[0].Keyspace != "b" {
		t.Error("the argument was reordered")
	}
}

// A named resource has one mark, whichever keyspace the lease is of.
func TestResourceIsKeptUnderItsNameAlone(t *testing.T) {
	g := fence.NewMemory(nil)
	ctx := context.Background()
	printer := func(keyspace string, partition uint32, token fence.Token) fence.Stamp {
		return fence.Stamp{Keyspace: keyspace, Partition: partition, Token: token, Owner: "a", Resource: `the "printer" – ünï`}
	}
	if err := g.Claim(ctx, []fence.Stamp{printer("orders", 1, 20)}); err != nil {
		t.Fatal(err)
	}
	if err := g.Claim(ctx, []fence.Stamp{printer("billing", 9, 19)}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("an older token of another keyspace: got %v, want ErrStale", err)
	}
	if err := g.Claim(ctx, []fence.Stamp{{Keyspace: "orders", Partition: 1, Token: 5, Owner: "a"}}); err != nil {
		t.Errorf("the partition itself has a mark of its own: %v", err)
	}
	for _, bad := range []string{strings.Repeat("x", fence.MaxResourceLen+1), strings.Repeat("x", 1<<20), "a\x00b", "\xff"} {
		s := printer("orders", 1, 30)
		s.Resource = bad
		err := g.Claim(ctx, []fence.Stamp{s})
		if !errors.Is(err, fence.ErrInvalid) || len(err.Error()) > 300 {
			t.Errorf("resource of %d bytes: got %.80v (%d bytes), want a short ErrInvalid", len(bad), err, len(err.Error()))
		}
	}
}

func TestContextCarriesTheStamp(t *testing.T) {
	if _, ok := fence.FromContext(context.Background()); ok {
		t.Error("an empty context has a stamp")
	}
	if _, ok := fence.FromContext(fence.NewContext(context.Background(), fence.Stamp{}, time.Second)); ok {
		t.Error("a context with a TTL alone has a stamp")
	}
	ctx := fence.NewContext(context.Background(), stamp(7, "a"), 3*time.Second)
	if s, ok := fence.FromContext(ctx); !ok || s != stamp(7, "a") || fence.TTLFromContext(ctx) != 3*time.Second {
		t.Errorf("got %v, %v, %v", s, ok, fence.TTLFromContext(ctx))
	}
}
