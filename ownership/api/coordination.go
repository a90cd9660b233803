package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	// maxQueueName is how long the name of a lock may be, in bytes.
	maxQueueName = 4096
	// maxSlots is how many a semaphore lets in at most.
	maxSlots = 1_000_000
)

// coordination is CoordinationService.
type coordination struct {
	pb.UnimplementedCoordinationServiceServer
	*API
}

// Acquire joins a queue and waits at the leader. It needs no deadline: only
// no_wait has one by itself.
func (c *coordination) Acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	if err := checkAcquire(r); err != nil {
		return nil, err
	}
	if r.GetNoWait() {
		var cancel context.CancelFunc
		ctx, cancel = c.bounded(ctx)
		defer cancel()
	}
	ctx, leave, err := c.inOffice(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := c.mayTouch(ctx, "name", r.GetName(), r.GetName()+"/", r.GetSessionId()); err != nil {
		return nil, err
	}
	p, err := c.queues.Acquire(ctx, queues{c.API}, queue.Request{
		Name: []byte(r.GetName()), Session: state.SessionID(r.GetSessionId()), Value: r.GetValue(),
		Slots: int(r.GetSlots()), NoWait: r.GetNoWait(),
	})
	if err != nil {
		return nil, c.acquireError(r, err)
	}
	resp := &pb.AcquireResponse{Acquired: p.Acquired, Ahead: uint32(p.Ahead)}
	if p.Acquired {
		resp.Key, resp.Token, resp.Revision = p.Key, p.Token, p.Created
	}
	return resp, nil
}

func checkAcquire(r *pb.AcquireRequest) error {
	if n := len(r.GetName()); n == 0 || n > maxQueueName {
		return invalid("name", r.GetName(), fmt.Sprintf("want 1 to %d bytes, not %d", maxQueueName, n))
	}
	if r.GetSlots() > maxSlots {
		return invalid("slots", strconv.FormatUint(uint64(r.GetSlots()), 10), fmt.Sprintf("want at most %d; 0 means 1", maxSlots))
	}
	return checkSessionID(r.GetSessionId())
}

// acquireError says what has become of a wait. Whatever a change of leader did
// may be asked again: the session finds its place.
func (c *coordination) acquireError(r *pb.AcquireRequest, err error) error {
	var ordinary *queue.NotPlaceError
	switch {
	case errors.Is(err, mvcc.ErrLeaseNotFound):
		return sessionEnded(r.GetSessionId())
	case errors.Is(err, queue.ErrStopped), errors.Is(err, raftstore.ErrLostLeadership) && c.isStopping():
		return errShuttingDown()
	case errors.Is(err, raftstore.ErrLostLeadership):
		return noLeader(fmt.Sprintf("server %s does not lead any more: ask again with the same session, which finds its place", c.cfg.ServerID))
	case errors.Is(err, raftstore.ErrUnknownOutcome):
		return noLeader("the leader changed meanwhile: ask again with the same session, which finds its place if it has one")
	case errors.Is(err, queue.ErrPlaceGone):
		return fail(&pb.ErrorDetail{
			Reason: pb.ReasonConflict, Field: "name", Value: shorten(r.GetName()),
			Message: fmt.Sprintf("name %q: the key of session %d was deleted while it waited", shorten(r.GetName()), r.GetSessionId()),
		})
	case errors.As(err, &ordinary):
		return fail(&pb.ErrorDetail{
			Reason: pb.ReasonConflict, Field: "name", Value: shorten(r.GetName()), Message: ordinary.Error(),
		})
	}
	return err
}

// mayTouch refuses a name whose keys, which all begin with begin, are not the
// caller's, and a session that is not.
func (c *coordination) mayTouch(ctx context.Context, field, value, begin string, session uint64) error {
	if id := access.FromContext(ctx); !id.Scope.Key([]byte(begin)) {
		return auth.Denied(id, "%s %q: its keys are under none of your key prefixes", field, shorten(value))
	}
	if session == 0 {
		return nil
	}
	return c.mayUse(ctx, session)
}

func sessionEnded(id uint64) error {
	return fail(&pb.ErrorDetail{
		Reason: pb.ReasonExpired, Field: "session_id", Value: strconv.FormatUint(id, 10),
		Message: fmt.Sprintf("session_id %d: no such session, or it has ended", id),
	})
}

