package worker

import (
	"errors"
	"fmt"
)

// Why the context of a lease ended, as context.Cause and [Lease.Check] tell it.
var (
	// ErrExpired: the session could not be renewed in time. Another worker may
	// own the partition soon, or already does.
	ErrExpired = errors.New("lease expired: the session was not renewed in time")
	// ErrRevoked: the servers took the lease back.
	ErrRevoked = errors.New("lease revoked")
	// ErrDrainTimeout: the handler was asked to finish and had not by DrainBy.
	ErrDrainTimeout = errors.New("lease ended: the time to drain is over")
	// ErrSuperseded: a newer session of the same worker id took over. Run
	// returns it and does not join again.
	ErrSuperseded = errors.New("session superseded by a newer one of the same worker id")
	// ErrEvicted: an operator evicted the session. Run returns it and does not
	// join again.
	ErrEvicted = errors.New("session evicted by an operator")
	// ErrShutdown: this process stops, and its time to do so is over.
	ErrShutdown = errors.New("worker is shut down")
	// ErrReturned: the handler has returned; the lease is being given back.
	ErrReturned = errors.New("lease ended: its handler has returned")
)

// Other errors of the package.
var (
	// ErrUnconfirmed is returned by [Lease.Check] only: wall clock and boot
	// clock disagree by more than a second, as after a pause of the virtual
	// machine. It goes away with the next acknowledged keep-alive.
	ErrUnconfirmed = errors.New("lease unconfirmed: the clocks jumped since the last keep-alive")
	// ErrWorkerIDInUse is matched by *IDInUseError.
	ErrWorkerIDInUse = errors.New("worker id in use")
	// ErrDenied is matched by the *RefusedError of servers that do not know who
	// the worker is, or do not let it do what was asked: its certificate or
	// credential is missing, has run out or was revoked, or has another keyspace.
	// The error says which. Run returns it when the session cannot be alive any
	// more, and does not join again.
	ErrDenied = errors.New("the servers do not let this worker in")
	// ErrHandlersRunning is matched by what Run returns when the hard bound of
	// a shutdown has passed and handlers have still not returned.
	ErrHandlersRunning = errors.New("handlers are still running")
	// ErrKeyspaceBusy: this worker already runs that keyspace.
	ErrKeyspaceBusy = errors.New("keyspace is already run by this worker")
)

// IDInUseError says that another live process has the worker id.
type IDInUseError struct {
	ID   string
	Addr string // where that process connects from, as the servers see it
}

// Error names the id and the other address.
func (e *IDInUseError) Error() string {
	if e.Addr == "" {
		return fmt.Sprintf("open session: worker id %q is in use", e.ID)
	}
	return fmt.Sprintf("open session: worker id %q is in use by a live worker at %s", e.ID, e.Addr)
}

// Is matches ErrWorkerIDInUse.
func (e *IDInUseError) Is(target error) bool { return target == ErrWorkerIDInUse }
