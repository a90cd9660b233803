package api

import (
	"context"
	"errors"
	"io"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// write sends until the stream ends. read has the outcome of the reader: io.EOF
// when the worker has closed its side.
func (st *stream) write(ctx context.Context, send func(*pb.AttachResponse) error, read <-chan error) error {
	for {
		over, err := st.flush(send)
		if over || err != nil {
			return err
		}
		select {
		case <-st.wake:
		case err := <-read:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// outgoing is what one look at the stream finds to send.
type outgoing struct {
	ping    bool
	ack     *pb.AttachResponse
	full    bool
	changes []change
	ordered bool
	index   uint64
	replies []*pb.AttachResponse
	setup   bool
	closed  *pb.ErrorDetail
	gone    bool
	ended   error
}

func (st *stream) take() (o outgoing) {
	st.mu.Lock()
	defer st.mu.Unlock()
	o.ended, o.closed, o.gone = st.ended, st.closed, st.gone
	o.ping, st.ping = st.ping, false
	if st.ackDue {
		st.ackDue = false
		o.ack = &pb.AttachResponse{Response: &pb.AttachResponse_KeepAlive{KeepAlive: &pb.KeepAliveResponse{
			SessionId: st.ack.SessionId, Seq: st.ack.Seq, TtlMs: st.ack.TtlMs, Term: st.ack.Term, Index: st.ack.Index,
		}}}
	}
	o.replies, st.replies = st.replies, nil
	o.setup, st.setupDue = st.setupDue, false
	o.full = st.full
	if !st.full && len(st.queue) > 0 {
		o.changes, st.queue, st.spare = st.queue, st.spare[:0], nil
		o.ordered, st.ordered, o.index = st.ordered, false, st.index
	}
	return o
}

// flush sends what waits. Acknowledgements go first: deadlines hang on them.
// over means that there is nothing more to say.
func (st *stream) flush(send func(*pb.AttachResponse) error) (over bool, err error) {
	o := st.take()
	if o.ended != nil {
		return true, o.ended
	}
	if st.sentClosed {
		// A barred worker ends its contexts and gives its leases back here.
		return o.gone, sendAll(o.replies, send)
	}
	if o.ack != nil {
		if err := send(o.ack); err != nil {
			return true, err
		}
	}
	if o.ping {
		if err := send(&pb.AttachResponse{Response: &pb.AttachResponse_Ping{Ping: &pb.Ping{}}}); err != nil {
			return true, err
		}
	}
	if o.closed == nil {
		if err := st.sendLeases(&o, send); err != nil {
			return true, err
		}
	}
	if o.setup && st.gossips && o.closed == nil {
		if err := st.sendSetup(send); err != nil {
			return true, err
		}
	}
	if err := sendAll(o.replies, send); err != nil {
		return true, err
	}
	if o.closed == nil {
		return false, nil
	}
	st.sentClosed = true
	err = send(&pb.AttachResponse{Response: &pb.AttachResponse_Closed{Closed: &pb.SessionClosed{Error: o.closed}}})
	return o.gone || err != nil, err
}

func (st *stream) sendLeases(o *outgoing, send func(*pb.AttachResponse) error) error {
	if o.full {
		return st.sendList(send)
	}
	if len(o.changes) == 0 {
		return nil
	}
	m := merger{now: st.hub.clock.Now(), term: st.term, index: o.index, ordered: o.ordered}
	messages := m.merge(o.changes)
	st.mu.Lock()
	clear(o.changes) // let go of the names
	st.spare = o.changes[:0]
	st.mu.Unlock()
	return sendAll(messages, send)
}

func sendAll(messages []*pb.AttachResponse, send func(*pb.AttachResponse) error) error {
	for _, m := range messages {
		if err := send(m); err != nil {
			return err
		}
	}
	return nil
}

// sendList replaces the queue by all that the session holds, in one look under
// the store's lock, so that no change falls between the two. It also sees what
// happened to the session before this stream was attached.
func (st *stream) sendList(send func(*pb.AttachResponse) error) error {
	var list *pb.LeaseList
	var opened *pb.SessionOpened
	st.hub.store.View(func(s *state.State) {
		st.mu.Lock()
		defer st.mu.Unlock()
		sess, ok := s.Session(st.id)
		switch {
		case !ok:
			st.gone = true
			st.closeLocked(closedDetail(pb.ReasonExpired, st.worker))
			return
		case sess.State == state.SessionSuperseded:
			st.closeLocked(closedDetail(pb.ReasonSuperseded, st.worker))
			return
		case sess.State == state.SessionEvicted:
			st.closeLocked(closedDetail(pb.ReasonEvicted, st.worker))
			return
		case sess.State == state.SessionLeaving:
			st.leaving = true
			st.closeIfEmptyLocked(sess)
		}
		st.full, st.ordered = false, false
		st.queue = st.queue[:0]
		list = leaseList(s, st.id, st.term, st.hub.clock.Now())
		if !st.sentOpened {
			opened, st.gossips = st.openedMessage(s, sess), sess.Gossip
		}
	})
	if list == nil {
		st.signal() // to send why
		return nil
	}
	if opened != nil {
		st.sentOpened = true
		if err := send(&pb.AttachResponse{Response: &pb.AttachResponse_Opened{Opened: opened}}); err != nil {
			return err
		}
		// Before the list: who finds none there is told none.
		if st.gossips {
			if err := st.sendSetup(send); err != nil {
				return err
			}
		}
	}
	return send(&pb.AttachResponse{Response: &pb.AttachResponse_Leases{Leases: list}})
}

func (st *stream) openedMessage(s *state.State, sess *state.Session) *pb.SessionOpened {
	m := &pb.SessionOpened{
		SessionId: uint64(sess.ID), Incarnation: sess.Incarnation, ClusterId: s.ClusterID(),
		TtlMs: sess.TTL.Milliseconds(), LeaderId: st.hub.server, Resumed: st.resumed,
	}
	for _, id := range sess.Keyspaces {
		if ks, ok := s.Keyspace(id); ok {
			m.Keyspaces = append(m.Keyspaces, joined(ks, sess.TTL))
		}
	}
	return m
}

func joined(ks *state.Keyspace, ttl time.Duration) *pb.KeyspaceJoined {
	return &pb.KeyspaceJoined{
		KeyspaceId: uint32(ks.ID), Name: ks.Name, Partitions: ks.Partitions,
		TtlMs: ttl.Milliseconds(), Takeover: takeoverOf(ks.Settings.Takeover),
	}
}
