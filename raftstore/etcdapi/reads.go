package etcdapi

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// maxQuestions is how many questions for an index may be on their way to the
// leader at a time. While they are, readers gather for the next.
const maxQuestions = 2

// readers share a question to the leader: how far must the log be applied here
// for a read that begins now? An answer is good for whoever asked before it was
// sent for.
type readers struct {
	a *API

	mu      sync.Mutex
	next    *question // gathers readers; nil: nobody waits
	running int
}

type question struct {
	answered chan struct{} // closed when the rest is set
	index    uint64
	err      error
}

// join returns a question that has not been sent yet, or just now.
func (r *readers) join() *question {
	r.mu.Lock()
	q := r.next
	if q == nil {
		q = &question{answered: make(chan struct{})}
		r.next = q
	}
	send := r.running < maxQuestions
	if send {
		r.next = nil
		r.running++
	}
	r.mu.Unlock()
	if send {
		r.send(q)
	}
	return q
}

func (r *readers) send(q *question) {
	s := r.a.relay.stream()
	if s == nil {
		r.finish(q, 0, errNotDone)
		return
	}
	// All readers of this question have begun: what this server attests from here
	// on counts for them.
	var ask relaypb.ReadIndexRequest
	ask.Server, ask.Term = r.a.cfg.Store.Attest()
	body, err := proto.Marshal(&ask)
	if err != nil {
		r.finish(q, 0, err)
		return
	}
	s.start(&handed{
		method:  methodReadIndex,
		body:    body,
		timeout: r.a.cfg.callTimeout().Milliseconds(),
		finish: func(answer answer) {
			var index wrapperspb.UInt64Value
			if answer.err == nil {
				answer.err = proto.Unmarshal(answer.body, &index)
			}
			r.finish(q, index.Value, answer.err)
		},
	})
}

// finish answers all who joined q and sends the next question.
func (r *readers) finish(q *question, index uint64, err error) {
	q.index, q.err = index, err
	close(q.answered)
	r.mu.Lock()
	next := r.next
	r.next = nil
	if next == nil {
		r.running--
	}
	r.mu.Unlock()
	if next != nil {
		r.send(next)
	}
}

// readIndex returns an index; once it is applied here, this server's state has
// all that any server had acknowledged before the call.
func (a *API) readIndex(ctx context.Context) (uint64, error) {
	for {
		changed := a.relay.changes()
		index, err := a.tryReadIndex(ctx)
		if err == nil || !errors.Is(err, errNotDone) && !errors.Is(err, errRelayBroke) {
			return index, err
		}
		if err := a.awaitLeader(ctx, changed); err != nil {
			return 0, err
		}
	}
}

func (a *API) tryReadIndex(ctx context.Context) (uint64, error) {
	if a.cfg.Store.IsLeader() {
		index, err := a.cfg.Store.ReadIndex(ctx)
		return index, notDone(err)
	}
	q := a.readers.join()
	select {
	case <-q.answered:
		return q.index, q.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-a.stopping.Done():
		return 0, errStopped
	}
}

// read is raftstore's View of a state that has all that any server had
// acknowledged before the call.
func (a *API) read(ctx context.Context, fn func(*state.State)) error {
	index, err := a.readIndex(ctx)
	if err != nil {
		return err
	}
	if err := a.cfg.Store.WaitApplied(ctx, index); err != nil {
		return err
	}
	a.cfg.Store.View(fn)
	return nil
}

// Fresh returns when this server's state holds all that any server had acknowledged
// before the call, or with the error that says why that is not known. It asks
// nobody who calls.
func (a *API) Fresh(ctx context.Context) error { return a.read(ctx, func(*state.State) {}) }
