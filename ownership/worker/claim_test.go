package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

type guardFunc func(ctx context.Context, stamps []fence.Stamp) error

func (f guardFunc) Claim(ctx context.Context, stamps []fence.Stamp) error { return f(ctx, stamps) }

func TestNoClaimNoStart(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		seen := fence.NewMemory(nil)
		var claimed, wrong int
		guard := guardFunc(func(ctx context.Context, stamps []fence.Stamp) error {
			claimed += len(stamps)
			return seen.Claim(ctx, stamps)
		})
		b.run(func(ctx context.Context, l *Lease) error {
			if !errors.Is(fence.Check(seen.Seen(fence.Key{Keyspace: "orders", Partition: l.Partition()}), fence.Stamp{
				Keyspace: "orders", Partition: l.Partition(), Token: l.Token() - 1, Owner: "zombie"}), fence.ErrStale) {
				wrong++
			}
			return untilDone(ctx, l)
		}, Claim(guard))
		s := b.c.only()
		b.c.grant(s, 1, 2, 3)
		b.seen.started(t, 3)
		if claimed != 3 || wrong != 0 {
			t.Errorf("claimed %d; %d handlers ran before the resource knew their token", claimed, wrong)
		}
		// Somebody has been there with a higher token.
		high := fence.Stamp{Keyspace: "orders", Partition: 9, Token: 999_999, Owner: "w9"}
		if err := seen.Claim(b.t.Context(), []fence.Stamp{high}); err != nil {
			t.Fatal(err)
		}
		b.c.grant(s, 9, 10)
		b.seen.started(t, 4)
		b.c.wait("the refused one back", func() bool { return len(b.c.releases) == 1 && len(b.c.reports) == 1 })
		r := b.c.releases[0]
		if r.GetCause() != leaseholdv1.ReleaseCause_RELEASE_CAUSE_CLAIM_REFUSED || r.GetLeases()[0].GetPartition() != 9 {
			t.Errorf("released %v", r)
		}
		if b.c.reports[0] != 999_999 {
			t.Errorf("reported token %d", b.c.reports[0])
		}
		pass(time.Minute)
		if starts, _, _ := b.seen.counts(); starts != 4 {
			t.Errorf("%d handlers started", starts)
		}
		b.finish()
	})
}

func TestClaimIsTriedAgain(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		b.join()
		var tries atomic.Int64
		guard := guardFunc(func(_ context.Context, stamps []fence.Stamp) error {
			if tries.Add(1) == 3 {
				panic("driver bug")
			}
			for _, s := range stamps {
				if s.Partition == 5 { // the row that is locked
					return errors.New("connection reset")
				}
			}
			return nil
		})
		b.run(untilDone, Claim(guard))
		s := b.c.only()
		b.c.grant(s, 1, 2, 3, 4, 5, 6, 7, 8)
		b.seen.started(t, 7)
		pass(time.Minute)
		if starts, _, _ := b.seen.counts(); starts != 7 || b.c.held(s) != 8 {
			t.Errorf("%d started, %d held; want 7, 8: one stamp must not hold up the others, nor be given up", starts, b.c.held(s))
		}
		if n := tries.Load(); n > 60 {
			t.Errorf("%d tries in a minute", n)
		}
		b.finish()
	})
}
