package fence_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// flaky is a durable guard with a switch, which counts its calls.
type flaky struct {
	fence.Guard
	mu    sync.Mutex
	down  error
	lost  bool // the claim is made and its answer lost
	calls [][]fence.Stamp
}

func (f *flaky) set(down error, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.lost = down, lost
}

func (f *flaky) Claim(ctx context.Context, s []fence.Stamp) error {
	f.mu.Lock()
	down, lost := f.down, f.lost
	f.calls = append(f.calls, s)
	f.mu.Unlock()
	if down != nil && !lost {
		return down
	}
	if err := f.Guard.Claim(ctx, s); err != nil {
		return err
	}
	return down
}

// A restarted process has an empty memory; the durable guard has not.
func TestGateRestartRefusesWhatItHadRefused(t *testing.T) {
	ctx := context.Background()
	durable := &flaky{Guard: fence.NewMemory(nil)}
	g := fence.NewGate(durable, nil)
	for range 3 {
		if err := g.Do(ctx, stamp(34, "w4"), nothing); err != nil {
			t.Fatal(err)
		}
	}
	if len(durable.calls) != 1 {
		t.Errorf("%d durable claims for three writes of one lease, want 1", len(durable.calls))
	}
	var n fence.Tally
	g = fence.NewGate(durable, &n)
	var stale *fence.StaleError
	err := g.Do(ctx, stamp(33, "w2"), func(context.Context) error { t.Error("the zombie wrote after the restart"); return nil })
	if !errors.As(err, &stale) || stale.Current != 34 || stale.CurrentOwner != "w4" || n.Rejections() != 1 {
		t.Errorf("got %v with %d rejections counted, want stale with 34 of w4 and 1", err, n.Rejections())
	}
	// what the refusal taught it is in memory now
	calls := len(durable.calls)
	if err := g.Do(ctx, stamp(33, "w2"), nothing); !errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v", err)
	}
	if err := g.Do(ctx, stamp(34, "w4"), nothing); err != nil {
		t.Errorf("the owner after the restart: %v", err)
	}
	if len(durable.calls) != calls {
		t.Errorf("the durable guard was asked again for a mark that it had told")
	}
}

func TestGateLetsNothingThroughWhileTheDurableGuardIsDown(t *testing.T) {
	ctx := context.Background()
	down := errors.New("connection refused")
	for _, lost := range []bool{false, true} {
		durable := &flaky{Guard: fence.NewMemory(nil)}
		var n fence.Tally
		g := fence.NewGate(durable, &n)
		if err := g.Do(ctx, stamp(1, "a"), nothing); err != nil {
			t.Fatal(err)
		}
		durable.set(down, lost)
		if err := g.Do(ctx, stamp(1, "a"), nothing); err != nil {
			t.Errorf("a claimed lease needs no durable guard: %v", err)
		}
		err := g.Do(ctx, stamp(2, "b"), func(context.Context) error { t.Error("wrote unclaimed"); return nil })
		if !errors.Is(err, down) || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "unknown") {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		if err := g.Claim(ctx, []fence.Stamp{stamp(2, "b")}); !errors.Is(err, down) || errors.Is(err, fence.ErrStale) {
			t.Errorf("claim: got %v, want an unknown outcome", err)
		}
		if err := g.Do(ctx, stamp(1, "a"), nothing); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the older owner after an unknown claim: got %v, want ErrStale", err)
		}
		if n.Checks() != 3 {
			t.Errorf("%d checks counted, want 3: what was not decided is not counted", n.Checks())
		}
		durable.set(nil, false)
		if err := g.Do(ctx, stamp(2, "b"), nothing); err != nil {
			t.Errorf("second try: %v", err)
		}
	}
}

// A token that somebody made up while the durable guard was away must not keep
// its true owner out.
func TestGateLetsTheDurableGuardDecideWhoseTokenItIs(t *testing.T) {
	ctx := context.Background()
	durable := &flaky{Guard: fence.NewMemory(nil)}
	if err := durable.Guard.Claim(ctx, []fence.Stamp{stamp(2, "true")}); err != nil {
		t.Fatal(err)
	}
	durable.set(errors.New("away"), false)
	g := fence.NewGate(durable, nil)
	if err := g.Do(ctx, stamp(2, "liar"), nothing); err == nil {
		t.Fatal("wrote unclaimed")
	}
	durable.set(nil, false)
	if err := g.Do(ctx, stamp(2, "true"), nothing); err != nil {
		t.Errorf("true owner: %v", err)
	}
	if err := g.Do(ctx, stamp(2, "liar"), nothing); !errors.Is(err, fence.ErrOtherOwner) {
		t.Errorf("liar: got %v, want ErrOtherOwner", err)
	}
}
