package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// errNotOwner: the tenant is not, or no more, this process's.
var errNotOwner = errors.New("not the owner of this tenant")

// partition is the actors of one lease. It ends with the lease, and with it
// all that was in memory: the next owner loads what the database has.
type partition struct {
	ctx   context.Context // of the lease: ends when it does
	stamp fence.Stamp
	ttl   time.Duration
	check func() error // whether the lease is held now, by the local clock
	store *store
	stale chan error // gets the guard's refusal, if there is one

	mu     sync.Mutex // guards the rest
	actors map[string]*actor
	closed bool
	busy   sync.WaitGroup
}

func newPartition(ctx context.Context, s *store, stamp fence.Stamp, ttl time.Duration, check func() error) *partition {
	return &partition{ctx: ctx, stamp: stamp, ttl: ttl, check: check, store: s, stale: make(chan error, 1), actors: map[string]*actor{}}
}

// do runs one request on a tenant's actor, as long as the lease lasts and the
// caller waits, with the stamp of the lease in the context.
func (p *partition) do(caller context.Context, tenant string, fn func(ctx context.Context, a *actor) error) error {
	a, ok := p.enter(tenant)
	if !ok {
		return errNotOwner
	}
	defer p.busy.Done()
	ctx, cancel := context.WithCancelCause(fence.NewContext(caller, p.stamp, p.ttl))
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(errNotOwner) })()

	err := fn(ctx, a)
	if errors.Is(err, fence.ErrStale) {
		select {
		case p.stale <- err:
		default:
		}
		return errors.Join(errNotOwner, err)
	}
	return err
}

// enter returns the tenant's actor and counts the request. What waits for the
// count may begin at any time, so both happen under the lock.
func (p *partition) enter(tenant string) (*actor, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false
	}
	a, ok := p.actors[tenant]
	if !ok {
		a = newActor(p.store, tenant)
		p.actors[tenant] = a
	}
	p.busy.Add(1)
	return a, true
}

// close lets no more requests in and waits for those that are.
func (p *partition) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.busy.Wait()
}
