package workertest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
)

// stream is one attached worker. What is to be sent waits in out without
// bound, so that nothing waits for a worker while holding Server.mu.
type stream struct {
	ctx     context.Context
	addr    string
	session *session // set by attachLocked
	wake    chan struct{}

	mu    sync.Mutex // guards the rest; taken under Server.mu, never the other way round
	out   []*leaseholdv1.AttachResponse
	ended bool
	err   error
}

func (st *stream) push(m *leaseholdv1.AttachResponse) {
	st.mu.Lock()
	if !st.ended {
		st.out = append(st.out, m)
	}
	st.mu.Unlock()
	st.signal()
}

// end ends the stream when all that waits has been sent.
func (st *stream) end(err error) {
	st.mu.Lock()
	if !st.ended {
		st.ended, st.err = true, err
	}
	st.mu.Unlock()
	st.signal()
}

func (st *stream) signal() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// write sends until the stream is over.
func (st *stream) write(send func(*leaseholdv1.AttachResponse) error) error {
	for {
		st.mu.Lock()
		out, ended, err := st.out, st.ended, st.err
		st.out = nil
		st.mu.Unlock()
		for _, m := range out {
			if err := send(m); err != nil {
				return err
			}
		}
		if ended {
			return err
		}
		select {
		case <-st.wake:
		case <-st.ctx.Done():
			return context.Cause(st.ctx)
		}
	}
}

// sessionAPI is SessionService.
type sessionAPI struct {
	leaseholdv1.UnimplementedSessionServiceServer
	*Server
}

// Attach serves one worker's stream.
func (s sessionAPI) Attach(ss leaseholdv1.SessionService_AttachServer) error {
	st := &stream{ctx: ss.Context(), wake: make(chan struct{}, 1)}
	if p, ok := peer.FromContext(ss.Context()); ok {
		st.addr = p.Addr.String()
	}
	first, err := ss.Recv()
	if err != nil {
		return err
	}
	switch m := first.GetRequest().(type) {
	case *leaseholdv1.AttachRequest_Open:
		if err := s.open(m.Open, st); err != nil {
			return err
		}
	case *leaseholdv1.AttachRequest_Resume:
		s.resume(m.Resume, st)
	default:
		return refusal(codes.InvalidArgument, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonInvalid, Field: "request", Message: "want open or resume first"})
	}
	defer s.detach(st)
	s.readers.Go(func() {
		for {
			m, err := ss.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				st.end(err)
				return
			}
			s.take(st, m)
		}
	})
	return st.write(ss.Send)
}

// take does what a worker asks for.
func (s sessionAPI) take(st *stream, m *leaseholdv1.AttachRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := st.session
	if x == nil || x.over != "" {
		return
	}
	switch m := m.GetRequest().(type) {
	case *leaseholdv1.AttachRequest_KeepAlive:
		ack, gone := s.renewLocked(m.KeepAlive)
		if gone != "" {
			st.push(closedMessage(gone, x.worker))
			return
		}
		st.push(&leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_KeepAlive{KeepAlive: ack}})
	case *leaseholdv1.AttachRequest_Release:
		answer := s.releaseLocked(x, m.Release)
		st.push(answer)
	case *leaseholdv1.AttachRequest_Join:
		st.push(&leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Joined{Joined: s.joinLocked(x, m.Join)}})
	case *leaseholdv1.AttachRequest_Leave:
		s.leaveLocked(x, m.Leave.GetRestart())
	case *leaseholdv1.AttachRequest_Pong:
		if x.pong != nil {
			close(x.pong)
			x.pong = nil
		}
	case *leaseholdv1.AttachRequest_ReportToken:
		s.raiseLocked(fence.Token(m.ReportToken.GetToken()), x.worker)
	default:
		st.end(refusal(codes.InvalidArgument, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonInvalid, Field: "request", Message: "unexpected request"}))
	}
}

func (s sessionAPI) joinLocked(x *session, j *leaseholdv1.JoinKeyspace) *leaseholdv1.KeyspaceJoined {
	sp := s.spaceLocked(j.GetKeyspace())
	if sp == nil {
		return &leaseholdv1.KeyspaceJoined{Name: j.GetKeyspace(), Request: j.GetRequest(), Error: noKeyspace(j.GetKeyspace())}
	}
	if !x.joined(sp) {
		x.spaces = append(x.spaces, sp)
		s.changedLocked()
	}
	m := s.joinedMessage(sp)
	m.Request = j.GetRequest()
	return m
}

// KeepAlive renews by a single call.
func (s sessionAPI) KeepAlive(_ context.Context, r *leaseholdv1.KeepAliveRequest) (*leaseholdv1.KeepAliveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ack, gone := s.renewLocked(r)
	if gone != "" {
		return nil, refusal(codes.FailedPrecondition, &leaseholdv1.ErrorDetail{Reason: gone, Message: "session is " + gone})
	}
	if x := s.sessions[r.GetSessionId()]; x.stream == nil {
		x.heard = time.Now()
	}
	return ack, nil
}

// clusterAPI is as much of ClusterService as a worker asks for.
type clusterAPI struct {
	leaseholdv1.UnimplementedClusterServiceServer
}

// GetStatus says that the only server leads.
func (clusterAPI) GetStatus(context.Context, *leaseholdv1.GetStatusRequest) (*leaseholdv1.Status, error) {
	return &leaseholdv1.Status{
		ClusterId: clusterID, ServerId: serverID, LeaderId: serverID, LeaderGrpcAddr: address, Term: 1,
		Ready: true, HasState: true, RaftState: "leader",
	}, nil
}
