package worker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// A worker in twenty lines. Two of its partitions are never worked on by two
// processes at once; guard refuses what a paused process writes too late.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	var guard fence.Guard // of the resource: see ownership/fence/sqlfence
	jobs := make(chan string)

	w, err := worker.Join(ctx, worker.Config{Servers: "10.0.0.1:7400,10.0.0.2:7400", ID: "w1"})
	if err != nil {
		log.Fatal(err)
	}
	err = w.Run(ctx, "orders", func(ctx context.Context, l *worker.Lease) error {
		for {
			select {
			case <-l.Draining(): // planned move: still the owner, flush now
				return flush(ctx, l.Token())
			case <-ctx.Done(): // not the owner any more
				return context.Cause(ctx)
			case job := <-jobs:
				if err := write(ctx, job, l.Token()); err != nil {
					return err
				}
			}
		}
	}, worker.Claim(guard)) // the library claims, in batches, before a handler starts
	if err != nil {
		log.Fatal(err)
	}
}

// A worker of servers with TLS: it needs the certificate of their authority, and a
// certificate or a credential of its own. All of these files may be renewed while
// it runs.
func ExampleJoin_secured() {
	ctx := context.Background()
	tls, err := pki.Client(pki.Files{CA: "/etc/leasehold/ca.pem"}) // Cert and Key: instead of a credential
	if err != nil {
		log.Fatal(err)
	}
	credential, err := client.CredentialFile("/run/secrets/leasehold-token")
	if err != nil {
		log.Fatal(err)
	}
	w, err := worker.Join(ctx, worker.Config{Servers: "10.0.0.1:7400,10.0.0.2:7400", ID: "w1", TLS: tls, Credential: credential})
	if errors.Is(err, worker.ErrDenied) {
		log.Fatal("not let in: ", err) // trying again does not help
	}
	if err != nil {
		log.Fatal(err)
	}
	err = w.Run(ctx, "orders", func(ctx context.Context, l *worker.Lease) error {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		log.Fatal(err) // ErrDenied too: the credential was revoked, or has run out
	}
}

// A job that only one process at a time may do: a keyspace of one partition.
func ExampleWorker_Hold() {
	ctx := context.Background()
	w, err := worker.Join(ctx, worker.Config{Servers: "10.0.0.1:7400"})
	if err != nil {
		log.Fatal(err)
	}
	err = w.Hold(ctx, "nightly-report", func(ctx context.Context, l *worker.Lease) error {
		fmt.Println("the only one, with token", l.Token())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Code far below the handler finds the stamp for its writes in the context.
func ExampleTokenFrom() {
	insert := func(ctx context.Context, tx *sql.Tx, order string) error {
		stamp, ok := worker.TokenFrom(ctx)
		if !ok {
			return fmt.Errorf("insert order: not called by a handler")
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO orders(body, token) VALUES (?, ?)", order, uint64(stamp.Token))
		return err
	}
	_ = insert
}

func flush(context.Context, fence.Token) error         { return nil }
func write(context.Context, string, fence.Token) error { return nil }
