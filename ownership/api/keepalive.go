package api

import (
	"context"
	"errors"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// keepAlive takes one keep-alive from the stream and hands it to the store,
// which gathers those of many sessions into one log entry. Numbers in flight
// wait in a ring: an acknowledgement says the oldest, which is never later than
// what was renewed.
func (st *stream) keepAlive(r *pb.KeepAliveRequest) error {
	if r.GetSessionId() != uint64(st.id) {
		return invalid("session_id", formatID(r.GetSessionId()), "want the session of this stream, "+formatID(uint64(st.id)))
	}
	st.mu.Lock()
	st.noteLocked(r)
	if st.count == len(st.seqs) {
		// More than is sensible are in flight. This one is carried by those
		// before it and never acknowledged.
		st.mu.Unlock()
		return nil
	}
	st.seqs[(st.first+st.count)%len(st.seqs)] = r.GetSeq()
	st.count++
	st.mu.Unlock()
	st.compare(r)
	st.hub.store.KeepAliveAsync(st.id, st.renewed)
	return nil
}

// onRenewed is the store's callback for each keep-alive of this stream. It must
// not block.
func (st *stream) onRenewed(k raftstore.KeepAlive, err error) {
	st.mu.Lock()
	seq := st.seqs[st.first]
	st.first = (st.first + 1) % len(st.seqs)
	st.count--
	switch {
	case err == nil:
		st.ack.SessionId, st.ack.Seq = uint64(st.id), seq
		st.ack.TtlMs, st.ack.Term, st.ack.Index = k.TTL.Milliseconds(), k.Term, k.Index
		st.ackDue = true
	default:
		st.refusedLocked(err)
	}
	t, counts := st.account, st.counts
	st.mu.Unlock()
	st.hub.tell(t, &counts, k, err)
	st.signal()
}

// refusedLocked tells a definite refusal from an unknown outcome. Only the
// first ends the session; the other ends the stream, and the worker goes on
// trying until its own deadline.
func (st *stream) refusedLocked(err error) {
	if reason := goneReason(err); reason != "" {
		st.closeLocked(closedDetail(reason, st.worker))
		return
	}
	if st.ended == nil {
		st.ended = err // the interceptor has the table
	}
}

// goneReason is the word for a session that can never be renewed again, or "".
func goneReason(err error) string {
	switch state.ReasonOf(err) {
	case state.ReasonNotFound:
		return pb.ReasonExpired
	case state.ReasonSuperseded:
		return pb.ReasonSuperseded
	case state.ReasonEvicted:
		return pb.ReasonEvicted
	}
	return ""
}

// KeepAlive renews a session by a single call.
func (a *sessions) KeepAlive(ctx context.Context, r *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	if err := checkSessionID(r.GetSessionId()); err != nil {
		return nil, err
	}
	if err := a.mayUse(ctx, r.GetSessionId()); err != nil {
		return nil, err
	}
	id := state.SessionID(r.GetSessionId())
	a.hub.relay(id)
	if st := a.hub.attached(id); st != nil {
		st.note(r)
	}
	k, err := a.cfg.Store.KeepAlive(ctx, id)
	if err == nil {
		counts := reportOf(r)
		a.hub.tell(a.hub.accounts.of(id, counts.process), &counts, k, nil)
	}
	if reason := goneReason(err); reason != "" {
		var refusal *state.Refusal
		errors.As(err, &refusal)
		d := closedDetail(reason, refusal.Owner)
		code, _, _ := rowOf(reason)
		d.Value = formatID(r.GetSessionId())
		return nil, pb.StatusError(code, d)
	}
	if err != nil {
		return nil, err
	}
	return &pb.KeepAliveResponse{
		SessionId: r.GetSessionId(), Seq: r.GetSeq(),
		TtlMs: k.TTL.Milliseconds(), Term: k.Term, Index: k.Index,
	}, nil
}
