package router

import (
	"errors"
	"fmt"
)

// Route is what the table knows of one partition.
type Route struct {
	Keyspace  string
	Partition uint32
	Owner     string // worker id; "" when nobody has the lease
	Endpoint  string // as the worker gave it, "" if it gave none
	Token     uint64 // of the last lease granted, also without an owner
	Draining  bool   // the owner has been asked to hand over, and still is it
}

// Sentinels for errors.Is.
var (
	// ErrNotReady: nothing has been listed yet. See Router.WaitReady.
	ErrNotReady = errors.New("router has no table yet")
	// ErrUnknownKeyspace: see UnknownKeyspaceError.
	ErrUnknownKeyspace = errors.New("unknown keyspace")
	// ErrNoOwner: see NoOwnerError.
	ErrNoOwner = errors.New("no owner now")
	// ErrPartition: a partition's number is not below the keyspace's count.
	ErrPartition = errors.New("no such partition")
)

// UnknownKeyspaceError says that a keyspace is not among the router's, or does
// not exist at the moment.
type UnknownKeyspaceError struct{ Keyspace string }

// Error names the keyspace.
func (e *UnknownKeyspaceError) Error() string {
	return fmt.Sprintf("keyspace %q: does not exist now, or is not among the router's Keyspaces", e.Keyspace)
}

// Is matches ErrUnknownKeyspace.
func (e *UnknownKeyspaceError) Is(target error) bool { return target == ErrUnknownKeyspace }

// NoOwnerError says that nobody has the lease of a partition now, and why as
// far as is known. It passes: try again a little later.
type NoOwnerError struct {
	Keyspace  string
	Partition uint32
	Token     uint64 // of the last lease granted, 0: none ever was
	Reason    string // for people
}

// Error names partition and reason.
func (e *NoOwnerError) Error() string {
	return fmt.Sprintf("partition %s/%d has no owner now: %s", e.Keyspace, e.Partition, e.Reason)
}

// Is matches ErrNoOwner.
func (e *NoOwnerError) Is(target error) bool { return target == ErrNoOwner }
