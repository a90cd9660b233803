package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// GuardConfig of a Guard.
type GuardConfig struct {
	Command []string // name and arguments
	// TTL of the session that the command works under.
	TTL time.Duration
	// StopGrace is as in Config.
	StopGrace time.Duration
	// StopTimeout is how long the command may take to end when it was asked to
	// because Run's context is done. Then it is killed.
	StopTimeout time.Duration

	Environ        []string // of the command
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Executable     string // this binary: it is started again as the keeper
	Logger         *slog.Logger
}

// Guard runs one command under a session that somebody else keeps alive, with
// the keeper and the deadline of a sidecar. NewGuard starts nothing.
type Guard struct {
	*sidecar
	stopTimeout time.Duration
}

// NewGuard looks the command up and checks the times. Errors are a *StartError
// or a *ConfigError.
func NewGuard(cfg GuardConfig) (*Guard, error) {
	c := Config{
		Command: cfg.Command, Keyspace: Keyspace{TTL: cfg.TTL}, StopGrace: cfg.StopGrace,
		Environ: cfg.Environ, Stdin: cfg.Stdin, Stdout: cfg.Stdout, Stderr: cfg.Stderr, Executable: cfg.Executable,
	}
	spec, err := c.spec()
	if err != nil {
		return nil, err
	}
	grace, err := c.grace()
	if err != nil {
		return nil, &ConfigError{err}
	}
	return &Guard{
		sidecar:     &sidecar{cfg: c, grace: grace, spec: spec, clock: bootclock.Boot(), log: cfg.Logger},
		stopTimeout: cfg.StopTimeout,
	}, nil
}

// Grace is how long before the end of what is proven the session must count as
// lost, so that the command can be stopped in time.
func (g *Guard) Grace() time.Duration { return g.grace }

// Held is the session as Run sees it.
type Held interface {
	// Lost ends, with a cause, when the session is over or counts as such.
	Lost() context.Context
	// OnProven has f called with the send time of the last acknowledged
	// keep-alive on the boot clock, at once and then with each later one.
	OnProven(f func(sent time.Duration))
	// TTL that the servers granted.
	TTL() time.Duration
}

// Ended is how the command of a Guard ended.
type Ended struct {
	Exit Exit
	// Lost is why the session ended before the command did.
	Lost error
	// Left says that something of the command could not be killed: what it held
	// must not be released.
	Left bool
}

// ErrNotBegun says that the session was lost, or the end was asked for, before
// the command had begun.
var ErrNotBegun = errors.New("the command has not begun")

// Run runs the command with some more variables and returns when nothing of it
// is left. When ctx is done the command gets SIGTERM, and SIGKILL after the stop
// timeout; when the session is lost, SIGTERM and SIGKILL within the stop grace.
// An error says that it was not started, or that the keeper failed.
func (g *Guard) Run(ctx context.Context, session Held, env ...string) (Ended, error) {
	h, err := hire(g.cfg.Executable, g.stdin(), g.cfg.Stdout, g.cfg.Stderr, g.log)
	if err != nil {
		return Ended{}, err
	}
	defer h.dismiss()
	g.hands = h
	g.deadline = newDeadline(g.clock, session.TTL(), func(until time.Duration) {
		h.out.put(request{Op: opUntil, Until: until})
	})
	session.OnProven(g.deadline.proven)
	defer session.OnProven(func(time.Duration) {})
	spec := *g.spec
	spec.Env = withEnv(g.spec.Env, env...)
	spec.Stdin = true
	ended, err := g.tend(ctx, session.Lost(), &spec)
	if failure := h.failure(); failure != nil {
		return ended, failure
	}
	return ended, err
}

// tend is the life of the command.
func (g *Guard) tend(ctx, lost context.Context, spec *Spec) (e Ended, err error) {
	until, ok := g.deadline.ahead(lost, ctx.Done())
	if !ok {
		return e, ErrNotBegun
	}
	c, err := g.hands.start(spec, true, until)
	if err != nil {
		return e, err
	}
	t := &tether{s: g.sidecar, child: c}
	t.live()
	stopping, over := ctx.Done(), lost.Done()
	var overdue <-chan time.Time
	helped := false
	for {
		select {
		case <-c.done:
			e.Exit, e.Left = c.exit, c.exit.Left > 0
			return e, nil
		case <-stopping:
			stopping = nil
			c.signal(syscall.SIGTERM)
			overdue = time.After(t.within(g.clock.Now()+g.stopTimeout) + g.slack())
		case <-over:
			over, stopping = nil, nil
			e.Lost = context.Cause(lost)
			c.signal(syscall.SIGTERM)
			overdue = time.After(t.lose() + g.slack())
		case <-overdue:
			overdue = g.overdue(c, &helped)
		}
	}
}

// Variables that a command under a lock finds besides the token.
const (
	envLockKey      = "LEASEHOLD_LOCK_KEY"
	envLockRevision = "LEASEHOLD_LOCK_REVISION"
	envSession      = "LEASEHOLD_SESSION"
)

// SessionEnv is what a command finds of its session.
func SessionEnv(id int64) []string { return []string{fmt.Sprintf("%s=%d", envSession, id)} }

// LockEnv is what a command finds of the place that it holds.
func LockEnv(key string, token uint64, revision int64) []string {
	return []string{
		envLockKey + "=" + key,
		fmt.Sprintf("%s=%d", envToken, token),
		fmt.Sprintf("%s=%d", envLockRevision, revision),
	}
}
