package raftstore

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// freeAddr is a loopback address that nobody listens on.
func freeAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// realCluster has real sockets, files and syncs.
func realCluster(tb testing.TB, n int) *cluster {
	return clusterAt(tb, n, func(int) string { return freeAddr(tb) }, onDisk, func(_ *server, c *Config) { c.Network = nil })
}

// parallel runs f from callers goroutines until b.N calls are done, and reports
// calls per second and percentiles of their latency.
func parallel(b *testing.B, callers int, f func(caller int) error) {
	b.Helper()
	var n atomic.Int64
	took := make([][]time.Duration, callers)
	b.ResetTimer()
	start := time.Now()
	var wg sync.WaitGroup
	for w := range callers {
		wg.Go(func() {
			for n.Add(1) <= int64(b.N) {
				t := time.Now()
				if err := f(w); err != nil {
					b.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(t))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	if len(all) > 0 {
		b.ReportMetric(float64(len(all))/time.Since(start).Seconds(), "ops/s")
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
	}
}

func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c := realCluster(b, 3)
			defer c.stopAll()
			c.keyspace("orders", 1<<20, testTTL)
			c.session(1, "orders")
			l := c.leader().store
			parallel(b, callers, func(w int) error {
				_, err := l.Propose(context.Background(), nudge())
				return err
			})
		})
	}
}

func BenchmarkKeepAlive(b *testing.B) {
	const sessions = 2000
	c := realCluster(b, 3)
	defer c.stopAll()
	c.keyspace("orders", 8, testTTL)
	for i := range sessions / 100 {
		var cmds []state.Command
		for j := range 100 {
			cmds = append(cmds, openSession(state.SessionID(1+i*100+j), "orders"))
		}
		c.do(cmds...)
	}
	l := c.leader().store
	parallel(b, sessions, func(w int) error {
		_, err := l.KeepAlive(context.Background(), state.SessionID(1+w))
		return err
	})
}

func BenchmarkReadIndex(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c := realCluster(b, 3)
			defer c.stopAll()
			l := c.leader().store
			parallel(b, callers, func(int) error {
				_, err := l.ReadIndex(context.Background())
				return err
			})
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c := realCluster(b, 3)
			defer c.stopAll()
			l := c.leader().store
			parallel(b, callers, func(int) error {
				return l.Read(context.Background(), func(*state.State) {})
			})
		})
	}
}
