package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// How a relay works.
const (
	batch    = 100                    // events between two notes of progress
	minPause = 20 * time.Millisecond  // between looks at a partition without new events
	maxPause = 500 * time.Millisecond // after many of them, and after errors
)

// relay delivers the events of the partitions that this worker owns.
type relay struct {
	outbox     *guarded
	partitions uint32
	endpoint   string       // without a slash at the end
	client     *http.Client // stamps requests
	keep       int64        // delivered events of a partition that stay in the table
	log        *slog.Logger
}

// event as it is sent.
type event struct {
	Seq     int64           `json:"seq"`
	Key     string          `json:"key"`
	Payload json.RawMessage `json:"payload"`
}

// handle is the worker.Handler. An endpoint or a database in trouble is no
// reason to give the partition to somebody else, who would have the same
// trouble: it tries again while it is the owner. An event that the endpoint
// never takes holds up its partition, and only that one: skipping it would
// break the order.
func (r *relay) handle(ctx context.Context, l *worker.Lease) error {
	if l.Partitions() != r.partitions {
		return fmt.Errorf("keyspace %s has %d partitions and the outbox %d: make them equal", l.Keyspace(), l.Partitions(), r.partitions)
	}
	l.Ready()
	pause := minPause
	for {
		n, err := r.forward(ctx, l)
		switch {
		case errors.Is(err, fence.ErrStale): // there is a newer owner: nothing may be done here any more
			r.log.Warn("refused", "partition", l.Partition(), "token", l.Token(), "cause", err)
			return err
		case err != nil && ctx.Err() == nil:
			r.log.Warn("cannot deliver, trying again", "partition", l.Partition(), "in", pause, "cause", err)
			pause = min(2*pause, maxPause)
		case n > 0:
			pause = minPause
			if !draining(l) {
				continue
			}
		default:
			pause = min(2*pause, maxPause)
		}
		select {
		case <-l.Draining(): // all that was delivered is noted
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func draining(l *worker.Lease) bool {
	select {
	case <-l.Draining():
		return true
	default:
		return false
	}
}

// forward delivers some events in order, and notes how far it got. If the
// process dies in between, the next owner sends those again, under the same
// numbers, and the receiver knows them.
func (r *relay) forward(ctx context.Context, l *worker.Lease) (int, error) {
	events, err := r.pending(ctx, l.Partition())
	if err != nil {
		return 0, err
	}
	delivered := int64(0)
	for _, e := range events {
		if draining(l) {
			break
		}
		if err = r.send(ctx, e); err != nil {
			break
		}
		delivered = e.Seq
	}
	if delivered == 0 {
		return 0, err
	}
	return len(events), errors.Join(err, r.note(ctx, l.Stamp(), delivered))
}

// pending reads the next events of a partition. Only committed ones are
// visible, and publish sees to it that none can appear below them later.
func (r *relay) pending(ctx context.Context, partition uint32) (events []event, err error) {
	rows, err := r.outbox.db.QueryContext(ctx, `
		SELECT seq, key, payload FROM outbox
		WHERE partition_id = $1 AND seq > (SELECT delivered FROM outbox_progress WHERE partition_id = $1)
		ORDER BY seq LIMIT $2`, partition, batch)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var e event
		if err := rows.Scan(&e.Seq, &e.Key, &e.Payload); err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return events, nil
}

// note writes how far the partition has been delivered, and trims the table. A
// stale owner would turn the note back, and the next one would send again what
// has been sent long ago; so the fence is asked in the same transaction.
func (r *relay) note(ctx context.Context, s fence.Stamp, delivered int64) error {
	err := r.outbox.do(ctx, s, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE outbox_progress SET delivered = $2 WHERE partition_id = $1`, s.Partition, delivered)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM outbox WHERE partition_id = $1 AND seq <= $2`, s.Partition, delivered-r.keep)
		return err
	})
	if err != nil {
		return fmt.Errorf("note progress %d of %s: %w", delivered, s.Key(), err)
	}
	return nil
}
