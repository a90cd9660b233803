// Command outbox is a transactional outbox relay to copy: events are written
// to PostgreSQL in the transaction that they tell of, and delivered to an HTTP
// endpoint, in order, by as many relays as you like.
//
//	outbox migrate   makes the tables, with P partitions
//	outbox produce   changes accounts and publishes an event for each change
//	outbox relay     owns partitions and delivers their events
//	outbox receive   an endpoint that accepts each event once
//
// It promises that the receiver accepts every committed event once, and the
// events of one key in the order in which their transactions committed, also
// while relays are killed, paused and moved. It does not promise an order
// between keys, nor progress past an event that the endpoint never takes.
//
// A relay runs one goroutine per partition beside those of package worker.
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
	"strings"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/ring/keyrange"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !asked(ctx, err) {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

// asked reports whether err is only what a signal does to what is under way.
func asked(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}

// settings are the flags of all four commands.
type settings struct {
	db, servers, keyspace, id     string
	endpoint, listen              string
	partitions, events, producers int
	keys                          int
	keep                          int64
	noFence                       bool
}

func run(ctx context.Context, args []string) error {
	const usage = "want a command: migrate, produce, relay or receive (each has --help)"
	if len(args) == 0 {
		return errors.New(usage)
	}
	var s settings
	f := flag.NewFlagSet("outbox "+args[0], flag.ContinueOnError)
	f.StringVar(&s.db, "db", "", "`URL` of the PostgreSQL database (env DATABASE_URL)")
	commands := map[string]func(context.Context, *guarded, settings, *slog.Logger) error{
		"migrate": runMigrate, "produce": runProduce, "relay": runRelay, "receive": runReceive,
	}
	switch args[0] {
	case "migrate":
		f.IntVar(&s.partitions, "partitions", 16, "`number` of partitions, that of the keyspace")
	case "produce":
		f.IntVar(&s.events, "events", 1000, "`number` of events to publish")
		f.IntVar(&s.keys, "keys", 20, "`number` of accounts they are about")
		f.IntVar(&s.producers, "producers", 4, "`number` of transactions at a time")
	case "relay":
		f.StringVar(&s.servers, "servers", "127.0.0.1:7400", "`addresses` of Leasehold servers")
		f.StringVar(&s.keyspace, "keyspace", "outbox", "`name` of the keyspace")
		f.StringVar(&s.id, "id", "", "worker `id` (default the host name)")
		f.StringVar(&s.endpoint, "endpoint", "http://127.0.0.1:8080", "`URL` of the receiver")
		f.Int64Var(&s.keep, "keep", 1000, "`number` of delivered events of a partition to keep")
		f.BoolVar(&s.noFence, "no-fence", false, "neither claim nor guard: shows what the fence is for")
	case "receive":
		f.StringVar(&s.listen, "listen", "127.0.0.1:8080", "`address` to listen on")
		f.BoolVar(&s.noFence, "no-fence", false, "accept whatever comes: shows what the fence is for")
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
	g, err := open(s.db, s.noFence)
	if err != nil {
		return err
	}
	return errors.Join(command(ctx, g, s, slog.New(slog.NewTextHandler(os.Stderr, nil))), g.db.Close())
}

func runMigrate(ctx context.Context, g *guarded, s settings, _ *slog.Logger) error {
	if s.partitions < 1 || s.partitions > keyrange.MaxPartitions {
		return fmt.Errorf("--partitions %d: want 1 to %d", s.partitions, keyrange.MaxPartitions)
	}
	return migrate(ctx, g.db, s.partitions)
}

func runProduce(ctx context.Context, g *guarded, s settings, _ *slog.Logger) error {
	if s.events < 0 || s.keys < 1 || s.producers < 1 {
		return fmt.Errorf("--events %d --keys %d --producers %d: want at least 0, 1 and 1", s.events, s.keys, s.producers)
	}
	return produce(ctx, g.db, s.events, s.keys, s.producers)
}

func runRelay(ctx context.Context, g *guarded, s settings, log *slog.Logger) error {
	if s.keep < 0 {
		return fmt.Errorf("--keep %d: want at least 0", s.keep)
	}
	p, err := partitions(ctx, g.db)
	if err != nil {
		return err
	}
	w, err := worker.Join(ctx, worker.Config{Servers: s.servers, ID: s.id, Logger: log})
	if err != nil {
		return err
	}
	r := &relay{outbox: g, partitions: p, endpoint: strings.TrimSuffix(s.endpoint, "/"), keep: s.keep, log: log}
	plain := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
	r.client = &http.Client{Timeout: 10 * time.Second, Transport: &httpfence.Transport{Base: plain}}
	var options []worker.Option
	if !s.noFence {
		endpoint, err := httpfence.NewGuard(r.endpoint+"/claim", &http.Client{Transport: plain})
		if err != nil {
			return err
		}
		options = append(options, worker.Claim(fence.All(g.fence, endpoint))) // a handler starts when both know its token
	}
	return w.Run(ctx, s.keyspace, r.handle, options...)
}

func runReceive(ctx context.Context, g *guarded, s settings, log *slog.Logger) error {
	if err := create(ctx, g.db, receiverSchema); err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: (&receiver{inbox: g, log: log}).handler(), ReadHeaderTimeout: 5 * time.Second}
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
