package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrUnknownOutcome is matched by the error of a changing call that was sent
// and got no answer: it may have been done, and may yet be.
var ErrUnknownOutcome = errors.New("outcome unknown")

// Detail returns the ErrorDetail that a server sent with an error, or nil when
// the error did not come from one. The Reason in it is a stable word.
func Detail(err error) *leaseholdv1.ErrorDetail { return leaseholdv1.DetailOf(err) }

// UnreachableError says that none of the servers answers, and why not.
type UnreachableError struct {
	Servers []ServerError // in the order of the configuration
}

// ServerError is one server's failure.
type ServerError struct {
	Addr string
	Err  error
	// Distrust is why the two do not talk although they reach each other.
	Distrust Distrust
}

// Error lists the failures, each with the servers that have it.
func (e *UnreachableError) Error() string {
	type failure struct{ servers, text string }
	var all []failure
	seen := map[string]int{} // in all
	for i := range e.Servers {
		s := &e.Servers[i]
		text := s.plain()
		same := text
		if s.Distrust != Trusted {
			same = s.Distrust.String() // however the connection ended
		}
		if at, ok := seen[same]; ok {
			all[at].servers += ", " + s.Addr
			continue
		}
		seen[same] = len(all)
		all = append(all, failure{s.Addr, text})
	}
	var b strings.Builder
	b.WriteString("no server answers")
	for i, f := range all {
		sep := ": "
		if i > 0 {
			sep = "; "
		}
		b.WriteString(sep + f.servers + ": " + f.text)
	}
	return b.String()
}

// GRPCStatus makes status.Code(err) Unavailable.
func (e *UnreachableError) GRPCStatus() *status.Status {
	return status.New(codes.Unavailable, e.Error())
}

// Distrust is the first that a server has met with.
func (e *UnreachableError) Distrust() Distrust {
	for _, s := range e.Servers {
		if s.Distrust != Trusted {
			return s.Distrust
		}
	}
	return Trusted
}

// plain says what happened, with the meaning where it has one.
func (s *ServerError) plain() string {
	msg := plain(s.Err)
	if s.Distrust == Trusted {
		return msg
	}
	return s.Distrust.String() + " (" + msg + ")"
}

// plain takes gRPC's wrapping off a message.
func plain(err error) string {
	msg := status.Convert(err).Message()
	if _, quoted, ok := strings.Cut(msg, "connection error: desc = "); ok {
		msg = quoted
		if text, err := strconv.Unquote(quoted); err == nil {
			msg = text
		}
	}
	for _, prefix := range []string{"transport: ", "authentication handshake failed: ", "Error while dialing: "} {
		if i := strings.Index(msg, prefix); i >= 0 {
			msg = msg[i+len(prefix):]
		}
	}
	if cut, ok := strings.CutPrefix(msg, "error reading server preface: "); ok && strings.Contains(cut, "remote error") {
		return strings.Trim(cut, `"`)
	}
	if strings.Contains(msg, "error reading server preface") {
		return "it takes the connection and says nothing: a stopped process, or no leasehold server (" + strings.Trim(msg, `"`) + ")"
	}
	return strings.Trim(msg, `"`)
}

// UnknownOutcomeError is what a changing call ends with when it was sent and
// the connection broke, or time ran out, before an answer came.
type UnknownOutcomeError struct {
	Method string // full name of the gRPC method
	Err    error  // what happened instead of an answer
}

// Error says what to do: look before trying again.
func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("outcome of %s is unknown, look before trying again: %s", e.Method[strings.LastIndexByte(e.Method, '/')+1:], plain(e.Err))
}

// Unwrap returns what happened instead of an answer.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// Is matches ErrUnknownOutcome.
func (e *UnknownOutcomeError) Is(target error) bool { return target == ErrUnknownOutcome }
