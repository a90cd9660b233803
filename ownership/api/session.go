package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	// firstTimeout is how long a stream may say nothing at its beginning.
	firstTimeout = 10 * time.Second
	// awaitLeadFor bounds how long a stream waits for a leader that has just
	// been elected to catch up with its own log.
	awaitLeadFor = 2 * time.Second
)

// sessions is SessionService.
type sessions struct {
	pb.UnimplementedSessionServiceServer
	*API
}

// Attach serves one worker's stream. This goroutine writes, so that returning
// from here ends the stream, which ends the reader.
func (a *sessions) Attach(ss pb.SessionService_AttachServer) error {
	first := make(chan *pb.AttachRequest, 1)
	attached := make(chan *stream, 1)
	read := make(chan error, 1)
	started := a.routines.start(func() {
		var err error
		defer func() {
			if err != nil {
				read <- err
			}
		}()
		defer a.recover(pb.SessionService_Attach_FullMethodName, &err)
		var r *pb.AttachRequest
		r, err = ss.Recv()
		if err != nil {
			return
		}
		first <- r
		select {
		case st := <-attached:
			err = st.read(ss.Recv)
		case <-ss.Context().Done():
		}
	})
	if !started {
		return errShuttingDown()
	}
	st, err := a.begin(ss.Context(), first, read)
	if err != nil {
		return err
	}
	if st == nil {
		return nil
	}
	if gone := goneOn(st); gone != nil {
		// The session is over: that is the only message.
		return ss.Send(&pb.AttachResponse{Response: &pb.AttachResponse_Closed{Closed: &pb.SessionClosed{Error: gone}}})
	}
	st.confidential = a.confidential(ss.Context())
	if !a.hub.attach(st) {
		return a.notLeader()
	}
	defer close(st.done)
	attached <- st
	a.cfg.Controller.StreamAttached(st.id)
	a.log.Info("session attached", "worker", st.worker, "session", uint64(st.id), "addr", st.addr, "resumed", st.resumed)
	err = st.write(ss.Context(), ss.Send, read)
	broken := a.hub.detach(st) && !st.over()
	if broken {
		a.cfg.Controller.StreamBroken(st.id)
	}
	a.log.Info("session detached", "worker", st.worker, "session", uint64(st.id), "broken", broken, "cause", fmt.Sprint(err))
	return err
}

// begin waits for the first message and opens or resumes the session.
func (a *sessions) begin(ctx context.Context, first <-chan *pb.AttachRequest, read <-chan error) (*stream, error) {
	timer := time.NewTimer(firstTimeout)
	defer timer.Stop()
	var r *pb.AttachRequest
	select {
	case r = <-first:
	case err := <-read:
		if errors.Is(err, io.EOF) {
			return nil, invalid("request", "", "want open or resume as the first message")
		}
		return nil, err
	case <-timer.C:
		return nil, invalid("request", "", fmt.Sprintf("want open or resume within %v", firstTimeout))
	case <-a.stopping:
		return nil, errShuttingDown()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if !a.hub.awaitLead(ctx, awaitLeadFor) {
		return nil, a.notLeader()
	}
	switch r := r.GetRequest().(type) {
	case *pb.AttachRequest_Open:
		return a.open(ctx, r.Open)
	case *pb.AttachRequest_Resume:
		return a.resume(ctx, r.Resume)
	}
	return nil, invalid("request", fmt.Sprintf("%T", r.GetRequest()), "want open or resume as the first message")
}

// resume finds the session again. Only a linearizable look may say that it is
// gone: a server that was the leader until just now does not know of sessions
// opened since, and its word would stop a healthy worker.
func (a *sessions) resume(ctx context.Context, r *pb.ResumeSession) (*stream, error) {
	if err := checkSessionID(r.GetSessionId()); err != nil {
		return nil, err
	}
	if err := checkName("worker_id", r.GetWorkerId()); err != nil {
		return nil, err
	}
	if err := checkText("version", r.GetVersion(), state.MaxTextLen); err != nil {
		return nil, err
	}
	by := access.FromContext(ctx)
	if err := mayBe(by, r.GetWorkerId()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
	defer cancel()
	id := state.SessionID(r.GetSessionId())
	var refused error
	var cluster, owner, why string
	err := a.cfg.Store.Read(ctx, func(s *state.State) {
		cluster = s.ClusterID()
		if sess, ok := s.Session(id); ok {
			owner, refused = sess.Worker, mayKeep(by, s, sess)
		} else {
			why = goneBecause(s, r.GetWorkerId())
		}
	})
	if err != nil {
		return nil, err
	}
	if err := checkCluster(r.GetClusterId(), cluster); err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	st := newStream(a.hub, id, r.GetWorkerId(), callerAddr(ctx), true)
	st.program, st.by = r.GetVersion(), by
	if why != "" {
		st.closed, st.gone = closedDetail(why, r.GetWorkerId()), true
		return st, nil
	}
	if owner != r.GetWorkerId() {
		return nil, invalid("worker_id", r.GetWorkerId(), fmt.Sprintf("want the worker of session %d, %s", id, owner))
	}
	st.report(r.GetHighestToken())
	return st, nil
}

// goneBecause guesses kindly why a session is not there.
func goneBecause(s *state.State, worker string) string {
	w, ok := s.Worker(worker)
	switch {
	case !ok:
		return pb.ReasonUnknown
	case w.Session != 0:
		return pb.ReasonSuperseded
	}
	return pb.ReasonExpired
}

// goneOn is the last word on a session that ended before its stream began.
func goneOn(st *stream) *pb.ErrorDetail {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.gone {
		return st.closed
	}
	return nil
}

// over tells whether the stream's end was said to the worker.
func (st *stream) over() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed != nil
}

func checkSessionID(id uint64) error {
	if id == 0 || id > maxSessionID {
		return invalid("session_id", formatID(id), "want a random number of 63 bits, not 0")
	}
	return nil
}

func formatID(id uint64) string { return strconv.FormatUint(id, 10) }
