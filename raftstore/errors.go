package raftstore

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrUnknownOutcome means that a proposal may or may not have been, or may
	// yet be, carried out.
	ErrUnknownOutcome = errors.New("outcome unknown: the leader changed before the proposal was confirmed")
	// ErrLostLeadership is the cause with which the context of Config.Lead ends.
	ErrLostLeadership = errors.New("leadership lost")
	// ErrStopped means that Run has not been called yet or has returned.
	ErrStopped = errors.New("store is not running")
	// ErrHasState refuses to bootstrap servers that have been bootstrapped.
	ErrHasState = errors.New("server already has a log or a snapshot")
	// ErrPoisoned matches every *StorageError: the store cannot be trusted with
	// another write in this process.
	ErrPoisoned = errors.New("storage failed")
	// ErrCorrupt matches a *StorageError for bytes that are not what was written.
	ErrCorrupt = errors.New("corrupt")
	// ErrDiskHangs matches a *StorageError for an operation that took longer
	// than Config.HangExit.
	ErrDiskHangs = errors.New("disk operation hangs")
)

// NotLeaderError refuses what only the leader can do. Nothing was written.
type NotLeaderError struct {
	LeaderID string // empty: no leader is known
}

// Error names the leader, if one is known.
func (e *NotLeaderError) Error() string {
	if e.LeaderID == "" {
		return "no leader"
	}
	return fmt.Sprintf("not the leader, %s is", e.LeaderID)
}

// TooLongError refuses a command whose encoding exceeds what one log entry may
// hold. Nothing was written.
type TooLongError struct {
	Command     string // its type
	Size, Limit int    // bytes
}

// Error names the command, its size and the limit.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("command %s has %d bytes, the limit is %d", e.Command, e.Size, e.Limit)
}

// StorageError says which file operation failed for good. It matches
// ErrPoisoned, and Err.
type StorageError struct {
	Op   string // "write log", "read log", "open snapshot", "apply entry", …
	Path string // file or directory
	Err  error
}

// Error reads "op path: cause", and for damage what to do.
func (e *StorageError) Error() string {
	msg := fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err)
	if next := e.Next(); next != "" {
		msg += "; " + next
	}
	return msg
}

// Next says what an operator can do about it; "" when the cause says it all.
func (e *StorageError) Next() string {
	switch {
	case errors.Is(e.Err, ErrCorrupt):
		return "move the data directory away and start this server again under the same id: " +
			"it joins as a new one and the others bring it up to date (deploy/OPERATIONS.md, replace)"
	case errors.Is(e.Err, syscall.ENOSPC), errors.Is(e.Err, syscall.EDQUOT):
		return "free some space there and start this server again: nothing that was acknowledged is lost"
	case errors.Is(e.Err, syscall.EROFS), errors.Is(e.Err, syscall.EIO):
		return "look at the kernel's messages about this disk, and start this server again when it can be written"
	default:
		return ""
	}
}

// Unwrap returns the cause.
func (e *StorageError) Unwrap() error { return e.Err }

// Is matches ErrPoisoned.
func (e *StorageError) Is(target error) bool { return target == ErrPoisoned }

// IdentityError refuses to open the data directory of another server.
type IdentityError struct {
	Dir           string
	Stored, Given string
}

// Error names both ids.
func (e *IdentityError) Error() string {
	return fmt.Sprintf("data directory %s belongs to server %q, not to %q", e.Dir, e.Stored, e.Given)
}

// InUseError refuses to open a data directory that another process has open.
type InUseError struct {
	Dir    string
	Holder string // process id of the holder, or empty
}

// Error names the directory and its holder.
func (e *InUseError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("data directory %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("data directory %s is in use by process %s", e.Dir, e.Holder)
}
