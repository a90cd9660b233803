package leaseholdv1

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestDetailSurvivesTheStatus(t *testing.T) {
	d := &ErrorDetail{Reason: ReasonStaleToken, Message: "partition 7: stale token", Field: "token", Value: "33", Token: 34, Owner: "w2"}
	err := StatusError(codes.FailedPrecondition, d)
	if got := status.Code(err); got != codes.FailedPrecondition {
		t.Errorf("code = %v", got)
	}
	if got := DetailOf(fmt.Errorf("release: %w", err)); !proto.Equal(got, d) {
		t.Errorf("detail = %v, want %v", got, d)
	}
	if got := status.Convert(err).Message(); got != d.Message {
		t.Errorf("message = %q", got)
	}
}

func TestDetailOfForeignErrorsIsNil(t *testing.T) {
	for _, err := range []error{nil, errors.New("no leader"), status.Error(codes.Unavailable, "no leader")} {
		if d := DetailOf(err); d != nil || d.Retryable() || ReasonOf(err) != "" {
			t.Errorf("detail of %v = %v", err, d)
		}
	}
}
