package auth

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Words for why a caller was refused, as the metrics count them. A certificate has
// those of package pki.
const (
	wordNone    = pki.ReasonNone
	wordBad     = pki.ReasonBad
	wordExpired = pki.ReasonExpired
	wordRevoked = pki.ReasonRevoked
	wordDenied  = "denied" // the proof is good, and not enough
)

// failure is why somebody could not prove who they are. Its message has no part
// of a secret.
type failure struct {
	word    string // for the metrics
	message string
}

func (f *failure) Error() string { return f.message }

// GRPCStatus makes a failure that comes out of a handler the status that it is.
func (f *failure) GRPCStatus() *status.Status { return status.Convert(f.status()) }

func (f *failure) status() error {
	return pb.StatusError(codes.Unauthenticated, &pb.ErrorDetail{Reason: pb.ReasonUnauthenticated, Message: f.message})
}

const newCredential = "ask an operator for another one (leasehold credential create)"

var (
	errNone = &failure{wordNone, "no certificate and no credential was presented; give --tls-cert-file and --tls-key-file, or --credential-file"}
	errBad  = &failure{wordBad, "the credential is not valid: it is wrong, unknown here, or was revoked; " + newCredential}
	errTwo  = &failure{wordBad, "more than one credential was presented; present one"}
	errOld  = &failure{wordExpired, "the credential has expired; " + newCredential}
	errGone = &failure{wordRevoked, "the credential was revoked; " + newCredential}
	// errCut ends what a revoked certificate has open.
	errCut = &failure{wordRevoked, "the certificate was revoked; have another one issued (leasehold tls issue)"}
)

// unsure is the answer when servers differ about a credential, and nobody can be
// asked who is right.
func unsure() error {
	return pb.StatusError(codes.Unavailable, &pb.ErrorDetail{
		Reason: pb.ReasonNoLeader, Message: "the servers do not agree yet about the credential of this call, or there is no leader to ask; try again",
	})
}

// limited is the answer to somebody who fails too often.
func limited() error {
	const wait = time.Second / failuresPerSecond
	return pb.StatusError(codes.ResourceExhausted, &pb.ErrorDetail{
		Reason: pb.ReasonLimited, Limit: fmt.Sprintf("%d a second", failuresPerSecond), RetryAfterMs: wait.Milliseconds(),
		Message: fmt.Sprintf("too many failed logins from this address: at most %d a second; correct the credential, then try again", failuresPerSecond),
	})
}

// Denied is the refusal of what an identity may not do. The message says which
// role, method, keyspace or key would be needed, and never what exists.
func Denied(id access.Identity, format string, args ...any) error {
	return pb.StatusError(codes.PermissionDenied, &pb.ErrorDetail{
		Reason:  pb.ReasonDenied,
		Message: fmt.Sprintf("%s: %s; ask an operator for a certificate or credential that may", id, fmt.Sprintf(format, args...)),
	})
}
