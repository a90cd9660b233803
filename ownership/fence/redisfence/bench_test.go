package redisfence_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

// BenchmarkOverhead compares a guarded write with the same write without the
// guard, SET of 100 bytes, in turns within one run. The server writes an
// append-only file and syncs it every second, as is usual; with "always", after
// every write. ratio is guarded time over plain time, 1 is no overhead; inline
// is the same for WithoutGoroutine.
func BenchmarkOverhead(b *testing.B) {
	for _, sync := range []string{"everysec", "always"} {
		for _, writers := range []int{1, 32} {
			b.Run(fmt.Sprintf("appendfsync=%s/writers=%d", sync, writers), func(b *testing.B) {
				server := dbtest.StartRedis(b, "--appendonly", "yes", "--appendfsync", sync)
				overhead(b, connect(b, server.Addr()), writers)
			})
		}
	}
}

func overhead(b *testing.B, c *redis.Client, writers int) {
	f, inline := redisfence.New(c), redisfence.New(c, redisfence.WithoutGoroutine())
	ctx := b.Context() // one that can end, as a handler's
	value := strings.Repeat("x", 100)
	stamps := make([]fence.Stamp, writers)
	for i := range stamps {
		stamps[i] = at(uint32(i), 33, "a")
	}
	if err := f.Claim(ctx, stamps); err != nil {
		b.Fatal(err)
	}
	plain := func(s fence.Stamp) error {
		return c.Set(ctx, string(redisfence.Under(s.Key(), "v")), value, 0).Err()
	}
	guarded := func(f *redisfence.Fence) func(fence.Stamp) error {
		return func(s fence.Stamp) error {
			_, err := f.Do(ctx, s, redisfence.Command("SET", redisfence.Under(s.Key(), "v"), value))
			return err
		}
	}
	const block = 50 // writes of each writer before the other kind's turn
	run := func(write func(fence.Stamp) error) time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		for _, s := range stamps {
			wg.Go(func() {
				for range block {
					if err := write(s); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	kinds := []func(fence.Stamp) error{plain, guarded(f), guarded(inline)}
	spent := make([]time.Duration, len(kinds))
	for _, k := range kinds {
		run(k) // connections are made
	}
	n := 0
	for b.Loop() {
		for i := range kinds {
			k := (i + n) % len(kinds)
			spent[k] += run(kinds[k])
		}
		n++
	}
	writes := float64(n * block * writers)
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
	b.ReportMetric(float64(spent[2])/float64(spent[0]), "inline-ratio")
	b.ReportMetric(float64(spent[0].Microseconds())/writes, "plain-µs/write")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkClaim10000 is a worker that takes over 10,000 partitions.
func BenchmarkClaim10000(b *testing.B) {
	f, _ := newFence(b)
	stamps := make([]fence.Stamp, 10_000)
	token := fence.Token(0)
	for b.Loop() {
		token++
		for i := range stamps {
			stamps[i] = at(uint32(i), token, "a")
		}
		if err := f.Claim(context.Background(), stamps); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/claim")
}
