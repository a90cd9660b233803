package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// Mode is what one command works on.
type Mode string

// Modes.
const (
	PerPartition Mode = "per-partition" // one command for each partition that is owned
	PerWorker    Mode = "per-worker"    // one command for all of them
)

// Keyspace is what the servers say about the keyspace.
type Keyspace struct {
	Name       string
	Partitions uint32
	TTL        time.Duration
	Fenced     bool // takeover: fenced
}

// Config of Run and Hold.
type Config struct {
	// Worker is the worker to be. StopGrace, ShutdownTimeout and Observer are
	// set here and by this package.
	Worker   worker.Config
	Keyspace Keyspace
	Mode     Mode     // of Run
	Command  []string // name and arguments

	// StopGrace is how long a command has between the loss of its lease and
	// the moment when the servers may give the partition to somebody else, less
	// the worker's margin. Half of it is for SIGTERM, half for SIGKILL. 0: an
	// eighth of the TTL.
	StopGrace time.Duration

	// Prefix puts [keyspace/partition] before each line of output.
	Prefix bool

	// Wait is how long Hold waits for its turn: below 0 for ever, 0 only if
	// nobody else holds the partition.
	Wait time.Duration
	// Owner asks the servers who holds the partition of Hold; "": nobody.
	Owner func(context.Context) (string, error)

	Environ        []string // of the commands
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Executable is this binary: it is started again as the keeper.
	Executable string
}

// ConfigError says what is wrong with a Config.
type ConfigError struct{ err error }

// Error names field, value and limit.
func (e *ConfigError) Error() string { return e.err.Error() }

// Unwrap returns what was wrong.
func (e *ConfigError) Unwrap() error { return e.err }

// grace checks the stop grace against the TTL, or chooses it.
func (c *Config) grace() (time.Duration, error) {
	ttl := c.Keyspace.TTL
	most := ttl/2 - marginOf(ttl)
	switch {
	case c.StopGrace < 0:
		return 0, fmt.Errorf("stop grace %v: must not be negative", c.StopGrace)
	case c.StopGrace > most:
		return 0, fmt.Errorf("stop grace %v: at most %v at a TTL of %v: half of it less the margin of %v", c.StopGrace, max(most, 0), ttl, marginOf(ttl))
	case c.StopGrace > 0:
		return c.StopGrace, nil
	case most < minGrace:
		return 0, fmt.Errorf("keyspace %q: a TTL of %v is too short for a command to be stopped in time: want at least %v",
			c.Keyspace.Name, ttl, 2*(minGrace+marginOf(ttl)))
	}
	return max(min(ttl/8, most), minGrace), nil
}

// minGrace is what a kill and the look at its success may take.
const minGrace = 40 * time.Millisecond

// spec looks the command up. The error is a *StartError.
func (c *Config) spec() (*Spec, error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return nil, &StartError{Code: CodeNotFound, Reason: "no command is given"}
	}
	path, err := exec.LookPath(c.Command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		code, reason := CodeNotExecutable, err
		var lookup *exec.Error
		if errors.As(err, &lookup) {
			reason = lookup.Err
		}
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = CodeNotFound
		}
		return nil, &StartError{Command: c.Command[0], Code: code, Reason: reason.Error()}
	}
	return &Spec{Path: path, Args: c.Command, Env: inherited(c.Environ)}, nil
}
