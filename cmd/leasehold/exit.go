package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Exit codes. Scripts rely on them; they do not change.
const (
	exitOK          = 0
	exitFailed      = 1 // it was tried and went wrong, or its outcome is unknown
	exitUsage       = 2 // the command line, the configuration or a value is wrong
	exitUnreachable = 3 // no leader, or no server answers: try again later
	exitNotFound    = 4
	exitRefused     = 5 // refused, or in conflict with what is
	exitDenied      = 6 // who calls is not known, or may not: not what a script that takes 5 for "somebody else has it" may overlook
)

// exitByReason is the table from the API's refusals to exit codes. Every
// reason of leaseholdv1 is in it; a test holds that.
var exitByReason = map[string]int{
	leaseholdv1.ReasonInvalid:         exitUsage,
	leaseholdv1.ReasonTooLarge:        exitUsage,
	leaseholdv1.ReasonUnsupported:     exitUsage,
	leaseholdv1.ReasonNotFound:        exitNotFound,
	leaseholdv1.ReasonUnknown:         exitNotFound,
	leaseholdv1.ReasonExists:          exitRefused,
	leaseholdv1.ReasonConflict:        exitRefused,
	leaseholdv1.ReasonStaleToken:      exitRefused,
	leaseholdv1.ReasonNotHolder:       exitRefused,
	leaseholdv1.ReasonIncarnation:     exitRefused,
	leaseholdv1.ReasonWorkerIDInUse:   exitRefused,
	leaseholdv1.ReasonSuperseded:      exitRefused,
	leaseholdv1.ReasonEvicted:         exitRefused,
	leaseholdv1.ReasonExpired:         exitRefused,
	leaseholdv1.ReasonLeft:            exitRefused,
	leaseholdv1.ReasonStrict:          exitRefused,
	leaseholdv1.ReasonDeleting:        exitRefused,
	leaseholdv1.ReasonTokensSpent:     exitRefused,
	leaseholdv1.ReasonNumbersSpent:    exitRefused,
	leaseholdv1.ReasonNoSpace:         exitRefused,
	leaseholdv1.ReasonCompacted:       exitRefused,
	leaseholdv1.ReasonWrongCluster:    exitRefused,
	leaseholdv1.ReasonReplaced:        exitRefused,
	leaseholdv1.ReasonUnauthenticated: exitDenied,
	leaseholdv1.ReasonDenied:          exitDenied,
	leaseholdv1.ReasonLimited:         exitUnreachable,
	leaseholdv1.ReasonNoLeader:        exitUnreachable,
	leaseholdv1.ReasonNotLeader:       exitUnreachable,
	leaseholdv1.ReasonVoidTerm:        exitUnreachable,
	leaseholdv1.ReasonRestored:        exitUnreachable,
	leaseholdv1.ReasonFeature:         exitUnreachable,
	leaseholdv1.ReasonShuttingDown:    exitUnreachable,
	leaseholdv1.ReasonStoreFailed:     exitUnreachable,
	leaseholdv1.ReasonUnknownOutcome:  exitFailed,
	leaseholdv1.ReasonDeadline:        exitUnreachable,
	leaseholdv1.ReasonCancelled:       exitFailed,
	leaseholdv1.ReasonInternal:        exitFailed,
}

// exitByCode is for errors without a reason: those of the connection.
var exitByCode = map[codes.Code]int{
	codes.Unavailable:        exitUnreachable,
	codes.DeadlineExceeded:   exitUnreachable,
	codes.InvalidArgument:    exitUsage,
	codes.OutOfRange:         exitUsage,
	codes.NotFound:           exitNotFound,
	codes.AlreadyExists:      exitRefused,
	codes.FailedPrecondition: exitRefused,
	codes.Aborted:            exitRefused,
	codes.PermissionDenied:   exitDenied,
	codes.Unauthenticated:    exitDenied,
}

