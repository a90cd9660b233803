package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/leasehold-dev/leasehold/ring/keyrange"
)

// partitions reads how many partitions the outbox was made with.
func partitions(ctx context.Context, db *sql.DB) (uint32, error) {
	var n uint32
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM outbox_partition`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count partitions of the outbox: %w", err)
	}
	if n == 0 {
		return 0, fmt.Errorf("the outbox has no partitions: run outbox migrate first")
	}
	return n, nil
}

// publish writes an event in the transaction that makes the change the event
// tells of: both happen or neither. Call it after the change, as late in the
// transaction as possible, and if there are several events, in the order of
// their partitions.
//
// The number must not come from a sequence. A sequence hands out 5 and 6, the
// transaction of 6 may commit first, the relay delivers 6, notes "up to 6 done",
// and 5 is never seen. Here the row of the partition stays locked from the
// number to the end of the transaction, so numbers become visible in order and
// without gaps, also after a rollback. The price: transactions that publish to
// one partition commit one after the other. Partitions are how that scales.
func publish(ctx context.Context, tx *sql.Tx, partitions uint32, key string, payload any) error {
	body, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("encode event of %q: %w", key, err)
	}
	result, err := tx.ExecContext(ctx, `
		WITH next AS (
		  UPDATE outbox_partition SET last_seq = last_seq + 1 WHERE partition_id = $1 RETURNING last_seq
		)
		INSERT INTO outbox (partition_id, seq, key, payload) SELECT $1, last_seq, $2, $3 FROM next`,
		keyrange.Partition([]byte(key), partitions), key, body)
	if err != nil {
		return fmt.Errorf("publish event of %q: %w", key, err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("publish event of %q: %d rows written, want 1: is the number of partitions %d right? %w", key, n, partitions, err)
	}
	return nil
}
