package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

// receiver is the endpoint: it accepts each event once, in order, and nothing
// from a relay that has been replaced. The token stops a relay that has been
// replaced and does not know it; the number drops what its successor sends
// again. Neither can do both.
type receiver struct {
	inbox *guarded
	log   *slog.Logger
}

// handler guards the receiver. The gate keeps the highest token of each
// partition in memory and in the database, so a restart forgets nothing. It
// wants this process to be the only receiver; with several, the guard belongs
// into the transaction of each write, as in the relay's note.
func (r *receiver) handler() http.Handler {
	mux := http.NewServeMux()
	events := http.HandlerFunc(r.events)
	if r.inbox.fence == nil {
		mux.Handle("POST /events", events)
		return mux
	}
	gate := fence.NewGate(r.inbox.fence, nil)
	mux.Handle("POST /events", httpfence.Middleware(gate, httpfence.Logger(r.log))(events))
	mux.Handle("POST /claim", httpfence.ClaimHandler(gate, httpfence.Logger(r.log)))
	return mux
}

// gapError says that an event was skipped.
type gapError struct{ got, want int64 }

func (e *gapError) Error() string {
	return fmt.Sprintf("event %d came and %d is missing", e.got, e.want)
}

// events takes one event. 204: it is here, now or since an earlier delivery.
// 422: an event before it is missing. The middleware has answered what is stale.
func (r *receiver) events(w http.ResponseWriter, req *http.Request) {
	s, err := httpfence.ParseStamp(req.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var e event
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<20)).Decode(&e); err != nil || e.Seq < 1 {
		http.Error(w, "want an event with seq ≥ 1, key and payload", http.StatusBadRequest)
		return
	}
	err = r.accept(req.Context(), s, e)
	var gap *gapError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &gap):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	default:
		r.log.Error("cannot accept", "partition", s.Partition, "seq", e.Seq, "cause", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
}

// accept checks the number and stores the event, in one transaction.
func (r *receiver) accept(ctx context.Context, s fence.Stamp, e event) error {
	return transaction(ctx, r.inbox.db, func(ctx context.Context, tx *sql.Tx) error {
		if r.inbox.fence != nil {
			fresh, err := advance(ctx, tx, s.Partition, e.Seq)
			if err != nil || !fresh {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO inbox (partition_id, seq, key, payload, token, owner) VALUES ($1, $2, $3, $4, $5, $6)`,
			s.Partition, e.Seq, e.Key, e.Payload, int64(s.Token), s.Owner)
		return err
	})
}

// advance moves the partition's number to seq. It reports false for an event
// that is here already. The first event of a partition may have any number: the
// receiver may be younger than the outbox.
func advance(ctx context.Context, tx *sql.Tx, partition uint32, seq int64) (fresh bool, err error) {
	var last int64
	err = tx.QueryRowContext(ctx, `
		INSERT INTO inbox_partition (partition_id, last_seq) VALUES ($1, $2 - 1)
		ON CONFLICT (partition_id) DO UPDATE SET last_seq = inbox_partition.last_seq -- to lock the row
		RETURNING last_seq`, partition, seq).Scan(&last)
	switch {
	case err != nil:
		return false, fmt.Errorf("read last number of partition %d: %w", partition, err)
	case seq <= last:
		return false, nil
	case seq > last+1:
		return false, &gapError{got: seq, want: last + 1}
	}
	_, err = tx.ExecContext(ctx, `UPDATE inbox_partition SET last_seq = $2 WHERE partition_id = $1`, partition, seq)
	return err == nil, err
}
