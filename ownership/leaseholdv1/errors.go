package leaseholdv1

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reasons are the stable words of ErrorDetail.Reason. Programs decide by
// them; the message beside them is for people and may change.
const (
	ReasonInvalid         = "invalid"           // a field's value is outside its limit
	ReasonNotFound        = "not_found"         // no such keyspace, partition, session or worker
	ReasonExists          = "exists"            // the name is taken
	ReasonConflict        = "conflict"          // a condition of the request does not hold now
	ReasonStaleToken      = "stale_token"       // the lease has another token
	ReasonNotHolder       = "not_holder"        // the session does not hold the lease
	ReasonIncarnation     = "incarnation"       // the worker id was opened by somebody else meanwhile
	ReasonWorkerIDInUse   = "worker_id_in_use"  // a worker of that id is alive elsewhere
	ReasonSuperseded      = "superseded"        // a newer session of the same worker id exists
	ReasonEvicted         = "evicted"           // an operator barred the session
	ReasonExpired         = "expired"           // the session has run out
	ReasonLeft            = "left"              // the session was closed by its own wish
	ReasonUnknown         = "unknown"           // the cluster has never known the session
	ReasonStrict          = "strict"            // a strict lease ends by release or expiry only
	ReasonDeleting        = "deleting"          // the keyspace is being deleted
	ReasonNoLeader        = "no_leader"         // retry: an election is going on
	ReasonNotLeader       = "not_leader"        // retry at the leader named, if one is
	ReasonRestored        = "restored"          // strict keyspaces wait until leases of before a restore have run out
	ReasonVoidTerm        = "void_term"         // retry: the leader was deposed before it was logged
	ReasonUnknownOutcome  = "unknown_outcome"   // it may have been done: look before trying again
	ReasonTokensSpent     = "tokens_spent"      // the token counter has reached its end
	ReasonNumbersSpent    = "numbers_spent"     // a sequence has reached its end
	ReasonFeature         = "feature"           // retry when all servers of the cluster have been upgraded
	ReasonTooLarge        = "too_large"         // the request is above the size limit
	ReasonCompacted       = "compacted"         // the events after that revision are gone: list again
	ReasonWrongCluster    = "wrong_cluster"     // the caller belongs to another cluster
	ReasonReplaced        = "replaced"          // a newer stream of the same session took over
	ReasonUnsupported     = "unsupported"       // not offered this way
	ReasonShuttingDown    = "shutting_down"     // retry at another server
	ReasonDeadline        = "deadline"          // the call's time was up; it may have been done
	ReasonCancelled       = "cancelled"         // the caller gave up
	ReasonStoreFailed     = "store_failed"      // this server's disk or log is broken: use another
	ReasonNoSpace         = "no_space"          // keys have used up their quota, or an alarm says so
	ReasonUnauthenticated = "unauthenticated"   // no certificate and no credential, or one that is not valid
	ReasonDenied          = "permission_denied" // the caller is known, and may not do this
	ReasonLimited         = "limited"           // a limit on how much at once; retry later
	ReasonInternal        = "internal"          // a bug of the server
)

// StatusError is the error of a gRPC call that carries d: its message is the
// status message, d itself travels in the details.
func StatusError(code codes.Code, d *ErrorDetail) error {
	s := status.New(code, d.GetMessage())
	if with, err := s.WithDetails(d); err == nil {
		s = with
	}
	return s.Err()
}

// DetailOf returns the detail an error of this API carries, or nil: then it
// did not come from a handler, but from the connection or something between.
func DetailOf(err error) *ErrorDetail {
	s, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, d := range s.Details() {
		if d, ok := d.(*ErrorDetail); ok {
			return d
		}
	}
	return nil
}

// ReasonOf is the reason of an error of this API, or "".
func ReasonOf(err error) string { return DetailOf(err).GetReason() }

// Retryable says that nothing was changed and that the same request may be
// sent again at once, to this or another server.
func (d *ErrorDetail) Retryable() bool {
	switch d.GetReason() {
	case ReasonNoLeader, ReasonNotLeader, ReasonVoidTerm, ReasonShuttingDown:
		return true
	}
	return false
}
