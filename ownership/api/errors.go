package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/controller"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// rowOf is the one table from reasons to gRPC codes, with what the caller can
// do next. Every reason of the state machine and of the API is in it; a test
// holds that. An unknown reason is a bug and reported as one.
func rowOf(reason string) (code codes.Code, next string, known bool) {
	switch reason {
	case pb.ReasonInvalid:
		return codes.InvalidArgument, "correct it and send again", true
	case pb.ReasonNotFound:
		return codes.NotFound, "list what exists", true
	case pb.ReasonExists:
		return codes.AlreadyExists, "use what exists, or choose another name", true
	case pb.ReasonConflict:
		return codes.Aborted, "look at the present state and decide again", true
	case pb.ReasonStaleToken:
		return codes.FailedPrecondition, "the lease was granted anew: stop what runs under the old token", true
	case pb.ReasonNotHolder:
		return codes.FailedPrecondition, "the lease is lost: stop what runs under it", true
	case pb.ReasonIncarnation:
		return codes.Aborted, "another session of this worker id was opened meanwhile: try again", true
	case pb.ReasonWorkerIDInUse:
		return codes.AlreadyExists, "stop the other process, or choose another worker id", true
	case pb.ReasonSuperseded:
		return codes.FailedPrecondition, "a newer session of this worker id exists: stop", true
	case pb.ReasonEvicted:
		return codes.FailedPrecondition, "an operator barred this session: stop; undrain the worker and restart it to go on", true
	case pb.ReasonExpired:
		return codes.NotFound, "open a new session", true
	case pb.ReasonLeft:
		return codes.NotFound, "the session was closed by its own wish: open a new one to come back", true
	case pb.ReasonUnknown:
		return codes.NotFound, "open a new session", true
	case pb.ReasonStrict:
		return codes.FailedPrecondition, "a strict lease ends by release or expiry: wait, or stop its worker", true
	case pb.ReasonRestored:
		return codes.Unavailable, "wait: it is granted by itself", true
	case pb.ReasonDeleting:
		return codes.FailedPrecondition, "wait until the keyspace is gone", true
	case pb.ReasonNoLeader:
		return codes.Unavailable, "try again: an election takes about a second", true
	case pb.ReasonNotLeader:
		return codes.Unavailable, "try again at the leader", true
	case pb.ReasonVoidTerm:
		return codes.Unavailable, "the leader was deposed and nothing was changed: try again", true
	case pb.ReasonShuttingDown:
		return codes.Unavailable, "try another server", true
	case pb.ReasonStoreFailed:
		return codes.Unavailable, "try another server and look at this one's log", true
	case pb.ReasonUnknownOutcome:
		return codes.Unknown, "it may have been done: look before trying again", true
	case pb.ReasonTokensSpent:
		return codes.ResourceExhausted, "no token is left: see --token-floor", true
	case pb.ReasonNumbersSpent:
		return codes.ResourceExhausted, "no number is left: use another prefix", true
	case pb.ReasonFeature:
		return codes.Unavailable, "upgrade all servers of the cluster, then try again", true
	case pb.ReasonTooLarge:
		return codes.ResourceExhausted, "send less at once", true
	case pb.ReasonCompacted:
		return codes.OutOfRange, "list again and watch from the revision of the list", true
	case pb.ReasonWrongCluster:
		return codes.FailedPrecondition, "check which servers are configured", true
	case pb.ReasonReplaced:
		return codes.Aborted, "a newer stream of the same session took over", true
	case pb.ReasonUnsupported:
		return codes.Unimplemented, "use gRPC", true
	case pb.ReasonDeadline:
		return codes.DeadlineExceeded, "it may have been done: look before trying again", true
	case pb.ReasonCancelled:
		return codes.Canceled, "it may have been done: look before trying again", true
	case pb.ReasonNoSpace:
		return codes.ResourceExhausted, "make room (delete or compact keys, or raise --quota-bytes), then lower the alarm", true
	case pb.ReasonUnauthenticated:
		return codes.Unauthenticated, "give a certificate or a credential of this cluster that is valid", true
	case pb.ReasonDenied:
		return codes.PermissionDenied, "ask an operator for a certificate or a credential that may", true
	case pb.ReasonLimited:
		return codes.ResourceExhausted, "wait, then try again", true
	case pb.ReasonInternal:
		return codes.Internal, "this is a bug: see the server's log", true
	}
	return codes.Internal, "this is a bug: the reason is not in the table", false
}

// fail is the error of a reason: d's message, completed by the next step.
func fail(d *pb.ErrorDetail) error {
	code, next, _ := rowOf(d.GetReason())
	d.Message = fmt.Sprintf("%s; %s", d.GetMessage(), next)
	return pb.StatusError(code, d)
}

