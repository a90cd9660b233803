package worker

import (
	"errors"
	"fmt"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// verdict is what an answer means for the session. Everything that is not
// known to be definite means "not confirmed": ask again until the deadline.
type verdict uint8

const (
	verdictNone         verdict = iota // says nothing about the session
	verdictGone                        // the servers do not know the session any more
	verdictLeft                        // closed by our own wish
	verdictSuperseded                  // a newer session of the same worker id
	verdictEvicted                     // by an operator
	verdictOtherCluster                // these servers are not ours
	verdictInUse                       // another live process has the worker id
	verdictRefused                     // what was asked can never be granted
)

func verdictOf(d *leaseholdv1.ErrorDetail) verdict {
	switch d.GetReason() {
	case leaseholdv1.ReasonExpired, leaseholdv1.ReasonUnknown, leaseholdv1.ReasonNotFound:
		return verdictGone
	case leaseholdv1.ReasonLeft:
		return verdictLeft
	case leaseholdv1.ReasonSuperseded:
		return verdictSuperseded
	case leaseholdv1.ReasonEvicted:
		return verdictEvicted
	case leaseholdv1.ReasonWrongCluster:
		return verdictOtherCluster
	case leaseholdv1.ReasonWorkerIDInUse:
		return verdictInUse
	case leaseholdv1.ReasonInvalid, leaseholdv1.ReasonDeleting, leaseholdv1.ReasonExists, leaseholdv1.ReasonTokensSpent:
		return verdictRefused
	}
	return verdictNone
}

// causeOf is how a handler hears that the servers took its lease back.
func causeOf(word string) error {
	switch word {
	case leaseholdv1.ReasonSuperseded:
		return ErrSuperseded
	case leaseholdv1.ReasonEvicted:
		return ErrEvicted
	case leaseholdv1.ReasonExpired:
		return ErrExpired
	case "timeout", "drain_timeout", "handoff_timeout":
		return ErrDrainTimeout
	}
	return ErrRevoked
}

// lostLabel is the word for a cause in the metrics.
func lostLabel(cause error) string {
	switch {
	case errors.Is(cause, ErrExpired):
		return "expired"
	case errors.Is(cause, ErrDrainTimeout):
		return "drain_timeout"
	case errors.Is(cause, ErrSuperseded):
		return "superseded"
	case errors.Is(cause, ErrEvicted):
		return "evicted"
	case errors.Is(cause, ErrShutdown):
		return "shutdown"
	}
	return "revoked"
}

// RefusedError is a definite refusal of the servers, such as of a keyspace that
// does not exist.
type RefusedError struct {
	Op     string                   // what was tried
	Detail *leaseholdv1.ErrorDetail // Reason is a stable word
}

// Error says what was tried and what the servers answered.
func (e *RefusedError) Error() string {
	msg := e.Detail.GetMessage()
	if msg == "" {
		msg = e.Detail.GetReason()
	}
	return fmt.Sprintf("%s: %s", e.Op, msg)
}

func refusal(op string, d *leaseholdv1.ErrorDetail) error { return &RefusedError{Op: op, Detail: d} }
