package router

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// ReasonNotOwner is the reason, in an ErrorDetail, with which an owner's side
// refuses a call. Its Owner, Endpoint and Token are the hint, if there is one.
const ReasonNotOwner = "not_owner"

// IsNotOwner tells whether a call was refused because the process that was
// asked does not hold the partition. Begun anew, it goes to the right one.
func IsNotOwner(err error) bool {
	return status.Code(err) == codes.FailedPrecondition && leaseholdv1.ReasonOf(err) == ReasonNotOwner
}

// UnaryNotOwner is the owners' side of a Pool for unary calls: a routed call
// runs if this process holds the partition, under the token that the caller
// knows or a later one, and is otherwise refused with FAILED_PRECONDITION and
// the owner, its endpoint and token as where knows them; where may be nil. A
// call without the metadata of a Pool is none of its business and runs. See
// NotOwner for what it does not do.
func UnaryNotOwner(h Holder, where Locator) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := admit(ctx, h, where); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// StreamNotOwner is UnaryNotOwner for streams: it looks when one begins.
func StreamNotOwner(h Holder, where Locator) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := admit(ss.Context(), h, where); err != nil {
			return err
		}
		return handler(srv, ss)
	}
}

func admit(ctx context.Context, h Holder, where Locator) error {
	md, _ := metadata.FromIncomingContext(ctx)
	want, routed, err := parseWanted(func(key string) string {
		if v := md.Get(key); len(v) > 0 {
			return v[0]
		}
		return ""
	})
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if !routed {
		return nil
	}
	hint, serve := judgeHolder(h, where, want.keyspace, want.partition, want.token)
	if serve {
		return nil
	}
	return leaseholdv1.StatusError(codes.FailedPrecondition, &leaseholdv1.ErrorDetail{
		Reason: ReasonNotOwner, Message: refusal(want, hint), Field: "partition", Value: partitionName(want.keyspace, want.partition),
		Owner: hint.Owner, Endpoint: hint.Endpoint, Token: hint.Token,
	})
}

// partitionName is a partition in one word.
func partitionName(keyspace string, partition uint32) string {
	return keyspace + "/" + strconv.FormatUint(uint64(partition), 10)
}