// CreateSequential makes a key under the next number of a prefix.
func (c *coordination) CreateSequential(ctx context.Context, r *pb.CreateSequentialRequest) (*pb.CreateSequentialResponse, error) {
	if n := len(r.GetPrefix()); n == 0 || n > state.MaxPrefixLen {
		return nil, invalid("prefix", r.GetPrefix(), fmt.Sprintf("want 1 to %d bytes, not %d", state.MaxPrefixLen, n))
	}
	if r.GetSessionId() != 0 {
		if err := checkSessionID(r.GetSessionId()); err != nil {
			return nil, err
		}
	}
	if err := c.mayTouch(ctx, "prefix", r.GetPrefix(), r.GetPrefix(), r.GetSessionId()); err != nil {
		return nil, err
	}
	if err := c.room(ctx, len(r.GetPrefix())+len(r.GetValue())); err != nil {
		return nil, err
	}
	results, err := c.cfg.Store.Propose(ctx, &state.Sequence{
		Prefix: []byte(r.GetPrefix()), Value: r.GetValue(), Session: state.SessionID(r.GetSessionId()), After: r.GetAfter(),
	})
	if err != nil {
		return nil, err
	}
	if err := results[0].Err; errors.Is(err, mvcc.ErrLeaseNotFound) {
		return nil, sessionEnded(r.GetSessionId())
	} else if err != nil {
		return nil, err
	}
	t := results[0].Ticket
	return &pb.CreateSequentialResponse{Key: t.KV.Key, Number: t.Number, Revision: t.KV.CreateRevision}, nil
}

// room refuses a key for which there is none.
func (a *API) room(ctx context.Context, bytes int) error {
	if a.cfg.Room == nil {
		return nil
	}
	return a.cfg.Room(ctx, int64(bytes))
}

// bounded gives a call that came without a deadline the usual one.
func (a *API) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.cfg.CallTimeout)
}

// queues carries out what package queue needs, on the leader.
type queues struct{ a *API }

var _ queue.Backend = queues{}

// Enqueue joins a queue.
func (q queues) Enqueue(ctx context.Context, cmd *state.Enqueue) (*state.Ticket, int64, error) {
	ctx, cancel := q.a.bounded(ctx)
	defer cancel()
	if err := q.a.room(ctx, len(cmd.Name)+len(cmd.Value)); err != nil {
		return nil, 0, err
	}
	results, err := q.a.cfg.Store.Propose(ctx, cmd)
	if err != nil {
		return nil, 0, err
	}
	return results[0].Ticket, results[0].KVRevision, results[0].Err
}

// Leave deletes the key of a place.
func (q queues) Leave(ctx context.Context, key []byte, created int64) error {
	return q.a.propose(ctx, queue.LeaveTxn(key, created))
}

// Confirm proves that this server still leads.
func (q queues) Confirm(ctx context.Context) error {
	return q.a.cfg.Store.Read(ctx, func(*state.State) {})
}

// Keeps tells a leader that was deposed, or a server that stops, from a caller
// that has gone.
func (q queues) Keeps(err error) bool {
	var other *raftstore.NotLeaderError
	return q.a.isStopping() || errors.Is(err, raftstore.ErrLostLeadership) || errors.As(err, &other)
}

// Retry never: the caller comes again, to whoever leads then.
func (q queues) Retry(error) bool { return false }

// office is this server's time as leader, for calls that last.
type office struct {
	mu  sync.Mutex
	ctx context.Context // nil: it does not lead
}

func (o *office) enter(ctx context.Context) (leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ctx = ctx
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ctx = nil
	}
}

// inOffice is ctx for as long as this server leads. It ends with
// raftstore.ErrLostLeadership in its cause.
func (a *API) inOffice(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if !a.hub.awaitLead(ctx, awaitLeadFor) {
		return nil, nil, a.notLeader()
	}
	a.office.mu.Lock()
	led := a.office.ctx
	a.office.mu.Unlock()
	if led == nil {
		return nil, nil, a.notLeader()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(led, func() { cancel(raftstore.ErrLostLeadership) })
	return ctx, func() {
		stop()
		cancel(nil)
	}, nil
}
