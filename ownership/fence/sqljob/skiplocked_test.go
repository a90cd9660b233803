package sqljob_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// takeOne is the queue that needs nothing of ours: lock a free row, work, and
// delete it, in one transaction. before is called before the commit.
func takeOne(ctx context.Context, db *sql.DB, before func(*sql.Tx)) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var id int64
	if err := tx.QueryRowContext(ctx, `SELECT id FROM simple ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED`).Scan(&id); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects VALUES (%d, 0)", id)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM simple WHERE id = %d", id)); err != nil {
		return err
	}
	before(tx)
	return tx.Commit()
}

// What ALTERNATIVES.md says of SELECT … FOR UPDATE SKIP LOCKED alone: each row
// once, nobody waits for a busy row, and a crash frees it.
func TestSkipLockedAlone(t *testing.T) {
	for _, d := range []sqlfence.Dialect{sqlfence.PostgreSQL, sqlfence.MariaDB} {
		t.Run(d.String(), func(t *testing.T) {
			db := fresh(t, d)
			db.exec(t, `CREATE TABLE simple (id BIGINT PRIMARY KEY)`)
			const jobs = 30
			for id := range jobs {
				db.exec(t, fmt.Sprintf("INSERT INTO simple VALUES (%d)", id))
			}
			err := takeOne(t.Context(), db.DB, func(tx *sql.Tx) {
				if err := takeOne(t.Context(), db.DB, func(*sql.Tx) {}); err != nil {
					t.Errorf("beside a busy row: %v", err)
				}
				db.terminate(t, tx)
			})
			if err == nil {
				t.Fatal("the commit succeeded without its connection")
			}
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						switch err := takeOne(t.Context(), db.DB, func(*sql.Tx) {}); {
						case errors.Is(err, sql.ErrNoRows):
							return
						case err != nil && serverSays(err) == "":
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			// The killed one's row is free when the server has noticed.
			eventually(t, func() bool {
				_ = takeOne(t.Context(), db.DB, func(*sql.Tx) {})
				return db.count(t, "simple") == 0
			})
			if n, once := db.count(t, "effects"), db.count(t, "(SELECT job FROM effects GROUP BY job HAVING count(*) = 1) AS once"); n != jobs || once != jobs {
				t.Errorf("%d effects, %d jobs done once; want %d", n, once, jobs)
			}
		})
	}
}
