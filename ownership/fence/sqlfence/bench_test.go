package sqlfence_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// BenchmarkGuard compares BEGIN; INSERT; COMMIT with the same and a Guard after
// BEGIN, where commits reach the disk. Both run by turns, a few writes of every
// writer at a time, so that a busy machine is as unfair to one as to the other:
// overhead-% is the median over the turns of what the guard adds. Each writer
// has a partition of its own, or they all write one.
func BenchmarkGuard(b *testing.B) {
	for _, c := range []struct {
		d       sqlfence.Dialect
		writers int
		variant string
	}{
		{sqlfence.PostgreSQL, 1, ""},
		{sqlfence.PostgreSQL, 32, ""},
		{sqlfence.PostgreSQL, 32, onePartition},
		{sqlfence.PostgreSQL, 1, oneStatement},
		{sqlfence.PostgreSQL, 32, oneStatement},
		{sqlfence.MariaDB, 1, ""},
		{sqlfence.MariaDB, 32, ""},
		{sqlfence.SQLite, 1, ""},
		{sqlfence.SQLite, 32, ""},
	} {
		b.Run(fmt.Sprintf("%s/writers=%d%s", c.d, c.writers, c.variant), func(b *testing.B) {
			benchmarkGuard(b, c.d, c.writers, c.variant)
		})
	}
}

const (
	onePartition = ",one-partition"
	// oneStatement is the form of sql/postgresql-write.sql that locks the fence
	// row in the statement that writes, against the bare statement: no
	// transaction is begun for either.
	oneStatement = ",one-statement"
)

func benchmarkGuard(b *testing.B, d sqlfence.Dialect, writers int, variant string) {
	w := newWorld(b, d, writers)
	switch d {
	case sqlfence.SQLite:
		w.dsn = strings.Replace(w.dsn, "synchronous%28OFF%29", "synchronous%28FULL%29", 1)
	case sqlfence.PostgreSQL:
		w.base = w.with("synchronous_commit", "on")
	case sqlfence.MariaDB:
		outer := w
		outer.exec(b, `SET GLOBAL innodb_flush_log_at_trx_commit = 1`)
		b.Cleanup(func() { outer.exec(b, `SET GLOBAL innodb_flush_log_at_trx_commit = 2`) })
		w.base = w.with("interpolateParams", "true")
	}
	w = w.other(b, writers)
	stamps := make([]fence.Stamp, writers)
	for i := range stamps {
		stamps[i] = at(uint32(i), fence.Token(100+i), "a")
		if variant == onePartition {
			stamps[i] = at(0, 100, "a")
		}
	}
	w.claim(b, stamps...)
	unguarded := func(ctx context.Context, s fence.Stamp) error {
		tx, err := w.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := w.insert(ctx, tx, s); err != nil {
			return err
		}
		return tx.Commit()
	}
	guarded := w.write
	if variant == oneStatement {
		const insert = `INSERT INTO writes (partition_id, token, owner) `
		unguarded = func(ctx context.Context, s fence.Stamp) error {
			_, err := w.db.ExecContext(ctx, insert+`VALUES ($1, $2, $3)`, s.Partition, int64(s.Token), s.Owner)
			return err
		}
		guarded = func(ctx context.Context, s fence.Stamp) error {
			res, err := w.db.ExecContext(ctx, `WITH fence AS MATERIALIZED (
  SELECT 1 FROM leasehold_fence WHERE keyspace = $4 AND partition_id = $1 AND token = $2 AND owner = $3 FOR SHARE
) `+insert+`SELECT $1::bigint, $2::bigint, $3::text FROM fence`, s.Partition, int64(s.Token), s.Owner, s.Keyspace)
			if err != nil {
				return err
			}
			return sqlfence.Applied(res, s)
		}
	}
	const each = 8 // writes of one writer in a turn
	turn := func(write func(context.Context, fence.Stamp) error) time.Duration {
		var wg sync.WaitGroup
		begun := time.Now()
		for _, s := range stamps {
			wg.Go(func() {
				for range each {
					if err := write(b.Context(), s); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return time.Since(begun)
	}
	turn(unguarded)
	turn(guarded)
	var plains, guardeds, ratios []float64
	b.ResetTimer()
	for n := 0; n < b.N; n += each * writers {
		var p, g time.Duration
		if n/(each*writers)%2 == 0 {
			p, g = turn(unguarded), turn(guarded)
		} else {
			g, p = turn(guarded), turn(unguarded)
		}
		plains, guardeds = append(plains, p.Seconds()), append(guardeds, g.Seconds())
		ratios = append(ratios, g.Seconds()/p.Seconds())
	}
	b.StopTimer()
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	b.ReportMetric(100*(median(ratios)-1), "overhead-%")
	b.ReportMetric(float64(each*writers)/median(plains), "plain/s")
	b.ReportMetric(float64(each*writers)/median(guardeds), "guarded/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkClaim claims 10,000 partitions, for the first time and over an
// owner; commits reach the disk.
func BenchmarkClaim(b *testing.B) {
	for _, d := range dialects[:3] {
		b.Run(d.String(), func(b *testing.B) {
			w := newWorld(b, d, 2)
			if d == sqlfence.PostgreSQL {
				w.base = w.with("synchronous_commit", "on")
				w = w.other(b, 2)
			}
			token := fence.Token(0)
			for b.Loop() {
				token++
				stamps := make([]fence.Stamp, 10_000)
				for i := range stamps {
					stamps[i] = at(uint32(i), token, "a")
				}
				w.claim(b, stamps...)
			}
		})
	}
}
