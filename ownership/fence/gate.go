package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Gate guards a resource that has no transactions of its own and is reached
// through one process: a server's HTTP handlers, files, a device. Writes of
// one lease run in parallel, as if there were no gate; a newer stamp ends
// those of an older one and waits for them.
//
// # Promise
//
// When Do or Claim has let a stamp of a key through, no write with a lower
// token of that key starts afterwards, and all that had started have returned.
// The exception is asked for with [Overtake], and says there what is left.
//
// Without a durable guard the marks last as long as the process: after a
// restart the first stamp of a key is believed, whatever it is. With one, the
// first sight of a higher stamp is claimed there before its write runs, so a
// restarted gate refuses what it had refused before. A durable guard that does
// not answer lets nothing through.
//
// One process must own the resource. Two gates in front of one resource do not
// see each other's writes in flight, also when they share a durable guard;
// then the guard belongs into the write's own transaction.
//
// Gate keeps one small record for each key it has ever seen, and never drops
// one: whoever takes stamps from the network decides first which keyspaces and
// resources exist. It starts no goroutine and has no clock. It is safe for
// concurrent use.
type Gate struct {
	durable Guard
	counter Counter
	after   func() <-chan time.Time

	mu   sync.Mutex // guards the rest, never held while a write or a durable claim runs
	keys map[Key]*gateKey
}

// gateKey is what a gate knows of one key; Gate.mu guards it.
type gateKey struct {
	mark    Mark                    // the highest stamp let in so far; nothing below it starts any more
	claimed Mark                    // the highest one that the durable guard is known to have
	asking  Token                   // the token that a Do is claiming at the durable guard, or 0
	current map[*gateWrite]struct{} // writes in flight with the mark's token
	older   map[*gateWrite]struct{} // writes in flight below it, already cancelled
	changed chan struct{}           // closed when a waiter should look again; nil without waiters
}

