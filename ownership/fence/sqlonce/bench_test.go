package sqlonce_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"
)

// BenchmarkDo measures what a key adds to a transaction that inserts one row:
// plain and keyed take turns in one run, so that the ratio is of one machine
// in one state.
func BenchmarkDo(b *testing.B) {
	for _, d := range dialects {
		b.Run(d.String(), func(b *testing.B) {
			db := fresh(b, d)
			once, fn := db.once(), effect("x")
			var plain, keyed, replay time.Duration
			n := 0
			for b.Loop() {
				plain += timed(b, func(ctx context.Context) error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer tx.Rollback()
					if _, err := fn(ctx, tx); err != nil {
						return err
					}
					return tx.Commit()
				})
				key := fmt.Sprint("k", n)
				n++
				keyed += timed(b, func(ctx context.Context) error {
					_, _, err := once.Do(ctx, key, nil, fn)
					return err
				})
				replay += timed(b, func(ctx context.Context) error {
					_, _, err := once.Do(ctx, key, nil, func(context.Context, *sql.Tx) ([]byte, error) { return nil, errTryAgain })
					return err
				})
			}
			b.ReportMetric(float64(keyed)/float64(plain), "keyed/plain")
			b.ReportMetric(float64(replay)/float64(plain), "replay/plain")
		})
	}
}

func timed(b *testing.B, f func(context.Context) error) time.Duration {
	start := time.Now()
	if err := f(b.Context()); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}
