package auth

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// lookEvery is how often credentials of open calls are looked up again. Revoke says
// it at once; this is for a server that learns of it with a whole snapshot, and for
// a wall clock that was set.
const lookEvery = time.Minute

// calls are those that are open now, of everybody whose proof can be taken back or
// run out.
type calls struct {
	auth *Auth

	mu      sync.Mutex
	byProof map[string]map[*openCall]struct{}
	due     dueCalls
	timer   *time.Timer // runs while there is a call
}

// openCall is one call.
type openCall struct {
	id     access.Identity
	proof  string
	cancel context.CancelCauseFunc
	place  int // in due; -1: it never runs out
}

func (c *calls) init(a *Auth) {
	c.auth, c.byProof = a, map[string]map[*openCall]struct{}{}
}

// proofOf names the proof of an identity, "" for one that lasts.
func proofOf(id access.Identity) string {
	switch id.Source {
	case access.Bearer:
		return "credential/" + id.Credential
	case access.Certificate:
		return "certificate/" + id.Serial
	}
	return ""
}

// open returns a context that ends when the identity's proof does. done must be
// called when the call has ended.
func (c *calls) open(ctx context.Context, id access.Identity) (_ context.Context, done func()) {
	proof := proofOf(id)
	if proof == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	o := &openCall{id: id, proof: proof, cancel: cancel, place: -1}
	c.add(o)
	return ctx, func() {
		c.remove(o)
		cancel(nil)
	}
}

func (c *calls) add(o *openCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byProof[o.proof] == nil {
		c.byProof[o.proof] = map[*openCall]struct{}{}
	}
	c.byProof[o.proof][o] = struct{}{}
	if o.id.Source == access.Bearer && !o.id.Expires.IsZero() {
		heap.Push(&c.due, o)
	}
	switch {
	case c.timer == nil:
		c.timer = time.AfterFunc(c.waitLocked(), c.look)
	case len(c.byProof) == 1 && len(c.byProof[o.proof]) == 1, o.place == 0:
		c.timer.Reset(c.waitLocked())
	}
}

func (c *calls) remove(o *openCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byProof[o.proof], o)
	if len(c.byProof[o.proof]) == 0 {
		delete(c.byProof, o.proof)
	}
	if o.place >= 0 {
		heap.Remove(&c.due, o.place)
	}
	if len(c.byProof) == 0 {
		c.timer.Stop()
	}
}

// waitLocked is how long until something must be looked at.
func (c *calls) waitLocked() time.Duration {
	if len(c.due) == 0 {
		return lookEvery
	}
	return max(0, min(lookEvery, c.due[0].id.Expires.Sub(c.auth.cfg.Now())))
}

// end ends all calls of a proof.
func (c *calls) end(proof string, why *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byProof[proof]) == 0 {
		return
	}
	c.auth.cfg.Metrics.AuthFailed(why.word)
	for o := range c.byProof[proof] {
		o.cancel(why)
	}
}

// look ends what has run out or is not known any more.
func (c *calls) look() {
	now := c.auth.cfg.Now()
	c.mu.Lock()
	for len(c.due) > 0 && !now.Before(c.due[0].id.Expires) {
		o := heap.Pop(&c.due).(*openCall)
		o.cancel(errOld)
		c.auth.cfg.Metrics.AuthFailed(errOld.word)
	}
	ids := map[string]bool{}
	for _, open := range c.byProof {
		for o := range open {
			if o.id.Source == access.Bearer {
				ids[o.id.Credential] = true
			}
			break // the others have the same
		}
	}
	c.mu.Unlock()
	// Not under the lock: whoever looks up may hold one under which Revoked is called.
	for id := range ids {
		if _, ok := c.auth.cfg.Lookup(id); !ok {
			c.end(proofOf(access.Identity{Source: access.Bearer, Credential: id}), errGone)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byProof) > 0 {
		c.timer.Reset(c.waitLocked())
	}
}

// Revoked ends, at once, all that is open of a credential. It does not block.
func (a *Auth) Revoked(credentialID string) {
	a.calls.end(proofOf(access.Identity{Source: access.Bearer, Credential: credentialID}), errGone)
}

// RevokedCertificate ends, at once, all that is open of the certificate with that
// number. It does not block.
func (a *Auth) RevokedCertificate(serial string) {
	a.calls.end(proofOf(access.Identity{Source: access.Certificate, Serial: serial}), errCut)
}

// dueCalls is a heap of calls by when their credentials run out.
type dueCalls []*openCall

func (d dueCalls) Len() int           { return len(d) }
func (d dueCalls) Less(i, j int) bool { return d[i].id.Expires.Before(d[j].id.Expires) }

func (d dueCalls) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push is heap.Interface's.
func (d *dueCalls) Push(x any) {
	o := x.(*openCall)
	o.place = len(*d)
	*d = append(*d, o)
}

// Pop is heap.Interface's.
func (d *dueCalls) Pop() any {
	last := len(*d) - 1
	o := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	o.place = -1
	return o
}