// failf is fail for a reason that has no field.
func failf(reason, format string, args ...any) error {
	return fail(&pb.ErrorDetail{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// invalid refuses the value of a field, naming what is allowed.
func invalid(field, value, limit string) error {
	value = shorten(value)
	return fail(&pb.ErrorDetail{
		Reason: pb.ReasonInvalid, Field: field, Value: value, Limit: limit,
		Message: fmt.Sprintf("%s %q: %s", field, value, limit),
	})
}

// notFound refuses a name that nothing has.
func notFound(what, field, value string) error {
	value = shorten(value)
	return fail(&pb.ErrorDetail{
		Reason: pb.ReasonNotFound, Field: field, Value: value,
		Message: fmt.Sprintf("%s %q: no such %s", field, value, what),
	})
}

// detailOfRefusal says what the state machine refused in the API's words.
func detailOfRefusal(r *state.Refusal) *pb.ErrorDetail {
	return &pb.ErrorDetail{
		Reason: string(r.Reason), Message: r.Error(),
		Field: r.Field, Value: r.Value, Limit: r.Limit,
		Token: uint64(r.Token), Owner: r.Owner, Revision: r.Revision,
	}
}

// detailOf is the detail of a refusal by the state machine, next step included.
func detailOf(err error) *pb.ErrorDetail {
	var r *state.Refusal
	if !errors.As(err, &r) {
		return &pb.ErrorDetail{Reason: pb.ReasonInternal, Message: err.Error()}
	}
	return pb.DetailOf(fail(detailOfRefusal(r)))
}

// toStatus turns whatever a handler returned into a status with a detail.
func (a *API) toStatus(err error) error {
	if err == nil || pb.DetailOf(err) != nil {
		return err
	}
	var (
		refusal   *state.Refusal
		notLeader *raftstore.NotLeaderError
		tooLong   *raftstore.TooLongError
		peer      *raftstore.PeerError
		formation *FormationError
		keys      mvcc.Error
	)
	switch {
	case errors.As(err, &keys):
		return ofKeys(keys)
	case errors.As(err, &refusal):
		return fail(detailOfRefusal(refusal))
	case errors.As(err, &notLeader), errors.Is(err, controller.ErrNotLeading):
		return a.notLeader()
	case errors.Is(err, raftstore.ErrUnknownOutcome):
		return failf(pb.ReasonUnknownOutcome, "the leader changed before the outcome was known")
	case errors.As(err, &tooLong):
		return fail(&pb.ErrorDetail{
			Reason: pb.ReasonTooLarge, Field: "request", Value: fmt.Sprintf("%d bytes", tooLong.Size),
			Limit: fmt.Sprintf("%d bytes", tooLong.Limit), Message: tooLong.Error(),
		})
	case errors.As(err, &peer):
		// The caller knows what it has tried.
		return failf(pb.ReasonConflict, "server %s with data directory %s: %s", peer.Peer.ID, peer.Peer.Store, peer.Reason)
	case errors.As(err, &formation):
		return formation.status()
	case errors.Is(err, raftstore.ErrStopped):
		return errShuttingDown()
	case errors.Is(err, raftstore.ErrPoisoned):
		return failf(pb.ReasonStoreFailed, "server %s cannot use its log any more", a.cfg.ServerID)
	case errors.Is(err, context.DeadlineExceeded):
		return failf(pb.ReasonDeadline, "the call's time was up")
	case errors.Is(err, context.Canceled):
		return failf(pb.ReasonCancelled, "the call was cancelled")
	}
	if s, ok := status.FromError(err); ok {
		return a.fromTransport(s)
	}
	return failf(pb.ReasonInternal, "%v", err)
}

// ofKeys says what the store of keys refused.
func ofKeys(err mvcc.Error) error {
	switch err {
	case mvcc.ErrNoSpace:
		return failf(pb.ReasonNoSpace, "no space for keys is left")
	case mvcc.ErrLeaseNotFound:
		return failf(pb.ReasonExpired, "no such session, or it has ended")
	}
	return failf(pb.ReasonInvalid, "%v", err)
}

// fromTransport gives a detail to a status that grpc made itself.
func (a *API) fromTransport(s *status.Status) error {
	switch s.Code() {
	case codes.ResourceExhausted:
		return fail(&pb.ErrorDetail{
			Reason: pb.ReasonTooLarge, Message: s.Message(), Limit: strconv.Itoa(a.cfg.MaxRequestBytes) + " bytes",
		})
	case codes.DeadlineExceeded:
		return failf(pb.ReasonDeadline, "the call's time was up: %s", s.Message())
	case codes.Canceled:
		return failf(pb.ReasonCancelled, "the call was cancelled: %s", s.Message())
	case codes.Unavailable:
		return failf(pb.ReasonNoLeader, "%s", s.Message())
	}
	return s.Err() // the caller's own: unimplemented, unauthenticated, …
}

// notLeader is the answer of a server that cannot do it itself. The hint is
// left out unless there is a leader now and its address is known: an old hint
// would send the caller in circles.
func (a *API) notLeader() error {
	id, addr, ok := a.leader()
	switch {
	case !ok:
		return a.nobodyLeads()
	case id == a.cfg.ServerID:
		return noLeader("this server is just becoming the leader, or ceasing to be it")
	}
	return fail(&pb.ErrorDetail{
		Reason: pb.ReasonNotLeader, LeaderId: id, LeaderAddr: addr, RetryAfterMs: retryAfter.Milliseconds(),
		Message: fmt.Sprintf("server %s does not lead; %s at %s does", a.cfg.ServerID, id, addr),
	})
}

// nobodyLeads tells an election from a cluster that is still to be formed.
func (a *API) nobodyLeads() error {
	if !a.cfg.Store.HasState() && a.cfg.Store.ClusterID() == "" {
		code, _, _ := rowOf(pb.ReasonNoLeader)
		return pb.StatusError(code, &pb.ErrorDetail{
			Reason: pb.ReasonNoLeader, RetryAfterMs: retryAfter.Milliseconds(),
			Message: fmt.Sprintf("server %s is in no cluster yet: form one (leasehold cluster init) or add it to one (leasehold raft add %s)", a.cfg.ServerID, a.cfg.ServerID),
		})
	}
	return noLeader("there is no leader now")
}

func noLeader(why string) error {
	return fail(&pb.ErrorDetail{Reason: pb.ReasonNoLeader, RetryAfterMs: retryAfter.Milliseconds(), Message: why})
}

// shorten keeps foreign text in messages within 64 bytes.
func shorten(v string) string {
	const most = 64
	if len(v) <= most {
		return v
	}
	return v[:most] + "…"
}
