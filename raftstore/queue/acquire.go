package queue

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Backend carries the changes of queues out, wherever the leader is.
type Backend interface {
	// Enqueue carries the command out, which may be repeated, and returns its
	// ticket and the revision of keys after it.
	Enqueue(ctx context.Context, cmd *state.Enqueue) (*state.Ticket, int64, error)
	// Leave deletes a key, if it still has that create revision.
	Leave(ctx context.Context, key []byte, created int64) error
	// Confirm returns once this server's state has all that any server had
	// acknowledged when it was called.
	Confirm(ctx context.Context) error
	// Keeps tells of an error of Confirm, or of the cause with which a call's
	// context has ended, that it is the server's trouble and not the caller's
	// wish: the place stays for the caller to find again.
	Keeps(err error) bool
	// Retry tells of an error of Confirm that it may be tried again here.
	Retry(err error) bool
}

// Request for a place.
type Request struct {
	Name    []byte
	Session state.SessionID
	Value   []byte
	// Update gives a place that is there already the value.
	Update bool
	// Slots is how many are among the first: 1 for a lock, which 0 means, too.
	Slots int
	// NoWait answers at once. A place that is not among the first is given up
	// again if this call made it.
	NoWait bool
}

// Place in a queue.
type Place struct {
	Key      []byte
	Session  state.SessionID
	Created  int64  // the create revision of the key
	Token    uint64 // drawn with the key; 0 if etcd's library made it
	Revision int64  // of the keys, when the place was among the first
	Acquired bool   // false with NoWait alone
	Ahead    int    // how many were before it, when not acquired
}

const (
	// settleTime is how long an Enqueue whose caller has gone is waited for, so
	// that what it made can be taken back.
	settleTime = 5 * time.Second
	// retryEvery spaces the tries to confirm while there is no leader.
	retryEvery = 50 * time.Millisecond
)

// Acquire joins a queue, or finds the place of the same session again, and waits
// until the place is among the first. mvcc.ErrLeaseNotFound says that the session
// has ended, ErrPlaceGone that the key was deleted, ErrStopped that this server
// stops. When ctx ends, the place that this call has made is given up, and the
// error is the cause.
func (q *Queues) Acquire(ctx context.Context, b Backend, r Request) (Place, error) {
	r.Slots = max(r.Slots, 1)
	for {
		p, again, err := q.acquire(ctx, b, &r)
		if !again || ctx.Err() != nil {
			return p, err
		}
	}
}

// acquire is one try. again says that the place it found was another call's, which
// has given it up meanwhile.
func (q *Queues) acquire(ctx context.Context, b Backend, r *Request) (p Place, again bool, err error) {
	if ctx.Err() != nil {
		return Place{}, false, context.Cause(ctx)
	}
	ticket, rev, err := enqueue(ctx, b, r)
	if err != nil {
		return Place{}, false, err
	}
	kv := ticket.KV
	if !IsPlace(kv) {
		return Place{}, false, &NotPlaceError{Key: kv.Key, Lease: kv.Lease}
	}
	w := &waiter{
		key: kv.Key, created: kv.CreateRevision, since: rev, slots: r.Slots, noWait: r.NoWait,
		duty: ticket.Created, late: -1, done: make(chan outcome, 1),
	}
	q.enter(r.Name, w)
	out, err := q.wait(ctx, b, w)
	p = Place{Key: kv.Key, Session: r.Session, Created: kv.CreateRevision, Token: kv.Token, Acquired: true}
	switch {
	case err != nil && (errors.Is(err, ErrStopped) || b.Keeps(err)):
		q.exit(w, endKept)
		return Place{}, false, err
	case err != nil:
		return Place{}, false, errors.Join(err, q.giveUp(ctx, b, w))
	case out.lost:
		q.exit(w, endLost)
		if !q.lives(r.Session) {
			return Place{}, false, mvcc.ErrLeaseNotFound
		}
		return Place{}, !ticket.Created, ErrPlaceGone
	case out.ahead > 0:
		p.Acquired, p.Ahead = false, out.ahead
		return p, false, q.giveUp(ctx, b, w)
	}
	q.exit(w, endIn)
	p.Revision = q.revision()
	return p, false, nil
}

// enqueue waits for the outcome also when the caller goes away meanwhile: what is
// made must be known, to be taken back.
func enqueue(ctx context.Context, b Backend, r *Request) (*state.Ticket, int64, error) {
	settled, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		late := time.AfterFunc(settleTime, cancel)
		context.AfterFunc(settled, func() { late.Stop() })
	})()
	return b.Enqueue(settled, &state.Enqueue{Name: r.Name, Session: r.Session, Value: r.Value, Update: r.Update})
}

// wait returns what has become of the place. Who has waited is let in by events of
// this server's state, which may be old: so the key must be there still when the
// state has caught up with the cluster.
func (q *Queues) wait(ctx context.Context, b Backend, w *waiter) (out outcome, err error) {
	select {
	case out = <-w.done:
		q.delivered.Add(1)
	case <-ctx.Done():
		return out, context.Cause(ctx)
	}
	if out.stopped {
		return out, ErrStopped
	}
	if out != (outcome{}) || !w.waited {
		return out, nil
	}
	if err := confirm(ctx, b); err != nil {
		return out, err
	}
	out.lost = !q.stands(w)
	return out, nil
}

// confirm goes on through elections for as long as the caller waits.
func confirm(ctx context.Context, b Backend) error {
	for {
		err := b.Confirm(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !b.Retry(err) {
			return err
		}
		timer := time.NewTimer(retryEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// giveUp ends a wait and deletes the key if that is this call's duty.
func (q *Queues) giveUp(ctx context.Context, b Backend, w *waiter) error {
	if !q.exit(w, endGaveUp) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	return b.Leave(ctx, w.key, w.created)
}

// stands reports whether the key of a place is there.
func (q *Queues) stands(w *waiter) (ok bool) {
	q.store.View(func(s *state.State) {
		kv := s.Keys().Get(w.key)
		ok = kv != nil && kv.CreateRevision == w.created && IsPlace(kv)
	})
	return ok
}

func (q *Queues) lives(id state.SessionID) (ok bool) {
	q.store.View(func(s *state.State) { _, ok = s.Session(id) })
	return ok
}

func (q *Queues) revision() (rev int64) {
	q.store.View(func(s *state.State) { rev = s.Keys().Revision() })
	return rev
}

// LeaveTxn deletes a key if it still has that create revision.
func LeaveTxn(key []byte, created int64) *state.Transact {
	return &state.Transact{Txn: mvcc.Txn{
		Compare: []mvcc.Compare{{Key: key, Target: mvcc.CompareCreate, Result: mvcc.CompareEqual, Number: created}},
		Success: []mvcc.Op{{Delete: &mvcc.DeleteOp{Key: key}}},
	}}
}
