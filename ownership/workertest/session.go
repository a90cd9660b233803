package workertest

import (
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
)

// The rules for a worker id that is in use, as the product has them.
const (
	pongTimeout = 500 * time.Millisecond // the time to prove that one is alive
	leadGrace   = time.Second
	retryAfter  = time.Second
)

// session is a worker's proven liveness. Server.mu guards it.
type session struct {
	id, incarnation uint64
	worker, addr    string
	spaces          []*space
	deadline        time.Time
	expiry          *time.Timer
	barred          string // superseded or evicted: no renewals, no grants
	leaving         bool
	over            string // expired or left
	held            map[fence.Token]*lease
	stream          *stream   // nil: out of touch
	heard           time.Time // the last keep-alive by a single call
	pong            chan struct{}
}

func (x *session) joined(sp *space) bool {
	for _, have := range x.spaces {
		if have == sp {
			return true
		}
	}
	return false
}

// refusal is a status error with the detail that workers decide by.
func refusal(code codes.Code, d *leaseholdv1.ErrorDetail) error {
	return leaseholdv1.StatusError(code, d)
}

func noKeyspace(name string) *leaseholdv1.ErrorDetail {
	return &leaseholdv1.ErrorDetail{
		Reason: leaseholdv1.ReasonNotFound, Field: "keyspaces", Value: name,
		Message: fmt.Sprintf("keyspace %q does not exist", name),
	}
}

func closedMessage(reason, worker string) *leaseholdv1.AttachResponse {
	return &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Closed{Closed: &leaseholdv1.SessionClosed{
		Error: &leaseholdv1.ErrorDetail{
			Reason: reason, Field: "session_id", Owner: worker,
			Message: "the session of worker " + worker + " is over (" + reason + ")",
		},
	}}}
}

// open opens a session, or finds the one that an earlier try has opened. While
// the present session of the worker id is in touch, it stays; otherwise the
// newest wins. st becomes the session's stream.
func (s *Server) open(o *leaseholdv1.OpenSession, st *stream) error {
	var unanswered uint64 // incarnation of the session that did not prove to be alive
	for {
		s.mu.Lock()
		cur, err := s.tryOpenLocked(o, st, unanswered)
		var pong chan struct{}
		if cur != nil {
			if cur.pong == nil {
				cur.pong = make(chan struct{})
			}
			pong = cur.pong
			cur.stream.push(&leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Ping{Ping: &leaseholdv1.Ping{}}})
		}
		s.mu.Unlock()
		if cur == nil {
			return err
		}
		timer := time.NewTimer(pongTimeout)
		select {
		case <-pong:
			timer.Stop()
			return inUse(o.GetWorkerId(), cur.addr, retryAfter)
		case <-timer.C:
			unanswered = cur.incarnation
		case <-st.ctx.Done():
			timer.Stop()
			return st.ctx.Err()
		}
	}
}

// tryOpenLocked opens the session unless the one returned has to be asked
// first. The incarnation is the condition: a session that came in between is
// asked anew.
func (s *Server) tryOpenLocked(o *leaseholdv1.OpenSession, st *stream, unanswered uint64) (*session, error) {
	spaces := make([]*space, 0, len(o.GetKeyspaces()))
	for _, name := range o.GetKeyspaces() {
		sp := s.spaceLocked(name)
		if sp == nil {
			return nil, refusal(codes.NotFound, noKeyspace(name))
		}
		spaces = append(spaces, sp)
	}
	if x := s.sessions[o.GetSessionId()]; x != nil {
		if why := x.over + x.barred; why != "" {
			return nil, refusal(codes.FailedPrecondition, &leaseholdv1.ErrorDetail{Reason: why, Message: "session is " + why})
		}
		s.attachLocked(x, st, false)
		return nil, nil
	}
	if cur := s.workers[o.GetWorkerId()]; cur != nil && cur.over == "" && cur.barred == "" && cur.incarnation != unanswered {
		if cur.stream != nil {
			return cur, nil
		}
		if bound := s.ttl/4 + leadGrace; !cur.heard.IsZero() && time.Since(cur.heard) < bound {
			return nil, inUse(cur.worker, cur.addr, bound-time.Since(cur.heard))
		}
	}
	s.raiseLocked(fence.Token(o.GetHighestToken()), o.GetWorkerId())
	if cur := s.workers[o.GetWorkerId()]; cur != nil && cur.over == "" && cur.barred == "" {
		s.barLocked(cur, CauseSuperseded)
	}
	x := &session{
		id: o.GetSessionId(), incarnation: s.index + 1, worker: o.GetWorkerId(), addr: st.addr, spaces: spaces,
		deadline: time.Now().Add(s.ttl), held: map[fence.Token]*lease{},
	}
	x.expiry = time.AfterFunc(s.ttl, func() { s.expire(x) })
	s.sessions[x.id], s.workers[x.worker] = x, x
	s.recordLocked(Event{Kind: KindSessionOpen, Worker: x.worker})
	s.attachLocked(x, st, false)
	return nil, nil
}

