// Command cron is a sharded cron to copy: jobs in PostgreSQL, spread over as
// many workers as you like, each tick of a job fired once.
//
//	cron migrate   makes the tables
//	cron add       adds a job or changes it
//	cron run       owns partitions and fires the jobs in them
//	cron target    something to call that carries out each tick once
//
// It promises that each tick of a job is decided once and carried out once by
// a target that takes each idempotency key once, also while workers are killed,
// paused and moved; and that ticks nobody was there for are treated by the
// job's own policy: skipped, the last one fired, or all. It does not promise
// that a tick is on time when no worker is there, nor that a target that forgets
// keys is called once.
//
// A worker runs two goroutines per partition beside those of package worker,
// and up to eight more while ticks are posted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !asked(ctx, err) {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

// asked reports whether err is only what a signal does to what is under way.
func asked(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}

// settings are the flags of all four commands.
type settings struct {
	db, servers, keyspace, id, listen string
	job                               job
	grace, keep                       time.Duration
}

func run(ctx context.Context, args []string) error {
	const usage = "want a command: migrate, add, run or target (each has --help)"
	if len(args) == 0 {
		return errors.New(usage)
	}
	var s settings
	f := flag.NewFlagSet("cron "+args[0], flag.ContinueOnError)
	f.StringVar(&s.db, "db", "", "`URL` of the PostgreSQL database (env DATABASE_URL)")
	commands := map[string]func(context.Context, *store, settings, *slog.Logger) error{
		"migrate": runMigrate, "add": runAdd, "run": runWorker, "target": runTarget,
	}
	switch args[0] {
	case "add":
		f.StringVar(&s.job.name, "name", "", "`name` of the job")
		f.StringVar(&s.job.schedule, "schedule", "", "`when`, as in crontab, optionally with seconds in front")
		f.StringVar(&s.job.zone, "zone", "UTC", "time `zone` of the schedule")
		f.StringVar(&s.job.policy.missed, "missed", missedOnce, "what happens to missed ticks: `skip, once or all`")
		f.IntVar(&s.job.policy.max, "max-missed", 100, "the most ticks to fire at once, the last ones; 1 to 10000")
		f.StringVar(&s.job.target, "target", "", "`URL` that each tick is posted to")
	case "run":
		f.StringVar(&s.servers, "servers", "127.0.0.1:7400", "`addresses` of Leasehold servers")
		f.StringVar(&s.keyspace, "keyspace", "cron", "`name` of the keyspace")
		f.StringVar(&s.id, "id", "", "worker `id` (default the host name)")
		f.DurationVar(&s.grace, "grace", time.Second, "how `late` a tick may be before it counts as missed, for skip")
		f.DurationVar(&s.keep, "keep", 7*24*time.Hour, "how `long` ticks stay in the table")
	case "target":
		f.StringVar(&s.listen, "listen", "127.0.0.1:8081", "`address` to listen on")
	}
	command, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("%q: %s", args[0], usage)
	}
	if err := f.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if s.db == "" {
		s.db = os.Getenv("DATABASE_URL") // not as the flag's default, which --help prints, password and all
	}
	st, err := open(s.db)
	if err != nil {
		return err
	}
	return errors.Join(command(ctx, st, s, slog.New(slog.NewTextHandler(os.Stderr, nil))), st.db.Close())
}

func runMigrate(ctx context.Context, st *store, _ settings, _ *slog.Logger) error {
	return st.create(ctx, schema)
}

func runAdd(ctx context.Context, st *store, s settings, _ *slog.Logger) error {
	if u, err := url.Parse(s.job.target); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--target %q: want http:// or https:// and a host", s.job.target)
	}
	return st.add(ctx, s.job)
}

func runWorker(ctx context.Context, st *store, s settings, log *slog.Logger) error {
	if s.grace <= 0 || s.keep < time.Hour {
		return fmt.Errorf("--grace %v --keep %v: want more than 0, and at least 1h", s.grace, s.keep)
	}
	w, err := worker.Join(ctx, worker.Config{Servers: s.servers, ID: s.id, Logger: log})
	if err != nil {
		return err
	}
	r := &runner{store: st, grace: s.grace, keep: s.keep, log: log, client: &http.Client{Timeout: 10 * time.Second}}
	return w.Run(ctx, s.keyspace, r.handle, worker.Claim(st.fence))
}

func runTarget(ctx context.Context, st *store, s settings, log *slog.Logger) error {
	t, err := newTarget(ctx, st, log)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: t, ReadHeaderTimeout: 5 * time.Second}
	fmt.Printf("listening on http://%s\n", l.Addr())
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- srv.Shutdown(bounded)
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
