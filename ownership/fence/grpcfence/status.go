package grpcfence

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Domain is that of the google.rpc.ErrorInfo in every refusal.
const Domain = "leasehold.dev"

// Reasons of a refusal, as RefusedError has them. The two others are
// fence.ReasonStale and fence.ReasonOtherOwner.
const (
	ReasonMissing     = "missing"
	ReasonMalformed   = "malformed"
	ReasonNotAllowed  = "not_allowed"
	ReasonUnavailable = "unavailable"
	ReasonInterrupted = "interrupted"
)

// Keys of the ErrorInfo's metadata. Tokens are in decimal digits.
const (
	infoCurrentToken = "current_token"
	infoCurrentOwner = "current_owner"
	infoKey          = "key"
	infoValue        = "value"
	infoLimit        = "limit"
)

// RefusedError is what FromError makes of a refusal that is not about tokens.
// Only with ReasonInterrupted may the call have had an effect. It is a gRPC
// status still, for status.FromError.
type RefusedError struct {
	Reason string // one of the Reason constants
	status *status.Status
}

// Error repeats the server's words.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("fenced call refused with %s (%s): %s", e.status.Code(), e.Reason, e.status.Message())
}

// GRPCStatus is the server's answer.
func (e *RefusedError) GRPCStatus() *status.Status { return e.status }

func refuse(code codes.Code, reason, message string, info map[string]string) error {
	st := status.New(code, message)
	with, err := st.WithDetails(&errdetails.ErrorInfo{Reason: strings.ToUpper(reason), Domain: Domain, Metadata: info})
	if err != nil {
		return st.Err()
	}
	return with.Err()
}

func refuseMetadata(err error) error {
	info := map[string]string{}
	var me *MetadataError
	if errors.As(err, &me) {
		info = map[string]string{infoKey: me.Key, infoValue: strings.ToValidUTF8(me.Value, "\uFFFD"), infoLimit: me.Want}
	}
	if errors.Is(err, ErrMissing) {
		return refuse(codes.FailedPrecondition, ReasonMissing, err.Error(), info)
	}
	return refuse(codes.InvalidArgument, ReasonMalformed, err.Error(), info)
}

func refuseStale(e *fence.StaleError) error {
	return refuse(codes.FailedPrecondition, e.Reason, e.Error(), current(e))
}

func interrupted(e *fence.StaleError) error {
	return refuse(codes.Aborted, ReasonInterrupted, "a newer owner came during the call; its outcome is unknown", current(e))
}

func current(e *fence.StaleError) map[string]string {
	return map[string]string{infoCurrentToken: e.Current.String(), infoCurrentOwner: e.CurrentOwner}
}

// FromError turns the refusal of a call that was made under the stamp into a
// *fence.StaleError or a *RefusedError. Every other error, also nil, comes
// back as it is: the handler has answered.
func FromError(sent fence.Stamp, err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != Domain {
			continue
		}
		reason := strings.ToLower(info.GetReason())
		token, ok := decimal(info.GetMetadata()[infoCurrentToken])
		if (reason == fence.ReasonStale || reason == fence.ReasonOtherOwner) && ok && fence.Token(token) <= fence.MaxToken {
			return &fence.StaleError{Stamp: sent, Current: fence.Token(token), CurrentOwner: info.GetMetadata()[infoCurrentOwner], Reason: reason}
		}
		return &RefusedError{Reason: reason, status: st}
	}
	return err
}

// fromOutgoing is FromError for a call whose stamp is in its metadata.
func fromOutgoing(md metadata.MD, err error) error {
	s, parseErr := ParseStamp(md)
	if parseErr != nil {
		return err
	}
	return FromError(s, err)
}
