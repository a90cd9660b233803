// Command actors keeps the state of each tenant in the memory of one process, to
// copy: requests reach that process through a router, and every change is
// written through to PostgreSQL under the fence before it is answered.
//
//	actors migrate   makes the tables
//	actors serve     owns partitions and answers for the tenants in them
//	actors front     forwards each request to the owner of its tenant
//
// It promises that a request is carried out once, however often it is sent with
// one Request-Id and whatever happens to the owners; and that no change is made
// from a state that was not the latest. It does not promise an answer while a
// partition has no owner: clients try again.
//
// A server runs one goroutine per partition beside those of package worker,
// package router and net/http.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/router"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !asked(ctx, err) {
		fmt.Fprintln(os.Stderr, "actors:", err)
		os.Exit(1)
	}
}

// asked reports whether err is only what a signal does to what is under way.
func asked(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}

// settings are the flags of all three commands.
type settings struct {
	db, servers, keyspace, id, listen string
}

func run(ctx context.Context, args []string) error {
	const usage = "want a command: migrate, serve or front (each has --help)"
	if len(args) == 0 {
		return errors.New(usage)
	}
	var s settings
	f := flag.NewFlagSet("actors "+args[0], flag.ContinueOnError)
	f.StringVar(&s.servers, "servers", "127.0.0.1:7400", "`addresses` of Leasehold servers")
	f.StringVar(&s.keyspace, "keyspace", "actors", "`name` of the keyspace")
	commands := map[string]func(context.Context, settings, *slog.Logger) error{
		"migrate": runMigrate, "serve": runServe, "front": runFront,
	}
	switch args[0] {
	case "migrate":
		f.StringVar(&s.db, "db", "", "`URL` of the PostgreSQL database (env DATABASE_URL)")
	case "serve":
		f.StringVar(&s.db, "db", "", "`URL` of the PostgreSQL database (env DATABASE_URL)")
		f.StringVar(&s.id, "id", "", "worker `id` (default the host name)")
		f.StringVar(&s.listen, "listen", "127.0.0.1:0", "`address` to listen on, which fronts can reach")
	case "front":
		f.StringVar(&s.listen, "listen", "127.0.0.1:8082", "`address` to listen on")
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
	return command(ctx, s, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

func runMigrate(ctx context.Context, s settings, _ *slog.Logger) error {
	st, err := open(s.db)
	if err != nil {
		return err
	}
	return errors.Join(st.create(ctx), st.db.Close())
}

func runServe(ctx context.Context, s settings, log *slog.Logger) error {
	st, err := open(s.db)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, s, st, log), st.db.Close())
}

// serve has three parts: the router, the HTTP server and the worker. When ctx
// ends, the worker hands its partitions over first; until then the others work.
func serve(ctx context.Context, s settings, st *store, log *slog.Logger) error {
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	defer l.Close()
	w, err := worker.Join(ctx, worker.Config{Servers: s.servers, ID: s.id, Endpoint: l.Addr().String(), Logger: log})
	if err != nil {
		return err
	}
	return withRouter(ctx, s, log, func(r *router.Router) error {
		srv := &server{id: w.ID(), keyspace: s.keyspace, store: st, router: r, log: log, partitions: map[uint32]*partition{}}
		return withHTTP(l, srv.handler(), func() error {
			fmt.Printf("listening on http://%s\n", l.Addr())
			return w.Run(ctx, s.keyspace, srv.handle, worker.Claim(st.fence))
		})
	})
}

func runFront(ctx context.Context, s settings, log *slog.Logger) error {
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	defer l.Close()
	return withRouter(ctx, s, log, func(r *router.Router) error {
		proxy, err := router.NewProxy(router.ProxyConfig{Router: r, Keyspace: s.keyspace, Logger: log, Key: func(req *http.Request) ([]byte, error) {
			return []byte(req.PathValue("tenant")), nil
		}})
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.Handle("/tenants/{tenant}", proxy)
		mux.Handle("/tenants/{tenant}/add", proxy)
		return withHTTP(l, mux, func() error {
			fmt.Printf("listening on http://%s\n", l.Addr())
			<-ctx.Done()
			return nil
		})
	})
}

// withRouter runs fn with a router that has a table.
func withRouter(ctx context.Context, s settings, log *slog.Logger, fn func(*router.Router) error) error {
	r, err := router.New(router.Config{Servers: s.servers, Keyspaces: []string{s.keyspace}, Logger: log})
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(following) }()
	err = r.WaitReady(ctx)
	if err == nil {
		err = fn(r)
	}
	stop()
	return errors.Join(err, <-ended)
}

// withHTTP serves while fn runs, then answers what is under way.
func withHTTP(l net.Listener, h http.Handler, fn func() error) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	err := fn()
	bounded, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = errors.Join(err, srv.Shutdown(bounded))
	if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