func inUse(worker, addr string, retry time.Duration) error {
	return refusal(codes.AlreadyExists, &leaseholdv1.ErrorDetail{
		Reason: leaseholdv1.ReasonWorkerIDInUse, Field: "worker_id", Value: worker, Owner: addr, RetryAfterMs: retry.Milliseconds(),
		Message: fmt.Sprintf("worker_id %q: a worker of that id is alive at %s", worker, addr),
	})
}

// resume makes st the stream of a session that is open.
func (s *Server) resume(r *leaseholdv1.ResumeSession, st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sessions[r.GetSessionId()]
	switch {
	case x == nil:
		st.push(closedMessage(leaseholdv1.ReasonUnknown, r.GetWorkerId()))
		st.end(nil)
	case x.over != "":
		why := x.over
		if s.workers[x.worker] != x {
			why = leaseholdv1.ReasonSuperseded
		}
		st.push(closedMessage(why, x.worker))
		st.end(nil)
	default:
		s.raiseLocked(fence.Token(r.GetHighestToken()), x.worker)
		s.attachLocked(x, st, true)
	}
}

// attachLocked makes st the session's stream and says all that it holds.
func (s *Server) attachLocked(x *session, st *stream, resumed bool) {
	if x.stream != nil {
		x.stream.end(refusal(codes.Aborted, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonReplaced, Message: "session is attached anew"}))
	}
	x.stream, st.session = st, x
	s.changedLocked()
	if x.barred != "" {
		st.push(closedMessage(x.barred, x.worker))
		return
	}
	opened := &leaseholdv1.SessionOpened{
		SessionId: x.id, Incarnation: x.incarnation, ClusterId: clusterID, TtlMs: s.ttl.Milliseconds(),
		LeaderId: serverID, Resumed: resumed,
	}
	for _, sp := range x.spaces {
		opened.Keyspaces = append(opened.Keyspaces, s.joinedMessage(sp))
	}
	st.push(&leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Opened{Opened: opened}})
	list := &leaseholdv1.LeaseList{Term: 1, Index: s.index}
	for _, l := range x.held {
		g := l.message()
		if !l.drainBy.IsZero() {
			g.DrainMs = max(1, time.Until(l.drainBy).Milliseconds())
		}
		list.Granted = append(list.Granted, g)
	}
	st.push(&leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Leases{Leases: list}})
}

func (s *Server) detach(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := st.session; x != nil && x.stream == st {
		x.stream = nil
		s.changedLocked()
	}
}

// renewLocked renews a session as of now, when its keep-alive has arrived.
func (s *Server) renewLocked(r *leaseholdv1.KeepAliveRequest) (*leaseholdv1.KeepAliveResponse, string) {
	x := s.sessions[r.GetSessionId()]
	switch {
	case x == nil:
		return nil, leaseholdv1.ReasonExpired
	case x.over != "":
		return nil, x.over
	case x.barred != "":
		return nil, x.barred
	}
	x.deadline = time.Now().Add(s.ttl)
	x.expiry.Reset(s.ttl)
	return &leaseholdv1.KeepAliveResponse{SessionId: x.id, Seq: r.GetSeq(), TtlMs: s.ttl.Milliseconds(), Term: 1, Index: s.index}, ""
}

// expire is called when a session's time may be over.
func (s *Server) expire(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.over == "" && !time.Now().Before(x.deadline) {
		s.endSessionLocked(x, leaseholdv1.ReasonExpired)
	}
}

// endSessionLocked ends a session that has expired or left, and its leases.
func (s *Server) endSessionLocked(x *session, why string) {
	x.over = why
	x.expiry.Stop()
	kind := KindSessionClose
	if why == leaseholdv1.ReasonExpired {
		kind = KindSessionExpire
	}
	for _, l := range x.byToken() {
		s.freeLocked(l, Event{Kind: KindExpire, Cause: CauseExpired})
	}
	s.recordLocked(Event{Kind: kind, Worker: x.worker})
	if x.stream != nil {
		x.stream.push(closedMessage(why, x.worker))
		x.stream.end(nil)
	}
}

// barLocked supersedes or evicts: no more renewals and grants. Fenced leases
// are taken back at once; strict ones end by release or with the session.
func (s *Server) barLocked(x *session, why string) {
	x.barred = why
	s.recordLocked(Event{Kind: KindSessionBar, Worker: x.worker, Cause: why})
	for _, l := range x.byToken() {
		if l.space.fenced {
			s.freeLocked(l, Event{Kind: KindRevoke, Cause: why})
		}
	}
	if x.stream != nil {
		x.stream.push(closedMessage(why, x.worker))
	}
}

// leave begins the orderly end of a session: all is drained.
func (s *Server) leaveLocked(x *session, restart bool) {
	if x.over+x.barred != "" || x.leaving {
		return
	}
	x.leaving = true
	cause := "leave"
	if restart {
		cause = "restart"
	}
	s.recordLocked(Event{Kind: KindSessionLeave, Worker: x.worker, Cause: cause})
	for _, l := range x.byToken() {
		s.drainLocked(l, HandoffTimeout, cause)
	}
	s.closeIfEmptyLocked(x)
}

func (s *Server) closeIfEmptyLocked(x *session) {
	if x.leaving && len(x.held) == 0 && x.over+x.barred == "" {
		s.endSessionLocked(x, leaseholdv1.ReasonLeft)
	}
}
