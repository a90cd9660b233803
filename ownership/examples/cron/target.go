package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlonce"
)

//go:embed target.sql
var targetSchema string

// target is what a job calls, in the demonstration: it carries out each
// idempotency key once and answers repetitions as it answered the first.
type target struct {
	once *sqlonce.Once
	log  *slog.Logger
}

func newTarget(ctx context.Context, s *store, log *slog.Logger) (*target, error) {
	if err := s.create(ctx, targetSchema); err != nil {
		return nil, err
	}
	t := &target{once: sqlonce.New(s.db, sqlfence.PostgreSQL), log: log}
	return t, t.once.Migrate(ctx)
}

// ServeHTTP takes one tick.
func (t *target) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 64<<10))
	var got tick
	if err != nil || json.Unmarshal(body, &got) != nil || got.Job == "" {
		http.Error(w, "want a tick: job and tick", http.StatusBadRequest)
		return
	}
	answer, replayed, err := t.once.Do(req.Context(), req.Header.Get("Idempotency-Key"), body, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO fired (job, tick) VALUES ($1, $2)`, got.Job, got.Tick)
		return []byte("fired\n"), err
	})
	switch {
	case errors.Is(err, sqlonce.ErrInvalid), errors.Is(err, sqlonce.ErrMismatch):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		t.log.Warn("cannot fire", "key", req.Header.Get("Idempotency-Key"), "cause", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		if replayed {
			t.log.Info("known already", "key", req.Header.Get("Idempotency-Key"))
		}
		_, _ = w.Write(answer) // the caller has gone: it will ask again
	}
}
