package api

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	// maxOps bounds the commands of one worker that wait: beyond it, its
	// messages are not read.
	maxOps = 256
	// opTimeout bounds one proposal of a worker's commands. A stream that
	// breaks does not take back what its worker has asked for.
	opTimeout = 10 * time.Second
	// maxRefs is how many leases one Release command names, well below what a
	// log entry holds.
	maxRefs = 4096
)

// op is one command of a worker.
type op struct {
	release *pb.ReleaseLeases
	join    *pb.JoinKeyspace
	leave   *pb.LeaveSession
	report  state.Token
	close   bool // by the server: nothing is held any more
}

// push queues a command of the worker, in order. It waits while too many are
// in flight, and returns false when the stream has ended.
func (st *stream) push(o op) bool {
	select {
	case st.slots <- struct{}{}:
	case <-st.done:
		return false
	}
	st.mu.Lock()
	st.pushLocked(o)
	st.mu.Unlock()
	return true
}

func (st *stream) pushLocked(o op) {
	st.ops = append(st.ops, o)
	if !st.opsRun {
		st.opsRun = st.hub.routines.start(st.runOps)
	}
}

// closeIfEmptyLocked ends a session that is leaving and holds nothing.
func (st *stream) closeIfEmptyLocked(sess *state.Session) {
	if sess.Held == 0 && !st.closing && st.closed == nil {
		st.closing = true
		st.pushLocked(op{close: true})
	}
}

// runOps proposes what waits, all of it as one group, until nothing does. A
// panic ends this stream and no other.
func (st *stream) runOps() {
	defer func() {
		if p := recover(); p != nil {
			st.hub.log.Error("a worker's command panicked", "worker", st.worker, "cause", fmt.Sprint(p), "stack", string(debug.Stack()))
			st.end(failf(pb.ReasonInternal, "a command panicked"))
		}
	}()
	for {
		st.mu.Lock()
		ops := st.ops
		st.ops = nil
		if len(ops) == 0 {
			st.opsRun = false
			st.mu.Unlock()
			return
		}
		st.mu.Unlock()
		st.propose(ops)
		for _, o := range ops {
			if !o.close {
				<-st.slots
			}
		}
	}
}

func (st *stream) propose(ops []op) {
	var cmds []state.Command
	spans := make([]int, len(ops)) // how many commands each op made
	for i, o := range ops {
		made := st.commands(o)
		cmds, spans[i] = append(cmds, made...), len(made)
	}
	var results []state.Result
	if len(cmds) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		defer cancel()
		var err error
		if results, err = st.hub.store.ProposeUrgent(ctx, cmds...); err != nil {
			st.failOps(ops, err)
			return
		}
	}
	for i, o := range ops {
		st.answer(o, results[:spans[i]])
		results = results[spans[i]:]
	}
}

// failOps ends the stream: the worker asks again on the next one, where the
// list shows what has become of its commands.
func (st *stream) failOps(ops []op, err error) {
	for _, o := range ops {
		if o.close {
			st.mu.Lock()
			st.closing = false
			st.mu.Unlock()
		}
	}
	st.end(err)
}

func (st *stream) commands(o op) (cmds []state.Command) {
	switch {
	case o.release != nil:
		refs := o.release.GetLeases()
		cause, _ := releaseCause(o.release.GetCause())
		text := cleanText(o.release.GetError(), state.MaxTextLen)
		for len(refs) > 0 {
			n := min(len(refs), maxRefs)
			items := make([]state.LeaseRef, n)
			for i, r := range refs[:n] {
				items[i] = state.LeaseRef{Keyspace: state.KeyspaceID(r.GetKeyspaceId()), Partition: r.GetPartition(), Token: state.Token(r.GetToken())}
			}
			cmds = append(cmds, &state.Release{Session: st.id, Items: items, Cause: cause, Error: text})
			refs = refs[n:]
		}
	case o.join != nil:
		cmds = append(cmds, &state.JoinKeyspace{Session: st.id, Keyspace: o.join.GetKeyspace()})
	case o.leave != nil:
		cmds = append(cmds, &state.LeaveSession{Session: st.id, Restart: o.leave.GetRestart()})
	case o.report != 0:
		cmds = append(cmds, &state.RaiseToken{Token: o.report})
	case o.close:
		cmds = append(cmds, &state.CloseSession{Session: st.id})
	}
	return cmds
}

func (st *stream) answer(o op, results []state.Result) {
	switch {
	case o.release != nil:
		st.reply(released(o.release, results))
	case o.join != nil:
		st.reply(st.joinReply(o.join, results[0]))
	case o.leave != nil, o.close:
		if reason := goneReason(results[0].Err); reason != "" {
			st.close(closedDetail(reason, st.worker))
		}
	case o.report != 0:
		if err := results[0].Err; err != nil {
			st.hub.log.Error("a reported token was refused", "worker", st.worker, "token", uint64(o.report), "cause", err)
		}
	}
}

// released says which of the leases were not the session's any more.
func released(r *pb.ReleaseLeases, results []state.Result) *pb.AttachResponse {
	answer := &pb.LeasesReleased{Request: r.GetRequest()}
	refs := r.GetLeases()
	for _, res := range results {
		n := min(len(refs), maxRefs)
		for i, ref := range refs[:n] {
			if res.Err != nil || res.Items != nil && res.Items[i] != nil {
				answer.Refused = append(answer.Refused, ref)
			}
		}
		refs = refs[n:]
	}
	return &pb.AttachResponse{Response: &pb.AttachResponse_Released{Released: answer}}
}

func (st *stream) joinReply(j *pb.JoinKeyspace, res state.Result) *pb.AttachResponse {
	answer := &pb.KeyspaceJoined{Name: j.GetKeyspace()}
	st.hub.store.View(func(s *state.State) {
		sess, ok := s.Session(st.id)
		ks, found := s.KeyspaceByName(j.GetKeyspace())
		if res.Err == nil && ok && found {
			answer = joined(ks, sess.TTL)
		}
	})
	answer.Request = j.GetRequest()
	if res.Err != nil {
		answer.Error = detailOf(res.Err)
	}
	return &pb.AttachResponse{Response: &pb.AttachResponse_Joined{Joined: answer}}
}

func releaseCause(c pb.ReleaseCause) (state.Cause, bool) {
	switch c {
	case pb.ReleaseCause_RELEASE_CAUSE_DRAINED:
		return state.CauseDrained, true
	case pb.ReleaseCause_RELEASE_CAUSE_YIELD:
		return state.CauseYield, true
	case pb.ReleaseCause_RELEASE_CAUSE_FAILED:
		return state.CauseFailed, true
	case pb.ReleaseCause_RELEASE_CAUSE_ENDED:
		return state.CauseEnded, true
	case pb.ReleaseCause_RELEASE_CAUSE_CLAIM_REFUSED:
		return state.CauseClaimRefused, true
	case pb.ReleaseCause_RELEASE_CAUSE_REFUSED:
		return state.CauseRefused, true
	}
	return state.CauseNone, false
}

// cleanText makes any text fit for the ledger.
func cleanText(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
