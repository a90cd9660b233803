package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/session"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/sidecar"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// placeFlags are shared by the commands that hold something for as long as a
// command, or they themselves, run.
type placeFlags struct {
	ttl, stopGrace, shutdownFor durationFlag
	logs                        logFlags
}

func (p *placeFlags) define(cmd *cobra.Command) {
	p.ttl = durationFlag{d: 10 * time.Second}
	p.shutdownFor = durationFlag{d: 30 * time.Second, max: time.Hour}
	f := cmd.Flags()
	f.Var(&p.ttl, "ttl", "how long the session outlives a process that died or is cut off: whole seconds from 2s")
	f.Var(&p.stopGrace, "stop-grace", "taken off the TTL for stopping CMD when the session is lost: half for SIGTERM, half for SIGKILL (default an eighth of the TTL)")
	f.Lookup("stop-grace").DefValue = ""
	f.Var(&p.shutdownFor, "shutdown-timeout", "how long CMD may take to end after SIGTERM, before it is killed")
	p.logs.define(cmd, slog.LevelWarn)
}

// seat is what is asked for: a place in a queue, or with no name a session alone.
type seat struct {
	flags *placeFlags
	name  string
	value string // of the key, for those who look
	slots uint32
	// wait is how long to wait for the turn: below 0 for ever, 0 not at all.
	wait time.Duration
	// command to run; empty: hold until a signal.
	command []string
}

// place is what was got.
type place struct {
	session *session.Session
	*leaseholdv1.AcquireResponse
}

// take is the life of a seat.
func (s *seat) take(ctx context.Context, e env) error {
	guard, err := s.guard(e)
	if err != nil {
		return err
	}
	c, err := e.keys(ctx, true)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := s.begin(ctx, e, c, guard)
	if err != nil {
		return err
	}
	left := true // whatever happens below: only a return in order gives the place back
	defer func() { s.leave(e, p, left) }()
	if err := s.acquire(ctx, e, c, p); err != nil {
		left = false
		return s.notHeld(ctx, err)
	}
	if guard == nil {
		err = s.hold(ctx, e, p)
		left = false
		return err
	}
	end, err := guard.Run(ctx, p.session, p.env()...)
	left = end.Left
	return s.ended(ctx, end, err)
}

// guard checks the command before anything is asked of the servers.
func (s *seat) guard(e env) (*sidecar.Guard, error) {
	if s.flags.ttl.d < session.MinTTL || s.flags.ttl.d > session.MaxTTL || s.flags.ttl.d%time.Second != 0 {
		return nil, usage("--ttl %s: want whole seconds from %s to %.0fs", shortDuration(s.flags.ttl.d), shortDuration(session.MinTTL), session.MaxTTL.Seconds())
	}
	if len(s.command) == 0 {
		return nil, nil
	}
	cfg := sidecar.GuardConfig{
		Command: s.command, TTL: s.flags.ttl.d, StopGrace: s.flags.stopGrace.d, StopTimeout: s.flags.shutdownFor.d,
		Environ: os.Environ(), Stdout: e.stdout, Stderr: e.stderr, Logger: s.flags.logs.logger(e),
	}
	if !e.isTerminal(e.stdin) { // a command off the foreground may not read it
		cfg.Stdin = e.stdin
	}
	var err error
	if cfg.Executable, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find own executable: %w", err)
	}
	g, err := sidecar.NewGuard(cfg)
	return g, sidecarEnd(0, err)
}

// begin opens the session.
func (s *seat) begin(ctx context.Context, e env, c *keyClient, guard *sidecar.Guard) (*place, error) {
	cfg := session.Config{Leases: pb.NewLeaseClient(c.ActiveConnection()), TTL: s.flags.ttl.d}
	if guard != nil {
		cfg.Grace = guard.Grace()
	}
	asking, cancel := context.WithTimeout(ctx, e.flags.timeout.d)
	defer cancel()
	var open *session.Session
	err := poll(asking, 100*time.Millisecond, func() (done bool, err error) {
		open, err = session.Open(asking, cfg)
		return err == nil || !passing(err), err
	})
	if err != nil {
		err = keyReadError("open a session", err)
		if errors.Is(asking.Err(), context.DeadlineExceeded) {
			err = c.leaderless(ctx, err)
		}
		return nil, err
	}
	return &place{session: open}, nil
}

// acquire waits for the turn.
func (s *seat) acquire(ctx context.Context, e env, c *keyClient, p *place) error {
	if s.name == "" {
		return nil
	}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.session.Lost(), func() { cancel(context.Cause(p.session.Lost())) })()
	switch {
	case s.wait > 0:
		defer time.AfterFunc(s.wait, func() { cancel(errNotInTime) }).Stop()
	case s.wait == 0:
		defer time.AfterFunc(e.flags.timeout.d, func() { cancel(context.DeadlineExceeded) }).Stop()
	}
	defer s.tellWhom(waiting, e, c)()
	for {
		r, err := c.native.Coordination().Acquire(waiting, &leaseholdv1.AcquireRequest{
			Name: s.name, SessionId: uint64(p.session.ID()), Slots: s.slots, Value: []byte(s.value), NoWait: s.wait == 0,
		})
		switch {
		case waiting.Err() != nil:
			return context.Cause(waiting)
		case err == nil && !r.GetAcquired():
			return errNotInTime
		case err == nil:
			p.AcquireResponse = r
			return nil
		case exitCode(err) != exitUnreachable:
			return err
		}
		pause(waiting, reopenAfter)
	}
}

