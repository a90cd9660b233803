package ring

import (
	"fmt"
	"testing"
)

func memberNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("worker-%d", i)
	}
	return names
}

func BenchmarkNew(b *testing.B) {
	for _, c := range []struct{ partitions, members int }{{256, 5}, {100_000, 100}, {65_536, 1000}} {
		b.Run(fmt.Sprintf("P=%d/N=%d", c.partitions, c.members), func(b *testing.B) {
			names := memberNames(c.members)
			for b.Loop() {
				if _, err := New(names, uint32(c.partitions)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// One worker joins, then leaves again.
func BenchmarkCacheStep(b *testing.B) {
	for _, c := range []struct{ partitions, members int }{{100_000, 100}, {65_536, 1000}} {
		b.Run(fmt.Sprintf("P=%d/N=%d", c.partitions, c.members), func(b *testing.B) {
			var cache Cache
			names := memberNames(c.members + 1)
			for i := 0; b.Loop(); i++ {
				if _, err := cache.Get(names[:c.members+i%2], uint32(c.partitions)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
