package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/systemd"
	"github.com/leasehold-dev/leasehold/ownership/server"
)

const (
	statusInterval = 250 * time.Millisecond
	// A large log takes a while to open. Each message asks for extendBy more,
	// but not for ever: at some point it is a hanging disk.
	extendEvery = 5 * time.Second
	extendBy    = 30 * time.Second
	extendMost  = 30 * time.Minute
	// stopSlack is on top of --shutdown-timeout: closing files.
	stopSlack = 10 * time.Second
)

// service tells the service manager how a server fares, and has it reload. It
// is ready as soon as it listens and its store runs, leader or not: whoever
// starts the first server of three must not wait for the others.
//
// Two goroutines work between start and stop.
type service struct {
	notify   *systemd.Notifier // nil without a manager
	watchdog time.Duration     // 0: none
	shutdown time.Duration
	log      *slog.Logger

	work context.CancelFunc
	done sync.WaitGroup
}

// newService finds out whether there is a manager. A wrong NOTIFY_SOCKET is
// told and no reason not to serve.
func newService(e env, cfg server.Config) *service {
	s := &service{shutdown: cfg.ShutdownTimeout, log: cfg.Logger}
	var err error
	if s.notify, err = systemd.FromEnv(e.getenv); err != nil {
		s.tell(err)
	}
	if s.watchdog, err = systemd.Watchdog(e.getenv, os.Getpid()); err != nil {
		s.tell(err)
	}
	return s
}

// tell logs what could not be said to the manager.
func (s *service) tell(err error) {
	if err != nil {
		s.log.Warn("service manager was not told", "error", err)
	}
}

// opening asks for time as long as open takes.
func (s *service) opening(open func()) {
	s.tell(s.notify.Status("opening the data directory"))
	ctx, cancel := context.WithTimeout(context.Background(), extendMost)
	s.done.Go(func() {
		tick := time.NewTicker(extendEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.tell(s.notify.Extend(extendBy))
			}
		}
	})
	open()
	cancel()
	s.done.Wait()
}

// failed leaves the reason in the status line of a unit that has ended.
func (s *service) failed(err error) { s.tell(s.notify.Status("failed: " + message(err))) }

// watched is what a service needs of the server.
type watched interface {
	Readiness() (ready bool, reason string)
	Probe(ctx context.Context) error
}

// start begins to tell, until stop. ctx is the server's: its end is the order
// to stop.
func (s *service) start(ctx context.Context, srv watched, hangups <-chan os.Signal, reload func() error) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.work = cancel
	up := make(chan struct{})
	s.done.Go(func() {
		s.awaitStore(work, srv)
		close(up)
		if s.watchdog > 0 {
			systemd.Feed(work, s.watchdog, srv.Probe, func() { s.tell(s.notify.Alive()) }, func(err error) {
				s.log.Error("main loop does not answer, the watchdog is not fed", "watchdog", s.watchdog, "error", err)
			})
		}
	})
	s.done.Go(func() {
		s.report(work, ctx.Done(), srv, up, hangups, reload)
	})
}

// awaitStore returns when the store runs.
func (s *service) awaitStore(ctx context.Context, srv watched) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for srv.Probe(ctx) != nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	s.tell(s.notify.Ready())
}

// report is the loop that keeps the status line up and reloads on request.
func (s *service) report(ctx context.Context, stopping <-chan struct{}, srv watched, up <-chan struct{}, hangups <-chan os.Signal, reload func() error) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	var told, note string
	var reloads <-chan os.Signal // nil, that is not yet, until READY has been said
	for {
		if line := statusLine(srv) + note; line != told {
			told = line
			s.tell(s.notify.Status(line))
		}
		select {
		case <-ctx.Done():
			return
		case <-stopping:
			stopping, reloads = nil, nil
			s.tell(s.notify.Stopping())
			s.tell(s.notify.Extend(s.shutdown + stopSlack))
		case <-up:
			up, reloads = nil, hangups
		case <-reloads:
			note = s.reload(reload)
		case <-tick.C:
		}
	}
}

// reload runs one reload and returns what the status line should add.
func (s *service) reload(do func() error) (note string) {
	s.tell(s.notify.Reloading())
	defer func() { s.tell(s.notify.Ready()) }()
	if err := do(); err != nil {
		return "; the last reload was refused, see the log"
	}
	return ""
}

func statusLine(srv watched) string {
	if ready, reason := srv.Readiness(); !ready {
		return fmt.Sprintf("not ready: %s", reason)
	}
	return "ready"
}

// stop ends what start began.
func (s *service) stop() {
	s.work()
	s.done.Wait()
}