type gateWrite struct {
	stamp  Stamp
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// GateOption changes how a Gate behaves.
type GateOption func(*Gate)

// Overtake bounds how long a newer stamp waits for older writes that do not
// return although their contexts have ended: until the channel that after
// returns delivers, as in
//
//	fence.Overtake(func() <-chan time.Time { return time.After(5 * time.Second) })
//
// The newer stamp then goes ahead. Still no older write starts, but those that
// are stuck may take effect beside the newer ones or after them, unless what
// they write to refuses them: a durable guard in the write's own transaction
// does, and then overtaking is safe. Without this option a newer stamp waits
// as long as its own context lives, which keeps the promise and lets one stuck
// write block its key.
func Overtake(after func() <-chan time.Time) GateOption {
	return func(g *Gate) { g.after = after }
}

// NewGate returns a gate that has seen nothing. durable may be nil: the marks
// are then in memory only. It must be safe to claim the same stamp there again
// and again. The counter may be nil; it hears of each decision of the gate,
// also of those that the durable guard has made for it.
func NewGate(durable Guard, c Counter, opts ...GateOption) *Gate {
	g := &Gate{durable: durable, counter: c, keys: make(map[Key]*gateKey)}
	for _, o := range opts {
		o(g)
	}
	return g
}

// Do runs fn if the stamp may write, and returns what fn returns. fn's context
// carries the stamp ([FromContext]) and ends, with the *StaleError of a later
// write as its cause, when a newer stamp of the key arrives: fn should return
// soon, because the newer owner waits for it.
//
// A stamp that is refused gets a *StaleError, an impossible one ErrInvalid.
// Any other error that is not fn's means that fn did not run: ctx was over
// before the older writes had returned, or the durable guard failed, which
// leaves it unknown whether the stamp is claimed there. Older stamps are
// refused from then on all the same.
//
// fn must not call the gate with a newer stamp of the same key.
func (g *Gate) Do(ctx context.Context, s Stamp, fn func(ctx context.Context) error) error {
	if err := s.Validate(); err != nil {
		return err
	}
	k, w, err := g.enter(ctx, s)
	Count(g.counter, 1, err)
	if err != nil {
		return err
	}
	defer g.leave(k, w)
	return fn(w.ctx)
}

// Claim implements Guard. It waits for the older writes in flight of all its
// stamps, then claims at the durable guard those that are left, in one call.
func (g *Gate) Claim(ctx context.Context, stamps []Stamp) error {
	if err := Validate(stamps); err != nil {
		return err
	}
	refused, err := g.claim(ctx, Sorted(stamps))
	if err == nil && len(refused) > 0 {
		err = &ClaimError{Refused: refused}
	}
	Count(g.counter, len(stamps), err)
	return err
}

// Seen returns the highest token that the gate has let in under a key since it
// was made, and whose it is. It does not ask the durable guard.
func (g *Gate) Seen(k Key) Mark {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.keys[k]; e != nil {
		return e.mark
	}
	return Mark{}
}

func (g *Gate) enter(ctx context.Context, s Stamp) (*gateKey, *gateWrite, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("write to %s not started: %w", s, err)
	}
	k := g.key(s.Key())
	var p patience
	for {
		// Each turn looks again: whatever was waited for, a newer stamp may
		// have come meanwhile.
		if err := g.admit(k, s); err != nil {
			return nil, nil, err
		}
		var err error
		switch {
		case len(k.older) > 0:
			err = g.awaitOlder(ctx, k, s, &p)
		case g.durable == nil || k.claimed == markOf(s):
			w := &gateWrite{stamp: s}
			w.ctx, w.cancel = context.WithCancelCause(NewContext(ctx, s, TTLFromContext(ctx)))
			if k.current == nil {
				k.current = make(map[*gateWrite]struct{})
			}
			k.current[w] = struct{}{}
			return k, w, nil
		case k.asking == s.Token: // one claim for all that wait for it
			err = g.await(ctx, k, nil)
		default:
			err = g.ask(ctx, k, s)
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

func (g *Gate) leave(k *gateKey, w *gateWrite) {
	w.cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(k.current, w)
	delete(k.older, w)
	k.wake()
}

func (g *Gate) claim(ctx context.Context, sorted []Stamp) (refused []*StaleError, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	admit := func(stamps []Stamp) (left []Stamp) {
		for _, s := range stamps {
			var stale *StaleError
			if errors.As(g.admit(g.key(s.Key()), s), &stale) {
				refused = append(refused, stale)
				continue
			}
			left = append(left, s)
		}
		return left
	}
	// First all marks, so that no older write starts while others are awaited.
	left := admit(sorted)
	var p patience
	for _, s := range left {
		if err := g.awaitOlder(ctx, g.key(s.Key()), s, &p); err != nil {
			return nil, err
		}
	}
	left = admit(left) // some may have been overtaken meanwhile
	if g.durable == nil || len(left) == 0 {
		return refused, nil
	}
	err = g.askDurable(ctx, left)
	var ce *ClaimError
	if err != nil && !errors.As(err, &ce) {
		return nil, fmt.Errorf("claim %d stamps at the durable guard: outcome unknown: %w", len(left), err)
	}
	bounced := make(map[Stamp]bool)
	if ce != nil {
		refused = append(refused, ce.Refused...)
		for _, r := range ce.Refused {
			bounced[r.Stamp] = true
			g.learn(g.key(r.Key()), Mark{Token: r.Current, Owner: r.CurrentOwner})
		}
	}
	for _, s := range left {
		if !bounced[s] {
			g.learn(g.key(s.Key()), markOf(s))
		}
	}
	return refused, nil
}

func (g *Gate) key(key Key) *gateKey {
	k := g.keys[key]
	if k == nil {
		k = &gateKey{}
		g.keys[key] = k
	}
	return k
}

// admit refuses the stamp or makes it the mark.
func (g *Gate) admit(k *gateKey, s Stamp) error {
	err := Check(k.mark, s)
	if err != nil && s.Token == k.mark.Token && g.durable != nil && k.claimed.Token < s.Token {
		return nil // two owners of one token: the durable guard has not said yet whose it is
	}
	if err == nil {
		k.raise(markOf(s))
	}
	return err
}

// learn records what the durable guard is known to have.
func (g *Gate) learn(k *gateKey, m Mark) {
	if m.Token > k.claimed.Token {
		k.claimed = m
	}
	if m.Token >= k.mark.Token {
		k.raise(m)
	}
	k.wake()
}

// ask claims the stamp at the durable guard for a Do.
func (g *Gate) ask(ctx context.Context, k *gateKey, s Stamp) error {
	k.asking = s.Token
	defer func() {
		if k.asking == s.Token {
			k.asking = 0
		}
		k.wake()
	}()
	err := g.askDurable(ctx, []Stamp{s})
	var stale *StaleError
	switch {
	case err == nil:
		g.learn(k, markOf(s))
	case errors.As(err, &stale):
		g.learn(k, Mark{Token: stale.Current, Owner: stale.CurrentOwner})
		return stale
	default:
		return fmt.Errorf("claim %s at the durable guard: outcome unknown: %w", s, err)
	}
	return nil
}

// askDurable gives up the gate's lock for the call, also if it panics.
func (g *Gate) askDurable(ctx context.Context, stamps []Stamp) error {
	g.mu.Unlock()
	defer g.mu.Lock()
	return g.durable.Claim(ctx, stamps)
}

// patience is how long one call still waits for older writes.
type patience struct {
	due  <-chan time.Time // nil: not started, or no bound
	over bool
}

// awaitOlder waits until no older write of the key is in flight, or gives them
// up if that is allowed and it is time.
func (g *Gate) awaitOlder(ctx context.Context, k *gateKey, s Stamp, p *patience) error {
	for len(k.older) > 0 && k.mark.Token == s.Token {
		if p.over {
			clear(k.older)
			k.wake()
			return nil
		}
		if p.due == nil && g.after != nil {
			p.due = g.after()
		}
		n := len(k.older)
		if err := g.await(ctx, k, p); err != nil {
			return fmt.Errorf("write to %s waited for %d older writes in flight: %w", s, n, err)
		}
	}
	return nil
}

// await gives up the gate's lock until the key has changed, or ctx or the
// patience is over. p may be nil.
func (g *Gate) await(ctx context.Context, k *gateKey, p *patience) error {
	if k.changed == nil {
		k.changed = make(chan struct{})
	}
	var (
		changed = k.changed
		due     <-chan time.Time
	)
	if p != nil {
		due = p.due
	}
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-changed:
	case <-due:
		p.over = true
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// raise sets the mark. If its token is higher, the writes in flight are now
// older ones and are told so.
func (k *gateKey) raise(m Mark) {
	higher := m.Token > k.mark.Token
	k.mark = m
	if !higher {
		return
	}
	for w := range k.current {
		w.cancel(Check(m, w.stamp))
		if k.older == nil {
			k.older = make(map[*gateWrite]struct{})
		}
		k.older[w] = struct{}{}
	}
	clear(k.current)
	k.wake()
}

func (k *gateKey) wake() {
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

func markOf(s Stamp) Mark { return Mark{Token: s.Token, Owner: s.Owner} }
