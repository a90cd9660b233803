package worker_test

import (
	"context"
	"database/sql"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// The worker of the README, between the marks, as it is compiled. A test of
// cmd/leasehold holds the two together.
func relayOrders(ctx context.Context, db *sql.DB, next func(*worker.Lease) <-chan order) error {
	// README
	guard := sqlfence.New(db, sqlfence.SQLite) // remembers the highest token of each partition, beside your tables
	w, err := worker.Join(ctx, worker.Config{Servers: "127.0.0.1:7400", ID: "w1"})
	if err != nil {
		return err
	}
	return w.Run(ctx, "orders", func(ctx context.Context, l *worker.Lease) error { // once per partition that is yours
		for {
			select {
			case <-l.Draining(): // a planned move: still the owner, finish
				return nil
			case <-ctx.Done(): // not the owner any more
				return context.Cause(ctx)
			case o := <-next(l):
				if err := inTx(ctx, db, func(tx *sql.Tx) error {
					if err := guard.Guard(ctx, tx, l.Stamp()); err != nil {
						return err // somebody newer has been here: nothing is written
					}
					return o.save(ctx, tx)
				}); err != nil {
					return err
				}
			}
		}
	}, worker.Claim(guard)) // the database has seen the token before the handler starts
	// README end
}

type order struct{ body string }

func (o order) save(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO orders(body) VALUES (?)", o.body)
	return err
}

func inTx(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

var _ = relayOrders
