package api

import (
	"context"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// mayBe refuses a worker id to a worker whose certificate has another name: N opens
// N, N-1, N.eu and the like.
func mayBe(id access.Identity, worker string) error {
	if id.Source != access.Certificate || id.Role != access.Worker {
		return nil
	}
	rest, ok := strings.CutPrefix(worker, id.Name)
	if ok && (rest == "" || rest[0] == '-' || rest[0] == '.') {
		return nil
	}
	return auth.Denied(id, "worker_id %q: the certificate is for %s, and for ids that begin with %s- or %s.", shorten(worker), id.Name, id.Name, id.Name)
}

// mayOpen refuses a session that the caller may not open.
func mayOpen(id access.Identity, r *pb.OpenSession) error {
	if err := mayBe(id, r.GetWorkerId()); err != nil {
		return err
	}
	for _, name := range r.GetKeyspaces() {
		if err := inScope(id, name); err != nil {
			return err
		}
	}
	return nil
}

// foreign is the refusal of what belongs to somebody else, whom it does not name.
func foreign(id access.Identity, field, value string) error {
	return auth.Denied(id, "%s %s belongs to somebody else", field, shorten(value))
}

// mayKeep refuses a session that somebody else has opened, and one of a keyspace that
// is not the caller's any more: a certificate of the same name may have less scope
// than the one that it replaces.
func mayKeep(id access.Identity, s *state.State, sess *state.Session) error {
	if !id.MayUse(sess.Owner) {
		return foreign(id, "session_id", formatID(uint64(sess.ID)))
	}
	for _, k := range sess.Keyspaces {
		if ks, ok := s.Keyspace(k); ok && !id.Scope.Keyspace(ks.Name) {
			return inScope(id, ks.Name)
		}
	}
	return nil
}

// mayUse refuses a session that the caller may not keep. One that is not there is
// for the log to refuse; but a server that does not lead yet may not know it yet.
func (a *API) mayUse(ctx context.Context, session uint64) error {
	id := access.FromContext(ctx)
	var found bool
	var refused error
	a.cfg.Store.View(func(s *state.State) {
		var sess *state.Session
		if sess, found = s.Session(state.SessionID(session)); found {
			refused = mayKeep(id, s, sess)
		}
	})
	if !found && !a.hub.leading() {
		return a.notLeader()
	}
	return refused
}
