package sqljob_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// BenchmarkClaimDone claims jobs in batches of 100 and does each in a
// transaction with one insert beside its Done. plain is the same insert with an
// update by id alone, so that the ratio says what tokens and claims cost.
func BenchmarkClaimDone(b *testing.B) {
	const batch = 100
	for _, d := range dialects {
		b.Run(d.String(), func(b *testing.B) {
			db := fresh(b, d)
			q := db.queue(b)
			s := at(1, "w")
			var claiming, doing, plain time.Duration
			jobs := 0
			for b.Loop() {
				db.exec(b, "INSERT INTO leasehold_job (keyspace, partition_id) VALUES ('mails', 1)"+strings.Repeat(", ('mails', 1)", batch-1))
				start := time.Now()
				ids := claim(b, q, s, batch)
				claiming += time.Since(start)
				if len(ids) != batch {
					b.Fatalf("claimed %d", len(ids))
				}
				for _, id := range ids {
					start = time.Now()
					if err := run(b.Context(), db.DB, q, s, id); err != nil {
						b.Fatal(err)
					}
					doing += time.Since(start)
					start = time.Now()
					if err := naive(b, db, s, id); err != nil {
						b.Fatal(err)
					}
					plain += time.Since(start)
				}
				jobs += batch
			}
			b.ReportMetric(float64(jobs)/claiming.Seconds(), "claims/s")
			b.ReportMetric(float64(jobs)/(claiming+doing).Seconds(), "jobs/s")
			b.ReportMetric(float64(claiming+doing)/float64(plain), "job/plain")
		})
	}
}

func naive(b *testing.B, db database, s fence.Stamp, id int64) error {
	tx, err := db.BeginTx(b.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Exec(fmt.Sprintf("INSERT INTO effects VALUES (%d, %d)", id, s.Token)); err != nil {
		return err
	}
	if _, err := tx.Exec(fmt.Sprintf("UPDATE leasehold_job SET state = 'done' WHERE id = %d", id)); err != nil {
		return err
	}
	return tx.Commit()
}
