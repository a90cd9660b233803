package etcdapi

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// parallel runs do n times by some callers.
func parallel(b *testing.B, callers int, do func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	b.ResetTimer()
	for range callers {
		group.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				do(int(i))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// Puts without a client's connection: at the leader, and handed on by a follower.
// The log is in memory, so that the difference is the relay.
func BenchmarkPut(b *testing.B) {
	c := startCluster(b, 3, options{})
	for where, s := range map[string]*testServer{"leader": c.leader(b), "follower": c.follower(b)} {
		k := &kv{API: s.api}
		for _, callers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", where, callers), func(b *testing.B) {
				ctx := access.NewContext(b.Context(), access.Anybody())
				parallel(b, callers, func(i int) {
					if _, err := k.Put(ctx, &pb.PutRequest{Key: fmt.Append(nil, i%1000), Value: []byte("value")}); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}

func BenchmarkRead(b *testing.B) {
	c := startCluster(b, 3, options{})
	put(b, c.leader(b).kv(), "k", "v")
	for where, s := range map[string]*testServer{"leader": c.leader(b), "follower": c.follower(b)} {
		for _, callers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", where, callers), func(b *testing.B) {
				ctx := b.Context()
				parallel(b, callers, func(int) {
					if err := s.api.read(ctx, func(*state.State) {}); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}
