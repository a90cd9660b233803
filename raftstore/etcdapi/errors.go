package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Causes of contexts of this package.
var (
	errStopped     = rpctypes.ErrGRPCStopped
	errCallTimeout = rpctypes.ErrGRPCTimeout // the call took longer than callTimeout
	// What was handed to the leader may have been done: the connection broke, or
	// the leader was replaced and did not answer any more.
	errRelayBroke   = errors.New("connection to the leader lost")
	errLeaderFailed = fmt.Errorf("%w: another server leads", errRelayBroke)
)

// errFeature refuses what not all servers of the cluster know.
var errFeature = status.Error(codes.Unavailable,
	"etcdserver: not all servers of the cluster know keys yet: they can be used when every server runs this release")

// refused are the answers to refusals of the store of keys.
var refused = map[mvcc.Error]error{
	mvcc.ErrEmptyKey:      rpctypes.ErrGRPCEmptyKey,
	mvcc.ErrKeyNotFound:   rpctypes.ErrGRPCKeyNotFound,
	mvcc.ErrValueProvided: rpctypes.ErrGRPCValueProvided,
	mvcc.ErrLeaseProvided: rpctypes.ErrGRPCLeaseProvided,
	mvcc.ErrTooManyOps:    rpctypes.ErrGRPCTooManyOps,
	mvcc.ErrDuplicateKey:  rpctypes.ErrGRPCDuplicateKey,
	mvcc.ErrInvalidSort:   rpctypes.ErrGRPCInvalidSortOption,
	mvcc.ErrCompacted:     rpctypes.ErrGRPCCompacted,
	mvcc.ErrFuture:        rpctypes.ErrGRPCFutureRev,
	mvcc.ErrLeaseNotFound: rpctypes.ErrGRPCLeaseNotFound,
	mvcc.ErrNoSpace:       rpctypes.ErrGRPCNoSpace,
}

// toStatus turns whatever a handler met into the status that etcd would answer.
// It is the only place that does so.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
		return s.Err() // without what it was wrapped in
	}
	var key mvcc.Error
	if errors.As(err, &key) {
		if answer, ok := refused[key]; ok {
			return answer
		}
		return status.Error(codes.Unknown, "etcdserver: "+key.Error())
	}
	var refusal *state.Refusal
	if errors.As(err, &refusal) {
		return refusalStatus(refusal)
	}
	var long *raftstore.TooLongError
	if errors.As(err, &long) {
		return tooLarge(long.Size, long.Limit)
	}
	var other *raftstore.NotLeaderError
	var ordinary *queue.NotPlaceError
	switch {
	case errors.Is(err, queue.ErrStopped):
		return rpctypes.ErrGRPCStopped
	case errors.Is(err, queue.ErrPlaceGone):
		return status.Error(codes.Aborted, "etcdserver: "+queue.ErrPlaceGone.Error())
	case errors.As(err, &ordinary):
		return status.Error(codes.FailedPrecondition, "etcdserver: "+ordinary.Error())
	case errors.As(err, &other):
		return rpctypes.ErrGRPCLeaderChanged
	case errors.Is(err, raftstore.ErrStopped), errors.Is(err, raftstore.ErrPoisoned):
		return rpctypes.ErrGRPCStopped
	case errors.Is(err, errNotDone):
		return rpctypes.ErrGRPCLeaderChanged
	case errors.Is(err, errLeaderFailed):
		return rpctypes.ErrGRPCTimeoutDueToLeaderFail
	case errors.Is(err, errRelayBroke):
		return rpctypes.ErrGRPCTimeoutDueToConnectionLost
	case errors.Is(err, context.Canceled):
		return rpctypes.ErrGRPCCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return rpctypes.ErrGRPCTimeout
	case errors.Is(err, raftstore.ErrUnknownOutcome):
		return rpctypes.ErrGRPCTimeoutDueToLeaderFail
	}
	return status.Error(codes.Unknown, "etcdserver: "+err.Error())
}

// reasonFeature is the state's word for commands above the cluster's level.
const reasonFeature state.Reason = "feature"

// refusalStatus is for what the state refuses besides the store of keys:
// leases and alarms are the only things that this package asks of it.
func refusalStatus(r *state.Refusal) error {
	switch r.Reason {
	case reasonFeature:
		return errFeature
	case state.ReasonDenied:
		return errDenied
	case state.ReasonExists:
		return rpctypes.ErrGRPCLeaseExist
	case state.ReasonNotFound, state.ReasonSuperseded, state.ReasonEvicted:
		return rpctypes.ErrGRPCLeaseNotFound
	case state.ReasonVoidTerm:
		return rpctypes.ErrGRPCLeaderChanged
	case state.ReasonUnknownOutcome:
		return rpctypes.ErrGRPCTimeoutDueToLeaderFail
	case state.ReasonInvalid:
		return status.Error(codes.InvalidArgument, "etcdserver: "+r.Error())
	case state.ReasonCompacted:
		return rpctypes.ErrGRPCCompacted
	}
	return status.Error(codes.FailedPrecondition, "etcdserver: "+r.Error())
}

// Clients compare texts, so that the numbers of a refused request, and what it would
// have needed, are in the details of the status: an ErrorInfo of this domain.
const errorDomain = "leasehold"

// withNumbers adds a limit and what was met to a status.
func withNumbers(err error, reason, field string, got, limit int) error {
	return withInfo(err, reason, map[string]string{"field": field, "actual": strconv.Itoa(got), "limit": strconv.Itoa(limit)})
}

// withInfo adds to a status what its text has no room for.
func withInfo(err error, reason string, metadata map[string]string) error {
	detailed, derr := status.Convert(err).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: errorDomain, Metadata: metadata})
	if derr != nil {
		return err
	}
	return detailed.Err()
}

func tooLarge(got, limit int) error {
	return withNumbers(rpctypes.ErrGRPCRequestTooLarge, "REQUEST_TOO_LARGE", "request", got, limit)
}

// unsupported refuses a call by name and says what to use in its place.
func unsupported(call, instead string) error {
	return status.Error(codes.Unimplemented, "etcdserver: "+call+" is not served by Leasehold: "+instead)
}
