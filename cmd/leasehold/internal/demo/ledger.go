package demo

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// Ledger is where orders are relayed to: the resource that the token guards.
// Nothing in its table keeps an order from being written twice, so what keeps
// the ledger whole is the guard alone, and what it lets through can be seen.
//
// Each process has one connection: its handlers queue for it, and the
// processes queue for SQLite's write lock.
type Ledger struct {
	db    *sql.DB
	guard *sqlfence.Fence // nil: writes are not fenced
}

// Order is one row.
type Order struct {
	Partition uint32
	Seq       int64
	Token     uint64
	Worker    string
	Item      string
}

const ledgerSchema = `
CREATE TABLE IF NOT EXISTS orders (
	id        INTEGER PRIMARY KEY, -- in the order of acceptance
	partition INTEGER NOT NULL,
	seq       INTEGER NOT NULL,
	token     INTEGER NOT NULL,
	worker    TEXT    NOT NULL,
	item      TEXT    NOT NULL
);
CREATE INDEX IF NOT EXISTS orders_by_partition ON orders (partition, seq);`

// OpenLedger opens the file, creating it first if need be. Transactions begin
// immediate: they wait for the write lock and then cannot fail for it.
func OpenLedger(ctx context.Context, file string, guarded bool) (*Ledger, error) {
	dsn := (&url.URL{Scheme: "file", Opaque: url.PathEscape(file), RawQuery: url.Values{
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(20000)", "journal_mode(WAL)", "synchronous(NORMAL)"},
	}.Encode()}).String()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	db.SetMaxOpenConns(1)
	l := &Ledger{db: db}
	if _, err := db.ExecContext(ctx, ledgerSchema); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	if guarded {
		l.guard = sqlfence.New(db, sqlfence.SQLite)
		if err := l.guard.Migrate(ctx); err != nil {
			_ = db.Close()
			return nil, fmt.Errorf("create guard of ledger: %w", err)
		}
	}
	return l, nil
}

// Close closes the connection.
func (l *Ledger) Close() error { return l.db.Close() }

// Next is the number of the first order of a partition that is not in the
// ledger. Asked after the claim, nobody older can still add to it.
func (l *Ledger) Next(ctx context.Context, partition uint32) (int64, error) {
	var last int64
	err := l.db.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM orders WHERE partition = ?`, partition).Scan(&last)
	if err != nil {
		return 0, fmt.Errorf("read last order of partition %d: %w", partition, err)
	}
	return last + 1, nil
}

// Append writes one order in a transaction of its own, in which the guard
// looks at the stamp first. A stale one gives an error that matches
// fence.ErrStale, and nothing is written.
func (l *Ledger) Append(ctx context.Context, o Order, stamp fence.Stamp) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin order %d/%d: %w", o.Partition, o.Seq, err)
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing, before it the first error counts
	if l.guard != nil {
		if err := l.guard.Guard(ctx, tx, stamp); err != nil {
			return fmt.Errorf("guard order %d/%d: %w", o.Partition, o.Seq, err)
		}
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO orders (partition, seq, token, worker, item) VALUES (?, ?, ?, ?, ?)`,
		o.Partition, o.Seq, int64(o.Token), o.Worker, o.Item)
	if err != nil {
		return fmt.Errorf("write order %d/%d: %w", o.Partition, o.Seq, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit order %d/%d: %w", o.Partition, o.Seq, err)
	}
	return nil
}

// Lock takes the write lock, so that no process is inside a transaction, and
// returns what lets go of it.
func (l *Ledger) Lock(ctx context.Context) (unlock func() error, err error) {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("lock ledger: %w", err)
	}
	return tx.Rollback, nil
}

// missing counts the orders 1…last of all partitions that are not there.
func (l *Ledger) missing(ctx context.Context, partitions uint32, last int64) (int, error) {
	var there int64
	err := l.db.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT DISTINCT partition, seq FROM orders WHERE seq BETWEEN 1 AND ?)`, last).Scan(&there)
	if err != nil {
		return 0, fmt.Errorf("count orders: %w", err)
	}
	return int(int64(partitions)*last - there), nil
}

// WaitFor returns when every partition has order last, or when ctx ends.
func (l *Ledger) WaitFor(ctx context.Context, partitions uint32, last int64) error {
	for {
		var done int64
		err := l.db.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM orders WHERE seq >= ? GROUP BY partition)`, last).Scan(&done)
		if err == nil && done >= int64(partitions) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for order %d in all partitions (in %d of %d): %w", last, done, partitions, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
