package redisfence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Sentinels for errors.Is. A call of Do that fails tells by them what became
// of its commands: fence.ErrStale, ErrCorrupt, ErrInvalidCommand and ErrNotRun
// mean that none has run, a *CommandError that some may have, and
// ErrOutcomeUnknown that nobody knows.
var (
	// ErrNotRun: the server could not be reached or refused the whole step, and
	// nothing was written. Trying again is safe.
	ErrNotRun = errors.New("nothing was written")
	// ErrOutcomeUnknown: the connection or the context ended between sending
	// and the answer. The step may have been done, may be done a little later,
	// or never. Repeating it under the same stamp does the mark no harm, but
	// the commands may then have run twice.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrCorrupt: the mark in Redis is nothing that this package has written.
	// Nothing was accepted. The error is a *CorruptError.
	ErrCorrupt = errors.New("mark is damaged")
	// ErrInvalidCommand: a command of Do cannot be right. Nothing was sent.
	ErrInvalidCommand = errors.New("invalid command")

	// ErrReadOnly: the server is a replica.
	ErrReadOnly = errors.New("the server is a read-only replica")
	// ErrCrossSlot: a key is not in the slot of the mark (Redis Cluster).
	ErrCrossSlot = errors.New("keys in several slots of the cluster")
	// ErrOutOfMemory: the server has reached maxmemory.
	ErrOutOfMemory = errors.New("the server is out of memory")
)

// CommandError says that a command of a Do failed after the stamp had been
// accepted. Redis cannot roll back: the commands before it have been written,
// those after it have not run, and the mark stays raised. If it was the first
// one, nothing was written, and the error matches ErrNotRun too.
type CommandError struct {
	Stamp   fence.Stamp
	Index   int    // of the command, from 0; as many have been written
	Command string // its name
	Replies []any  // of the commands before it
	Err     error  // what Redis said; redis.HasErrorPrefix understands it
}

// Error says which command failed and how many have been written.
func (e *CommandError) Error() string {
	return fmt.Sprintf("write to %s: command %d (%s): %v; the %d before it have been written and stay, those after it have not run",
		e.Stamp, e.Index+1, e.Command, e.Err, e.Index)
}

// Is matches ErrNotRun if no command has been written.
func (e *CommandError) Is(target error) bool { return target == ErrNotRun && e.Index == 0 }

// Unwrap gives what Redis said.
func (e *CommandError) Unwrap() error { return e.Err }

// CorruptError says what is wrong with a mark: its key holds something else,
// or a field that no guard can have written. Somebody edited it by hand, or
// the key is used for something else. Nothing is accepted until it is put
// right: set the field to a token that is not below any that was granted for
// the partition, and its owner.
type CorruptError struct {
	Key   fence.Key
	Redis string // the key in Redis
	Field string // "token", "owner", or "type" for a key that is no hash
	Value string // what is there
}

// Error names key, field and value.
func (e *CorruptError) Error() string {
	want := fmt.Sprintf("a decimal number from 1 to %d", fence.MaxToken)
	switch e.Field {
	case "owner":
		want = "a worker's id"
	case "type":
		want = "hash"
	}
	return fmt.Sprintf("mark of %s is damaged: %s of %q is %.40q, want %s; nothing was accepted", e.Key, e.Field, e.Redis, e.Value, want)
}

// Is matches ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// answer is an error reply of Redis that came inside the reply of a script.
type answer string

func (a answer) Error() string { return string(a) }

// RedisError makes it a redis.Error.
func (answer) RedisError() {}

// explain adds a sentinel and what to do to an error reply of Redis.
func explain(err error) error {
	switch {
	case redis.HasErrorPrefix(err, "READONLY"):
		return fmt.Errorf("%w, write to its primary: %w", ErrReadOnly, err)
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return fmt.Errorf("%w, give all keys of a write the hash tag of its partition (see redisfence.Under): %w", ErrCrossSlot, err)
	case redis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("%w: %w", ErrOutOfMemory, err)
	case redis.HasErrorPrefix(err, "NOPERM"), strings.Contains(err.Error(), "user executing the script"):
		return fmt.Errorf("the Redis user lacks a permission (EVAL, EVALSHA, HMGET, HSET, EXISTS, TYPE, TIME and the write commands are needed): %w", err)
	}
	return err
}

// outcome tells what an error of the client means for a step that was to run.
func outcome(err error) error {
	var (
		reply redis.Error
		dial  *net.OpError
	)
	switch {
	case errors.As(err, &reply):
		// An error raised inside the script may come after a write. Ours raises
		// none, unless it is killed, which Redis allows before the first write.
		if text := reply.Error(); strings.Contains(text, "user_script") && !strings.Contains(text, "SCRIPT KILL") {
			return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		return fmt.Errorf("%w: %w", ErrNotRun, explain(err))
	case errors.As(err, &dial) && dial.Op == "dial",
		errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return fmt.Errorf("%w: %w", ErrNotRun, err)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// ended returns why a context has ended, nil if it has not: its error, and its
// cause if that says more.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
