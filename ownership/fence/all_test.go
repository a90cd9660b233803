package fence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

type down struct{}

func (down) Claim(context.Context, []fence.Stamp) error { return errors.New("resource is down") }

func TestAllClaimsAtEveryResource(t *testing.T) {
	ctx := context.Background()
	a, b, c := fence.NewMemory(nil), fence.NewMemory(nil), fence.NewMemory(nil)
	at := func(p uint32, tok fence.Token) fence.Stamp {
		return fence.Stamp{Keyspace: "k", Partition: p, Token: tok, Owner: "w"}
	}
	key := func(p uint32) fence.Key { return fence.Key{Keyspace: "k", Partition: p} }
	// Each resource has seen something newer of another partition.
	if err := errors.Join(a.Claim(ctx, []fence.Stamp{at(1, 9)}), b.Claim(ctx, []fence.Stamp{at(2, 9)})); err != nil {
		t.Fatal(err)
	}
	err := fence.All(a, b, c).Claim(ctx, []fence.Stamp{at(1, 5), at(2, 5), at(3, 5)})
	var ce *fence.ClaimError
	if !errors.As(err, &ce) || len(ce.Refused) != 2 {
		t.Fatalf("got %v, want two refusals", err)
	}
	if c.Seen(key(1)).Token != 0 || c.Seen(key(2)).Token != 0 || c.Seen(key(3)).Token != 5 || a.Seen(key(3)).Token != 5 {
		t.Error("a refused stamp went on to the next resource, or an accepted one did not")
	}
	err = fence.All(a, down{}, c).Claim(ctx, []fence.Stamp{at(4, 5)})
	if errors.Is(err, fence.ErrStale) || err == nil || !strings.Contains(err.Error(), "resource 2 of 3: resource is down") {
		t.Errorf("got %v", err)
	}
	if err := fence.All(a).Claim(ctx, []fence.Stamp{at(4, 0)}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}
