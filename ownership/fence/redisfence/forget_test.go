package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
)

func resource(name string, token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "jobs", Partition: 1, Token: token, Owner: owner, Resource: name}
}

// O-75: marks are bounded by partitions, however often these change hands, and
// those of 100,000 short-lived names can be removed, without one that is still
// needed.
func TestHundredThousandNames(t *testing.T) {
	f, c := newFence(t)
	ctx := t.Context()
	for round := range 200 {
		var stamps []fence.Stamp
		for p := range uint32(16) {
			stamps = append(stamps, at(p, fence.Token(1+round), fmt.Sprint("w", round)))
		}
		if err := f.Claim(ctx, stamps); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.DBSize(ctx).Val(); n != 16 {
		t.Errorf("%d keys after 200 owners of 16 partitions", n)
	}

	const names = 100_000
	stamps := make([]fence.Stamp, names)
	for i := range stamps {
		stamps[i] = resource(fmt.Sprint("job-", i), fence.Token(1000+i), "a")
	}
	if err := f.Claim(ctx, stamps); err != nil {
		t.Fatal(err)
	}
	if n := c.DBSize(ctx).Val(); n != 16+names {
		t.Fatalf("%d keys, want %d", n, 16+names)
	}
	// The workers that run now hold tokens from 91,000 on.
	const lowest = 91_000
	var done []fence.Key
	count := 0
	if err := f.Each(ctx, func(k fence.Key, m fence.Mark) error {
		count++
		if k.Resource != "" {
			done = append(done, k)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	removed, err := f.Forget(ctx, lowest, done...)
	if err != nil || removed != lowest-1000 {
		t.Errorf("removed %d of %d, %v; want %d", removed, count, err, lowest-1000)
	}
	if n := c.DBSize(ctx).Val(); n != 16+names-(lowest-1000) {
		t.Errorf("%d keys are left, want %d", n, 16+names-(lowest-1000))
	}
	// What is still needed still refuses.
	wantSeen(t, f, fence.Key{Resource: "job-90000"}, fence.Mark{Token: lowest, Owner: "a"})
	wantReason(t, push(ctx, f, resource("job-90000", lowest-1, "z"), "late"), fence.ReasonStale)
	wantSeen(t, f, fence.Key{Keyspace: "orders", Partition: 3}, fence.Mark{Token: 200, Owner: "w199"})
}

// Forget compares and removes in one step: a mark that has been raised to the
// bound stays, whoever chose the bound when.
func TestForgetKeepsWhatIsNotBelow(t *testing.T) {
	f, c := newFence(t)
	ctx := t.Context()
	for i, pair := range []struct {
		mark, below fence.Token
		removed     int
	}{
		{9, 10, 1}, {10, 10, 0}, {10, 9, 0}, {100, 99, 0}, {99, 100, 1},
		{9007199254740990, 9007199254740991, 1}, {9007199254740990, 9007199254740990, 0}, {9007199254740991, 9007199254740990, 0},
	} {
		s := at(uint32(i), pair.mark, "a")
		if err := f.Claim(ctx, []fence.Stamp{s}); err != nil {
			t.Fatal(err)
		}
		if n, err := f.Forget(ctx, pair.below, s.Key()); err != nil || n != pair.removed {
			t.Errorf("mark %d, bound %d: removed %d, %v; want %d", pair.mark, pair.below, n, err, pair.removed)
		}
		if n := int(c.Exists(ctx, f.MarkKey(s.Key())).Val()); n != 1-pair.removed {
			t.Errorf("mark %d, bound %d: %d keys", pair.mark, pair.below, n)
		}
	}
	// No mark, a damaged one, another type: left alone.
	c.FlushAll(ctx)
	damaged, text := at(1, 1, "a").Key(), at(2, 1, "a").Key()
	c.HSet(ctx, f.MarkKey(damaged), "token", "007", "owner", "a")
	c.Set(ctx, f.MarkKey(text), "5", 0)
	if n, err := f.Forget(ctx, 100, damaged, text, orders17); n != 0 || err != nil || c.DBSize(ctx).Val() != 2 {
		t.Errorf("removed %d, %v", n, err)
	}
	for _, key := range []fence.Key{damaged, text} {
		if err := f.Each(ctx, func(fence.Key, fence.Mark) error { return nil }); !errors.Is(err, redisfence.ErrCorrupt) {
			t.Errorf("each: %v", err)
		}
		c.Del(ctx, f.MarkKey(key))
	}
	for _, bad := range []fence.Token{0, fence.MaxToken + 1} {
		if _, err := f.Forget(ctx, bad, orders17); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("bound %d: %v", bad, err)
		}
	}
	// The caller's error ends Each and comes back.
	stop := errors.New("stop")
	if err := f.Claim(ctx, []fence.Stamp{at(1, 1, "a"), at(2, 1, "a")}); err != nil {
		t.Fatal(err)
	}
	calls := 0
	if err := f.Each(ctx, func(fence.Key, fence.Mark) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("each: %v after %d calls", err, calls)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := f.Each(over, func(fence.Key, fence.Mark) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("each: %v", err)
	}
}
