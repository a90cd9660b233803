package api

import (
	"fmt"
	"strconv"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// read takes the worker's messages until it closes its side (io.EOF) or the
// stream breaks.
func (st *stream) read(recv func() (*pb.AttachRequest, error)) error {
	for {
		r, err := recv()
		if err != nil {
			return err
		}
		if err := st.handle(r); err != nil {
			return err
		}
	}
}

func (st *stream) handle(r *pb.AttachRequest) error {
	switch r := r.GetRequest().(type) {
	case *pb.AttachRequest_KeepAlive:
		return st.keepAlive(r.KeepAlive)
	case *pb.AttachRequest_Release:
		if _, ok := releaseCause(r.Release.GetCause()); !ok {
			return invalid("release.cause", r.Release.GetCause().String(), "want one of the causes of ReleaseCause")
		}
		st.push(op{release: r.Release})
	case *pb.AttachRequest_Join:
		if err := checkName("join.keyspace", r.Join.GetKeyspace()); err != nil {
			st.reply(joinRefused(r.Join, err))
			return nil
		}
		if err := inScope(st.by, r.Join.GetKeyspace()); err != nil {
			st.reply(joinRefused(r.Join, err))
			return nil
		}
		st.push(op{join: r.Join})
	case *pb.AttachRequest_Leave:
		st.push(op{leave: r.Leave})
	case *pb.AttachRequest_Pong:
		st.ponged()
	case *pb.AttachRequest_ReportToken:
		st.report(r.ReportToken.GetToken())
	case *pb.AttachRequest_Open, *pb.AttachRequest_Resume:
		return invalid("request", fmt.Sprintf("%T", r), "open and resume are for the first message of a stream")
	default:
		return invalid("request", "", "want one of the requests of AttachRequest")
	}
	return nil
}

func joinRefused(j *pb.JoinKeyspace, err error) *pb.AttachResponse {
	return &pb.AttachResponse{Response: &pb.AttachResponse_Joined{Joined: &pb.KeyspaceJoined{
		Name: j.GetKeyspace(), Request: j.GetRequest(), Error: pb.DetailOf(err),
	}}}
}

// report raises the counter above a token that a resource has shown. A value
// that no clock could have made is a broken resource, not a token: following it
// would use up the tokens of centuries, so it is told to the operator instead.
func (st *stream) report(token uint64) {
	var last state.Token
	st.hub.store.View(func(s *state.State) { last = s.LastToken() })
	if token <= uint64(last) {
		return
	}
	if err := checkToken("report_token.token", token, st.hub.wall()); err != nil {
		st.hub.log.Error("a worker reports an impossible token", "worker", st.worker, "token", token, "cause", err)
		return
	}
	st.push(op{report: state.Token(token)})
}

// Tokens start from the clock: see DESIGN §4. One that lies more than a day
// ahead was not made by any cluster.
const (
	tokenShift = 13
	tokenAhead = 24 * time.Hour
)

func checkToken(field string, token uint64, now time.Time) error {
	start := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	most := uint64(now.Add(tokenAhead).Sub(start)/(10*time.Millisecond)) << tokenShift
	if token > most || token > uint64(state.MaxToken) {
		return invalid(field, strconv.FormatUint(token, 10), fmt.Sprintf("want at most %d, what the clock could have reached within a day", most))
	}
	return nil
}

// probe asks the worker for a sign of life and waits for it.
func (st *stream) probe(most time.Duration) bool {
	st.mu.Lock()
	if st.pong == nil {
		st.pong = make(chan struct{})
	}
	answered := st.pong
	st.ping = true
	st.mu.Unlock()
	st.signal()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-answered:
		return true
	case <-timer.C:
	case <-st.done:
	}
	return false
}

func (st *stream) ponged() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.pong != nil {
		close(st.pong)
		st.pong = nil
	}
}

// note is noteLocked for a keep-alive that came by another way.
func (st *stream) note(r *pb.KeepAliveRequest) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.noteLocked(r)
}

// noteLocked remembers what the worker says about itself.
func (st *stream) noteLocked(r *pb.KeepAliveRequest) {
	st.said = said{
		running: r.GetRunning(), ready: r.GetReady(), overruns: r.GetOverruns(),
		fencingChecks: r.GetFencingChecks(), fencingRejections: r.GetFencingRejections(),
		longestPause: max(r.GetLongestPauseMs(), 0),
	}
	st.counts = reportOf(r)
	if st.account == nil {
		st.account = st.hub.accounts.of(st.id, st.counts.process)
	}
}

// says is what the worker last reported.
func (st *stream) says() said {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.said
}
