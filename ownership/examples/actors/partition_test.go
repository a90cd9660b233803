package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

func newStore(t *testing.T) *store {
	t.Helper()
	s := opened(t, database(t))
	if err := s.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// owned is a partition as the worker library opens it, after the claim.
func owned(t *testing.T, s *store, token fence.Token, owner string) *partition {
	t.Helper()
	stamp := fence.Stamp{Keyspace: "actors", Token: token, Owner: owner}
	if err := s.fence.Claim(t.Context(), []fence.Stamp{stamp}); err != nil {
		t.Fatal(err)
	}
	return newPartition(t.Context(), s, stamp, ttl, func() error { return nil })
}

func (p *partition) add(ctx context.Context, tenant, request string, n int64) (value int64, replayed bool, err error) {
	err = p.do(ctx, tenant, func(ctx context.Context, a *actor) (err error) {
		value, replayed, err = a.add(ctx, request, n)
		return err
	})
	return value, replayed, err
}

func (s *store) stored(t *testing.T, tenant string) (value, requests int64) {
	t.Helper()
	err := s.db.QueryRowContext(t.Context(), `
		SELECT value, (SELECT count(*) FROM tenant_request WHERE tenant = name) FROM tenant WHERE name = $1`, tenant).Scan(&value, &requests)
	if err != nil {
		t.Fatal(err)
	}
	return value, requests
}

// O-13: an owner that was paused has the tenant in its memory as it was. What it
// would write is that and one more, over all that its successor has done.
func TestZombieWriteBounces(t *testing.T) {
	s := newStore(t)
	zombie := owned(t, s, 7, "a")
	if v, _, err := zombie.add(t.Context(), "shop", "r1", 1); err != nil || v != 1 {
		t.Fatalf("%d, %v", v, err)
	}
	owner := owned(t, s, 8, "b")
	for i := range 5 {
		if _, _, err := owner.add(t.Context(), "shop", fmt.Sprintf("r%d", i+2), 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := zombie.add(t.Context(), "shop", "late", 1); !errors.Is(err, fence.ErrStale) || !errors.Is(err, errNotOwner) {
		t.Errorf("the zombie's write: %v, want %v", err, fence.ErrStale)
	}
	select {
	case <-zombie.stale: // its handler returns
	default:
		t.Error("the zombie's partition goes on")
	}
	if value, requests := s.stored(t, "shop"); value != 6 || requests != 6 {
		t.Errorf("value %d of %d requests, want 6 of 6", value, requests)
	}
	if v, _, err := owner.add(t.Context(), "shop", "late", 1); err != nil || v != 7 {
		t.Errorf("the retry at the owner: %d, %v, want 7", v, err)
	}
}

// A request that is sent again, to the same owner or the next, is answered as
// the first time, and at once by many.
func TestRequestIsCarriedOutOnce(t *testing.T) {
	s := newStore(t)
	first := owned(t, s, 7, "a")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if v, _, err := first.add(t.Context(), "shop", "same", 10); err != nil || v != 10 {
				t.Errorf("%d, %v", v, err)
			}
		})
	}
	all.Wait()
	next := owned(t, s, 8, "b")
	if v, _, err := next.add(t.Context(), "shop", "other", 5); err != nil || v != 15 {
		t.Errorf("other: %d, %v", v, err)
	}
	if v, replayed, err := next.add(t.Context(), "shop", "same", 10); err != nil || v != 10 || !replayed {
		t.Errorf("again: %d, replayed %v, %v", v, replayed, err)
	}
	if value, requests := s.stored(t, "shop"); value != 15 || requests != 2 {
		t.Errorf("value %d of %d requests, want 15 of 2", value, requests)
	}
}

// A write whose outcome is lost leaves the memory in doubt: the next request
// looks into the database first.
func TestLostOutcomeIsLookedUp(t *testing.T) {
	s := newStore(t)
	p := owned(t, s, 7, "a")
	if _, _, err := p.add(t.Context(), "shop", "r1", 1); err != nil {
		t.Fatal(err)
	}
	// Together, what a commit is whose answer never came: the transaction of a
	// request, which the actor hears nothing of but an error.
	if _, _, err := s.save(t.Context(), p.stamp, "shop", "lost", 2); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.add(t.Context(), "shop", "no text for PostgreSQL: \x00", 1); err == nil {
		t.Fatal("no error")
	}
	if v, replayed, err := p.add(t.Context(), "shop", "lost", 1); err != nil || v != 2 || !replayed {
		t.Errorf("the retry: %d, replayed %v, %v", v, replayed, err)
	}
	if v, _, err := p.add(t.Context(), "shop", "r3", 1); err != nil || v != 3 {
		t.Errorf("the next: %d, %v, want 3", v, err)
	}
}

// A planned move waits for the requests under way and lets no more in; the end
// of the lease ends them.
func TestDrainAndEnd(t *testing.T) {
	s := newStore(t)
	p := owned(t, s, 7, "a")
	started, finish := make(chan struct{}), make(chan struct{})
	under := make(chan error, 1)
	go func() {
		under <- p.do(t.Context(), "shop", func(ctx context.Context, a *actor) error {
			close(started)
			<-finish
			_, _, err := a.add(ctx, "r1", 1)
			return err
		})
	}()
	<-started
	closed := make(chan struct{})
	go func() {
		p.close()
		close(closed)
	}()
	for refused := false; !refused; { // as soon as close has begun
		err := p.do(t.Context(), "other", func(context.Context, *actor) error { return nil })
		refused = errors.Is(err, errNotOwner)
	}
	select {
	case <-closed:
		t.Error("closed with a request under way")
	default:
	}
	close(finish)
	if err := <-under; err != nil {
		t.Errorf("the request under way: %v", err)
	}
	<-closed

	ending, end := context.WithCancel(t.Context())
	q := newPartition(ending, s, p.stamp, ttl, nil)
	end()
	err := q.do(t.Context(), "shop", func(ctx context.Context, a *actor) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Second):
			return errors.New("the request goes on without a lease")
		}
	})
	if !errors.Is(err, errNotOwner) {
		t.Error(err)
	}
}
