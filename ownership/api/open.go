package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	// pongTimeout is how long the session that has a worker id may take to
	// prove that it is alive.
	pongTimeout = 500 * time.Millisecond
	// leadGrace, with one keep-alive interval, is how long the sessions of an
	// earlier leader's term have to attach to the new one.
	leadGrace = time.Second
	// openTries bounds how often two processes that open the same worker id at
	// once are compared anew.
	openTries = 4
	// openTimeout bounds one proposal.
	openTimeout = 10 * time.Second
)

// open opens a session, or finds the one that an earlier try has opened.
//
// While the present session of the worker id is in touch, it stays: elsewhere
// two processes with one id have thrown each other out for ever. Otherwise the
// newest wins. The log decides between two that come at once: the incarnation
// that was read is the condition of the command.
func (a *sessions) open(ctx context.Context, r *pb.OpenSession) (*stream, error) {
	if err := a.checkOpen(r); err != nil {
		return nil, err
	}
	err := mayOpen(access.FromContext(ctx), r)
	if err != nil {
		return nil, err
	}
	for range openTries {
		var incarnation uint64
		if incarnation, err = a.contest(ctx, r); err != nil {
			return nil, err
		}
		err = a.proposeOpen(ctx, r, incarnation)
		if state.ReasonOf(err) != state.ReasonIncarnation {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	st := newStream(a.hub, state.SessionID(r.GetSessionId()), r.GetWorkerId(), callerAddr(ctx), false)
	st.program, st.by = r.GetVersion(), access.FromContext(ctx)
	return st, nil
}

func (a *sessions) checkOpen(r *pb.OpenSession) error {
	if err := checkSessionID(r.GetSessionId()); err != nil {
		return err
	}
	if err := checkName("worker_id", r.GetWorkerId()); err != nil {
		return err
	}
	if n := len(r.GetKeyspaces()); n == 0 || n > state.MaxJoined {
		return invalid("keyspaces", strconv.Itoa(n), fmt.Sprintf("want 1 to %d names", state.MaxJoined))
	}
	for _, name := range r.GetKeyspaces() {
		if err := checkName("keyspaces", name); err != nil {
			return err
		}
	}
	for _, f := range []struct{ field, value string }{{"endpoint", r.GetEndpoint()}, {"zone", r.GetZone()}, {"version", r.GetVersion()}} {
		if err := checkText(f.field, f.value, state.MaxTextLen); err != nil {
			return err
		}
	}
	if err := checkToken("highest_token", r.GetHighestToken(), a.cfg.Wall()); err != nil {
		return err
	}
	return checkLabels(r.GetLabels())
}

// incumbent is the session that has a worker id now.
type incumbent struct {
	id          state.SessionID
	incarnation uint64
	addr        string
	ttl         time.Duration
	live        bool // may renew
	recent      bool // has renewed within half its TTL
}

// contest looks at who has the worker id now and returns its incarnation when
// the new session may take over.
func (a *sessions) contest(ctx context.Context, r *pb.OpenSession) (uint64, error) {
	for {
		inc, err := a.incumbent(access.FromContext(ctx), r)
		if err != nil {
			return 0, err
		}
		if !inc.live || inc.id == state.SessionID(r.GetSessionId()) {
			return inc.incarnation, nil
		}
		if st := a.hub.attached(inc.id); st != nil {
			if st.probe(pongTimeout) {
				return 0, inUse(r, inc, time.Second)
			}
			return inc.incarnation, nil
		}
		interval := inc.ttl / 4
		if ago, ok := a.hub.heard(inc.id); ok && ago < interval+leadGrace {
			return 0, inUse(r, inc, interval+leadGrace-ago)
		}
		if !a.hub.leading() {
			return 0, a.notLeader()
		}
		wait := a.hub.awaited(inc.id, interval+leadGrace)
		if !inc.recent || wait <= 0 {
			return inc.incarnation, nil
		}
		// A new leader: the incumbent may just not have come back yet.
		if err := a.pause(ctx, min(wait, 50*time.Millisecond)); err != nil {
			return 0, err
		}
	}
}

func (a *sessions) incumbent(id access.Identity, r *pb.OpenSession) (inc incumbent, err error) {
	a.cfg.Store.View(func(s *state.State) {
		if err = checkCluster(r.GetClusterId(), s.ClusterID()); err != nil {
			return
		}
		for _, name := range r.GetKeyspaces() {
			if _, ok := s.KeyspaceByName(name); !ok {
				err = notFound("keyspace", "keyspaces", name)
				return
			}
		}
		w, ok := s.Worker(r.GetWorkerId())
		if !ok {
			return
		}
		inc.incarnation = w.Incarnation
		if sess, ok := s.Session(w.Session); ok {
			inc.id, inc.addr, inc.ttl = sess.ID, sess.Addr, sess.TTL
			inc.live = sess.State == state.SessionLive || sess.State == state.SessionLeaving
			inc.recent = sess.Deadline-s.Now() > sess.TTL/2
			if inc.live && !id.MayUse(sess.Owner) {
				err = foreign(id, "worker_id", r.GetWorkerId()) // nor is it told where that is
			}
		}
	})
	return inc, err
}

func inUse(r *pb.OpenSession, inc incumbent, retry time.Duration) error {
	return fail(&pb.ErrorDetail{
		Reason: pb.ReasonWorkerIDInUse, Field: "worker_id", Value: r.GetWorkerId(), Owner: inc.addr,
		RetryAfterMs: retry.Milliseconds(),
		Message:      fmt.Sprintf("worker_id %q: a worker of that id is alive at %s", r.GetWorkerId(), inc.addr),
	})
}

func (a *sessions) proposeOpen(ctx context.Context, r *pb.OpenSession, incarnation uint64) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	keyspaces := slices.Clone(r.GetKeyspaces())
	slices.Sort(keyspaces)
	var owner string
	a.cfg.Store.View(func(s *state.State) { owner = s.Owned(access.FromContext(ctx).Owner()) })
	cmds := []state.Command{&state.OpenSession{
		Owner:   owner,
		Session: state.SessionID(r.GetSessionId()), Worker: r.GetWorkerId(), Incarnation: incarnation,
		Keyspaces: slices.Compact(keyspaces), Endpoint: r.GetEndpoint(), Zone: r.GetZone(), Addr: callerAddr(ctx),
		Capacity: r.GetCapacity(), Labels: r.GetLabels(), Gossip: r.GetGossip(),
	}}
	if r.GetHighestToken() != 0 {
		cmds = append(cmds, &state.RaiseToken{Token: state.Token(r.GetHighestToken())})
		slices.Reverse(cmds) // the first grant must be above it already
	}
	results, err := a.cfg.Store.ProposeUrgent(ctx, cmds...)
	if err != nil {
		return err
	}
	return results[len(results)-1].Err
}

// pause waits, unless the caller or the server goes.
func (a *API) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.stopping:
		return errShuttingDown()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
