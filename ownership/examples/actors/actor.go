package main

import (
	"context"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// actor is one tenant in the memory of its owner. It handles one request at a
// time, so it needs neither locks around its state nor reads before writes.
type actor struct {
	store  *store
	tenant string

	turn   chan struct{} // has room for the request that is being handled
	loaded bool          // only with the turn; false: memory may not be what the database has
	value  int64         // only with the turn
}

func newActor(s *store, tenant string) *actor {
	return &actor{store: s, tenant: tenant, turn: make(chan struct{}, 1)}
}

// add changes the value and returns the new one, or what the same request was
// answered with before. ctx carries the stamp of the lease.
func (a *actor) add(ctx context.Context, request string, n int64) (value int64, replayed bool, err error) {
	stamp, err := a.enter(ctx)
	if err != nil {
		return 0, false, err
	}
	defer a.leave()
	value, replayed, err = a.store.save(ctx, stamp, a.tenant, request, a.value+n)
	switch {
	case err != nil:
		a.loaded = false // it may have been committed all the same: look before the next request
	case !replayed:
		a.value = value
	}
	return value, replayed, err
}

// get returns the value.
func (a *actor) get(ctx context.Context) (int64, error) {
	if _, err := a.enter(ctx); err != nil {
		return 0, err
	}
	defer a.leave()
	return a.value, nil
}

// enter waits for the turn, and for the state to be in memory.
func (a *actor) enter(ctx context.Context) (fence.Stamp, error) {
	stamp, _ := fence.FromContext(ctx)
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return stamp, context.Cause(ctx)
	}
	if a.loaded {
		return stamp, nil
	}
	value, err := a.store.load(ctx, stamp, a.tenant)
	if err != nil {
		a.leave()
		return stamp, err
	}
	a.value, a.loaded = value, true
	return stamp, nil
}

func (a *actor) leave() { <-a.turn }
