// Command worker is a worker for the tests of package live: it writes to a
// SQLite file behind the guard of its token, counts, and shows its series on
// /metrics. When a lease's context ends under it, it writes once more, as code
// does that does not look: whether that is refused is the guard's business.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// writeEvery is the pause between two writes of a partition.
const writeEvery = 250 * time.Millisecond

func main() {
	servers := flag.String("servers", "", "gRPC addresses, separated by commas")
	id := flag.String("id", "", "worker name")
	keyspace := flag.String("keyspace", "", "keyspace to work on")
	addr := flag.String("http-addr", "", "host:port of /metrics")
	file := flag.String("ledger", "", "file to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *servers, *id, *keyspace, *addr, *file); err != nil {
		slog.Error("worker ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, servers, id, keyspace, addr, file string) error {
	series := metrics.NewWorker()
	reg := prometheus.NewRegistry()
	reg.MustRegister(series, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	go func() { // ends with the process
		err := http.ListenAndServe(addr, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
		slog.Error("metrics end", "error", err)
	}()
	w, err := worker.Join(ctx, worker.Config{Servers: servers, ID: id, Metrics: series, Version: "live"})
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	db, guard, err := open(ctx, file, w)
	if err != nil {
		return err
	}
	defer db.Close()
	go standStill(ctx, db)
	return w.Run(ctx, keyspace, func(ctx context.Context, l *worker.Lease) error {
		l.Ready()
		for {
			select {
			case <-l.Draining():
				return nil
			case <-ctx.Done():
				return errors.Join(context.Cause(ctx), write(context.WithoutCancel(ctx), db, guard, l))
			case <-time.After(writeEvery):
				if err := write(ctx, db, guard, l); err != nil {
					if errors.Is(err, fence.ErrStale) {
						<-ctx.Done() // the guard knows sooner than the worker that the lease has ended
					}
					return err
				}
			}
		}
	}, worker.Claim(guard))
}

// standStill stops the process on SIGUSR1 as SIGSTOP does, but between two
// writes: the file's lock would stand still with it, and others could not claim
// what is theirs by then. SIGCONT lets it go on.
func standStill(ctx context.Context, db *sql.DB) {
	asked, on := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	signal.Notify(on, syscall.SIGCONT)
	for range asked { // ends with the process
		conn, err := db.Conn(ctx) // the only one
		if err != nil {
			return
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-on // this thread may go on for a while before the process stops: nobody writes until it is over
		_ = conn.Close()
	}
}

// open opens the file that all workers write to.
func open(ctx context.Context, file string, w *worker.Worker) (*sql.DB, *sqlfence.Fence, error) {
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: url.PathEscape(file), RawQuery: url.Values{
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(20000)", "journal_mode(WAL)", "synchronous(OFF)"},
	}.Encode()}).String())
	if err != nil {
		return nil, nil, fmt.Errorf("open ledger: %w", err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS writes (partition INTEGER PRIMARY KEY, n INTEGER NOT NULL)`); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("create ledger: %w", err), db.Close())
	}
	guard := sqlfence.New(db, sqlfence.SQLite, sqlfence.WithCounter(w.Fencing()))
	if err := guard.Migrate(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("create guard: %w", err), db.Close())
	}
	return db, guard, nil
}

// write is one write behind the guard.
func write(ctx context.Context, db *sql.DB, guard *sqlfence.Fence, l *worker.Lease) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing, before it the first error counts
	if err := guard.Guard(ctx, tx, l.Stamp()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO writes VALUES (?, 1) ON CONFLICT (partition) DO UPDATE SET n = n + 1`, l.Partition()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return tx.Commit()
}