// usageError is a mistake on the command line or in the configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// codedError gives an error an exit code of its own. A nil err has been told
// to the user already.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}
func (e *codedError) Unwrap() error { return e.err }

// hintError adds what to do next.
type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() }
func (e *hintError) Unwrap() error { return e.err }

// exitCode is the one place that decides what the process ends with.
func exitCode(err error) int {
	var coded *codedError
	var bad *usageError
	var sig *signalError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &bad):
		return exitUsage
	case errors.As(err, &sig):
		return sig.code()
	case errors.Is(err, client.ErrUnknownOutcome):
		return exitFailed
	}
	if code, ok := exitByReason[client.Detail(err).GetReason()]; ok {
		return code
	}
	var unreachable *client.UnreachableError
	if errors.As(err, &unreachable) && slices.ContainsFunc(unreachable.Servers, func(s client.ServerError) bool {
		return s.Distrust == client.CertificateRefused
	}) {
		return exitDenied
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return exitUnreachable
	}
	if st, ok := status.FromError(err); ok {
		if code, ok := exitByCode[st.Code()]; ok {
			return code
		}
	}
	return exitFailed
}

// report writes an error for a person: what went wrong, why, what next.
func report(w io.Writer, command string, err error) {
	var coded *codedError
	if errors.As(err, &coded) && coded.err == nil {
		return
	}
	fmt.Fprintf(w, "leasehold: %s\n", message(err))
	if next := nextStep(command, err); next != "" {
		fmt.Fprintf(w, "  next: %s\n", withoutSecrets(next))
	}
}

// message says what is wrong, without gRPC's wrapping and without secrets.
func message(err error) string { return withoutSecrets(unwrapped(err)) }

func unwrapped(err error) string {
	msg := err.Error()
	var unreachable *client.UnreachableError
	if d := client.Detail(err); d.GetMessage() != "" && !errors.Is(err, client.ErrUnknownOutcome) {
		prefix := ""
		if i := strings.Index(msg, "rpc error: "); i > 0 {
			prefix = msg[:i]
		}
		return prefix + d.GetMessage()
	}
	if errors.As(err, &unreachable) {
		return unreachable.Error()
	}
	if i := strings.Index(msg, "rpc error: "); i >= 0 {
		if _, desc, ok := strings.Cut(msg[i:], " desc = "); ok {
			return msg[:i] + desc
		}
	}
	return msg
}

// listOf is the command that lists what there is, by the field of a refusal
// that names what there is not.
var listOf = map[string]string{
	"keyspace":  "leasehold keyspace ls",
	"name":      "leasehold keyspace ls",
	"id":        "leasehold workers ls",
	"worker_id": "leasehold workers ls",
	"server_id": "leasehold raft peers",
	"store_id":  "leasehold raft peers -o wide",
}

func nextStep(command string, err error) string {
	var hint *hintError
	if errors.As(err, &hint) {
		return hint.hint
	}
	var bad *usageError
	if errors.As(err, &bad) {
		return command + " --help"
	}
	if errors.Is(err, client.ErrUnknownOutcome) {
		return "look whether it was done before you try again"
	}
	switch client.Detail(err).GetReason() {
	case leaseholdv1.ReasonNoLeader, leaseholdv1.ReasonNotLeader:
		return "leasehold status --wait"
	case leaseholdv1.ReasonUnauthenticated, leaseholdv1.ReasonDenied:
		return accessStep(client.Detail(err).GetReason())
	case leaseholdv1.ReasonInvalid:
		return command + " --help"
	case leaseholdv1.ReasonNotFound:
		return listOf[client.Detail(err).GetField()]
	}
	if next := distrustStep(err); next != "" {
		return next
	}
	var unreachable *client.UnreachableError
	if errors.As(err, &unreachable) {
		return "is it running? start one with: leasehold dev; or name another with --server host:7400 (LEASEHOLD_SERVER)"
	}
	return ""
}
