package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/fencetest"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// Random interleavings of old and new owners on each database, with
// pauses, retries and crashes (60; -fencetest.trials=1000 for more). Without
// the guard the same trials must show stale writes.
func TestTrials(t *testing.T) {
	eachOf(t, dialects[:3], func(t *testing.T, d sqlfence.Dialect) {
		t.Parallel()
		w := newWorld(t, d, 20, sqlfence.WithTTL(5*time.Second))
		id := map[sqlfence.Dialect]string{sqlfence.SQLite: "INTEGER PRIMARY KEY", sqlfence.PostgreSQL: "BIGSERIAL PRIMARY KEY", sqlfence.MariaDB: "BIGINT AUTO_INCREMENT PRIMARY KEY"}[d]
		w.exec(t, `CREATE TABLE trials (id `+id+`, trial VARCHAR(40), partition_id BIGINT, token BIGINT, owner VARCHAR(40), applied BIGINT)`)
		w.exec(t, `CREATE INDEX by_trial ON trials (trial)`)
		w.exec(t, `CREATE TABLE clock (trial VARCHAR(40) PRIMARY KEY, n BIGINT)`)
		run := func(guarded bool, trials int) fencetest.Report {
			parallel := 4
			if d == sqlfence.SQLite {
				parallel = 1 // it has one lock for all
			}
			return fencetest.Run(t, fencetest.Options{Trials: trials, Parallel: parallel}, func(trial int) (fencetest.Resource, error) {
				r := resource{w, fmt.Sprint("trial ", guarded, trial), guarded}
				_, err := w.db.Exec(w.sql(`INSERT INTO clock VALUES (?, 0)`), r.name)
				return r, err
			})
		}
		if r := run(true, 60); !r.OK() || r.Accepted == 0 || r.Refused == 0 || r.Crashed == 0 {
			t.Errorf("%s\n%s", r, r.First)
		}
		if r := run(false, 25); r.Stale == 0 {
			t.Errorf("without the guard nothing stale was written, so the trials prove nothing: %s", r)
		}
	})
}

// resource is one trial.
type resource struct {
	*world
	name    string
	guarded bool
}

func (r resource) own(s fence.Stamp) fence.Stamp {
	s.Keyspace = r.name
	return s
}

func (r resource) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if !r.guarded {
		return nil
	}
	own := make([]fence.Stamp, len(stamps))
	for i, s := range stamps {
		own[i] = r.own(s)
	}
	return r.f.Claim(ctx, own)
}

func (r resource) Begin(ctx context.Context, s fence.Stamp) (fencetest.Write, error) {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	self := map[sqlfence.Dialect]string{sqlfence.SQLite: `SELECT 0`, sqlfence.PostgreSQL: `SELECT pg_backend_pid()`, sqlfence.MariaDB: `SELECT CONNECTION_ID()`}[r.dialect]
	p := pending{r: r, tx: tx, s: s}
	if r.guarded {
		err = r.f.Guard(ctx, tx, r.own(s))
	}
	if err == nil {
		err = tx.QueryRowContext(ctx, self).Scan(&p.pid)
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, r.sql(`INSERT INTO trials (trial, partition_id, token, owner, applied) VALUES (?, ?, ?, ?, 0)`), r.name, int64(s.Partition), int64(s.Token), s.Owner)
	}
	if err != nil {
		tx.Rollback()
		return nil, err
	}
	return p, nil
}

func (r resource) Accepted(ctx context.Context) ([]fence.Stamp, error) {
	rows, err := r.db.QueryContext(ctx, r.sql(`SELECT partition_id, token, owner FROM trials WHERE trial = ? ORDER BY applied`), r.name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []fence.Stamp
	for rows.Next() {
		s := fence.Stamp{Keyspace: "trial"}
		if err := rows.Scan(&s.Partition, &s.Token, &s.Owner); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

type pending struct {
	r   resource
	tx  *sql.Tx
	s   fence.Stamp
	pid int64
}

// Commit numbers the write under a lock that it keeps to its end, so that the
// numbers are in the order of the commits.
func (p pending) Commit(ctx context.Context) error {
	defer p.tx.Rollback()
	for _, q := range []string{
		`UPDATE clock SET n = n + 1 WHERE trial = ?`,
		`UPDATE trials SET applied = (SELECT n FROM clock WHERE clock.trial = trials.trial) WHERE trial = ? AND applied = 0`,
	} {
		if _, err := p.tx.ExecContext(ctx, p.r.sql(q), p.r.name); err != nil {
			return err
		}
	}
	return p.tx.Commit()
}

// Crash ends the writer's session; SQLite has none, a dead process's
// transaction is as if it had been rolled back.
func (p pending) Crash() {
	if kill := map[sqlfence.Dialect]string{sqlfence.PostgreSQL: `SELECT pg_terminate_backend(%d)`, sqlfence.MariaDB: `KILL %d`}[p.r.dialect]; kill != "" {
		p.r.db.Exec(fmt.Sprintf(kill, p.pid))
	}
	p.tx.Rollback()
}