var errNotInTime = errors.New("it was not its turn in time")

// notHeld is the error when the place was not got.
func (s *seat) notHeld(ctx context.Context, err error) error {
	var unproven *session.UnprovenError
	switch {
	case errors.Is(err, errNotInTime):
		return &codedError{exitRefused, fmt.Errorf("%q is held by others, and --wait is %v", s.name, s.wait)}
	case errors.Is(err, session.ErrGone), errors.As(err, &unproven), leaseholdv1.ReasonOf(err) == leaseholdv1.ReasonExpired:
		return &codedError{sidecar.CodeLostLease, fmt.Errorf("wait for %q: the session expired: %w", s.name, err)}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("wait for %q: %w", s.name, err)
}

// tellWhom says on a terminal whom it waits for. The returned function ends that.
func (s *seat) tellWhom(ctx context.Context, e env, c *keyClient) (stop func()) {
	bar := newProgress(e)
	if !bar.live || s.wait == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer bar.done()
		_ = poll(ctx, time.Second, func() (bool, error) {
			if r, err := c.Get(ctx, s.name+"/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)); err == nil {
				if queue := placesIn(s.name, r.Kvs); len(queue) > 0 {
					bar.show("waiting for %s, held by %s; %d in the queue", cell(s.name), cell(string(queue[0].GetValue())), len(queue))
				}
			}
			return false, nil
		})
	}()
	return func() { cancel(); <-done }
}

// hold keeps the place until a signal, or until the session is lost.
func (s *seat) hold(ctx context.Context, e env, p *place) error {
	if err := p.print(e); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil // being stopped is how it ends
	case <-p.session.Lost().Done():
		return &codedError{sidecar.CodeLostLease, fmt.Errorf("the session was lost: %w", context.Cause(p.session.Lost()))}
	}
}

// ended turns the end of the command into an error with its exit code.
func (s *seat) ended(ctx context.Context, end sidecar.Ended, err error) error {
	switch {
	case errors.Is(err, sidecar.ErrNotBegun) && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, sidecar.ErrNotBegun):
		return &codedError{sidecar.CodeLostLease, fmt.Errorf("the session was lost before the command had begun")}
	case err != nil:
		return sidecarEnd(exitFailed, err)
	case end.Lost != nil:
		return &codedError{sidecar.CodeLostLease, fmt.Errorf("the session was lost: %w", end.Lost)}
	case end.Exit.Killed && ctx.Err() == nil: // the keeper was first: this process had been stopped
		return &codedError{sidecar.CodeLostLease, errors.New("the command was killed: the time of its session was over")}
	case end.Exit.Killed:
		return &codedError{end.Exit.Code, fmt.Errorf("the command was killed: it had not ended within --shutdown-timeout %v", s.flags.shutdownFor.d)}
	}
	return sidecarEnd(end.Exit.Code, nil)
}

// leaveWithin is how long giving back may take. Then the TTL does it.
const leaveWithin = 5 * time.Second

// leave gives the place back, unless something may still be at work under it.
func (s *seat) leave(e env, p *place, left bool) {
	if left {
		p.session.Abandon()
		_ = e.warn("leasehold: not given back: something of the command may still run; it ends with the session, in %v", p.session.TTL())
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	lost := p.session.Lost().Err() != nil
	err := p.session.Close(ctx)
	if err != nil && !lost && exitByCode[codeOf(err)] != exitNotFound {
		_ = e.warn("leasehold: not given back, it ends with the session, in %v: %v", p.session.TTL(), err)
	}
}

// env is what the command finds.
func (p *place) env() []string {
	env := sidecar.SessionEnv(p.session.ID())
	if p.AcquireResponse != nil {
		env = append(env, sidecar.LockEnv(string(p.GetKey()), p.GetToken(), p.GetRevision())...)
	}
	return env
}

// placeResult is what -o json has. Numbers that a float cannot hold are strings.
type placeResult struct {
	Key      []byte `json:"key,omitempty"`
	Token    uint64 `json:"token,string,omitempty"`
	Revision int64  `json:"revision,string,omitempty"`
	Session  int64  `json:"session,string"`
	TTLMs    int64  `json:"ttl_ms,string"`
}

// print says what is held, for who asked for no command.
func (p *place) print(e env) error {
	switch {
	case e.json():
		return printJSON(e.stdout, placeResult{p.GetKey(), p.GetToken(), p.GetRevision(), p.session.ID(), p.session.TTL().Milliseconds()})
	case p.AcquireResponse == nil:
		return e.say("%d", p.session.ID())
	}
	return e.say("%s\t%d", cell(string(p.GetKey())), p.GetToken())
}

// whoami is the value of a place, for those who wait behind it.
func whoami() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}
