package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// tick is a decided tick, as it is posted to the target.
type tick struct {
	Job  string    `json:"job"`
	Tick time.Time `json:"tick"`

	target string
}

// key names the tick for ever: the target takes each key once, so that a tick
// may be posted again when it is not known whether it arrived.
func (t tick) key() string { return t.Job + "@" + t.Tick.UTC().Format(time.RFC3339) }

// undelivered returns the first tick of each job that is not dispatched.
func (s *store) undelivered(ctx context.Context, in share) (ticks []tick, err error) {
	rows, err := s.db.QueryContext(ctx, `
		SELECT DISTINCT ON (t.job) t.job, t.tick, j.target FROM cron_tick AS t JOIN cron_job AS j ON j.name = t.job
		WHERE t.state = 'due' AND j.hash BETWEEN $1 AND $2 ORDER BY t.job, t.tick`, in.first, in.last)
	if err != nil {
		return nil, fmt.Errorf("read ticks: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var t tick
		if err := rows.Scan(&t.Job, &t.Tick, &t.target); err != nil {
			return nil, fmt.Errorf("read ticks: %w", err)
		}
		ticks = append(ticks, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read ticks: %w", err)
	}
	return ticks, nil
}

// dispatch posts one tick of each job, several at a time, and reports whether
// there may be more. A slow target holds up the others of its partition by the
// client's timeout at most.
func (r *runner) dispatch(ctx context.Context, stamp fence.Stamp, in share) (more bool, err error) {
	ticks, err := r.store.undelivered(ctx, in)
	if err != nil {
		return false, err
	}
	errs := make([]error, len(ticks))
	var g errgroup.Group
	g.SetLimit(8)
	for i, t := range ticks {
		g.Go(func() error {
			if err := r.fire(ctx, stamp, t); err != nil {
				errs[i] = fmt.Errorf("fire %s: %w", t.key(), err)
			}
			return nil // the others go on
		})
	}
	_ = g.Wait() // nil
	return len(ticks) > 0, errors.Join(errs...)
}

// fire posts one tick and notes it. A worker that dies in between leaves it to
// its successor, whose post the target knows.
func (r *runner) fire(ctx context.Context, stamp fence.Stamp, t tick) error {
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.target, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", t.key())
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // also so that the connection can be used again
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer)))
	}
	return r.store.fence.Do(ctx, stamp, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE cron_tick SET state = 'done', token = $3 WHERE job = $1 AND tick = $2`, t.Job, t.Tick, int64(stamp.Token)); err != nil {
			return fmt.Errorf("note as done: %w", err)
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM cron_tick WHERE job = $1 AND state = 'done' AND tick < cron_now() - make_interval(secs => $2)`, t.Job, r.keep.Seconds())
		return err
	})
}
