package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// share is the jobs of one partition, as a range of hashes.
type share struct{ first, last int64 }

// wait returns how long it is until the next tick of the share, by the
// database's clock: 0 or less if one is due or a job is new.
func (s *store) wait(ctx context.Context, in share) (time.Duration, error) {
	var seconds float64
	err := s.db.QueryRowContext(ctx, `
		SELECT coalesce(extract(epoch FROM min(coalesce(next_tick, now)) - max(now)), 3600)
		FROM cron_job, cron_now() AS now WHERE hash BETWEEN $1 AND $2`, in.first, in.last).Scan(&seconds)
	if err != nil {
		return 0, fmt.Errorf("look for the next tick: %w", err)
	}
	return time.Duration(min(seconds, 3600) * float64(time.Second)), nil
}

// decide writes the ticks that are due, and when each job is looked at next. All
// of it is one transaction under the guard: a worker that has been replaced
// decides nothing. Should next_tick ever be set back, by a restored table or a
// hand, the primary key keeps what was decided before from firing again.
func (r *runner) decide(ctx context.Context, stamp fence.Stamp, in share) (fired int, err error) {
	err = r.store.fence.Do(ctx, stamp, func(ctx context.Context, tx *sql.Tx) error {
		jobs, now, err := dueJobs(ctx, tx, in)
		if err != nil {
			return fmt.Errorf("read jobs: %w", err)
		}
		for _, j := range jobs {
			n, err := r.decideJob(ctx, tx, j, now, stamp.Token)
			if err != nil {
				return fmt.Errorf("decide job %q: %w", j.name, err)
			}
			fired += n
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("decide ticks of %s: %w", stamp.Key(), err)
	}
	return fired, nil
}

func dueJobs(ctx context.Context, tx *sql.Tx, in share) (jobs []job, now time.Time, err error) {
	if err := tx.QueryRowContext(ctx, `SELECT cron_now()`).Scan(&now); err != nil {
		return nil, now, err
	}
	rows, err := tx.QueryContext(ctx, `
		SELECT name, schedule, zone, missed, max_missed, next_tick FROM cron_job
		WHERE hash BETWEEN $1 AND $2 AND (next_tick IS NULL OR next_tick <= $3)
		ORDER BY name FOR UPDATE`, in.first, in.last, now)
	if err != nil {
		return nil, now, err
	}
	defer rows.Close()
	for rows.Next() {
		var j job
		if err := rows.Scan(&j.name, &j.schedule, &j.zone, &j.policy.missed, &j.policy.max, &j.next); err != nil {
			return nil, now, err
		}
		jobs = append(jobs, j)
	}
	return jobs, now, rows.Err()
}

func (r *runner) decideJob(ctx context.Context, tx *sql.Tx, j job, now time.Time, token fence.Token) (fired int, err error) {
	schedule, err := parse(j.schedule, j.zone)
	if err != nil { // not by add; it must not stop the others
		r.log.Error("job cannot run, looking again in an hour", "job", j.name, "cause", err)
		return 0, setNext(ctx, tx, j.name, now.Add(time.Hour))
	}
	if j.next != nil {
		j.policy.grace = r.grace
		for _, tick := range j.policy.due(schedule, *j.next, now) {
			result, err := tx.ExecContext(ctx, `INSERT INTO cron_tick (job, tick, token) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
				j.name, tick, int64(token))
			if err != nil {
				return 0, err
			}
			n, err := result.RowsAffected()
			if err != nil {
				return 0, err
			}
			fired += int(n)
		}
	}
	return fired, setNext(ctx, tx, j.name, schedule.Next(now))
}

func setNext(ctx context.Context, tx *sql.Tx, job string, next time.Time) error {
	_, err := tx.ExecContext(ctx, `UPDATE cron_job SET next_tick = $2 WHERE name = $1`, job, next)
	return err
}
