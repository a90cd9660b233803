package queue

import (
	"errors"
	"fmt"
)

// ErrPlaceGone means that somebody deleted the key of a place while its session
// lived on: an unlock, a resignation, or anybody who deletes keys.
var ErrPlaceGone = errors.New("the place in the queue was given up meanwhile")

// ErrStopped ends the waits of a server that stops. Places stay as they are:
// the same session finds its own again at another server.
var ErrStopped = errors.New("the server's queues have stopped")

// NotPlaceError refuses to wait at a key that looks like the session's place and
// is none: it was put without the session, or taken from it.
type NotPlaceError struct {
	Key   []byte
	Lease int64 // the session that it is attached to, 0: none
}

// Error names the key and what it is attached to.
func (e *NotPlaceError) Error() string {
	if e.Lease == 0 {
		return fmt.Sprintf("key %q is an ordinary key, not a place in a queue: it is attached to no session", e.Key)
	}
	return fmt.Sprintf("key %q is an ordinary key, not a place in a queue: it is attached to session %x", e.Key, e.Lease)
}
