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
	verdictDenied                      // who we are is not known, or may not do it
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
	case leaseholdv1.ReasonUnauthenticated, leaseholdv1.ReasonDenied,
		leaseholdv1.ReasonLimited: // of failed logins: who gets in never hears of it
		return verdictDenied
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

// lost counts leases whose context ended before the handler had returned.
type lost struct {
	expired, revoked, drainTimeout, superseded, evicted, shutdown uint64
}

// of is the count for a word of lostLabel.
func (n *lost) of(label string) *uint64 {
	switch label {
	case "expired":
		return &n.expired
	case "drain_timeout":
		return &n.drainTimeout
	case "superseded":
		return &n.superseded
	case "evicted":
		return &n.evicted
	case "shutdown":
		return &n.shutdown
	}
	return &n.revoked
}

func (n *lost) message() *leaseholdv1.LostLeases {
	return &leaseholdv1.LostLeases{
		Expired: n.expired, Revoked: n.revoked, DrainTimeout: n.drainTimeout,
		Superseded: n.superseded, Evicted: n.evicted, Shutdown: n.shutdown,
	}
}

// tellLost tells the servers of lost leases at once where there may be no regular
// keep-alive any more: the worker is about to go, or its session is barred. The
// log then refuses the keep-alive, and has counted what it says.
func (c *core) tellLost(now reading) {
	switch {
	case c.lost == c.told || !c.session.opened:
	case c.barred:
		c.send(&leaseholdv1.AttachRequest{
			Request: &leaseholdv1.AttachRequest_KeepAlive{KeepAlive: c.keepAlive(now)},
		})
	case c.leaving.on:
		c.session.nextAt = now.boot
	}
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

// Is matches ErrDenied, if that is what it is.
func (e *RefusedError) Is(target error) bool {
	return target == ErrDenied && verdictOf(e.Detail) == verdictDenied
}

func refusal(op string, d *leaseholdv1.ErrorDetail) error { return &RefusedError{Op: op, Detail: d} }
