package controller

import (
	"fmt"
	"testing"

	"github.com/leasehold-dev/leasehold/ring"
)

// BenchmarkPlan65536x1000 plans a keyspace of 65,536 partitions for 1,000
// workers with the ring given: all at once, in peace, and after one of them
// has left.
func BenchmarkPlan65536x1000(b *testing.B) {
	const partitions, workers = 65536, 1000
	r, err := ring.New(names(workers), partitions)
	if err != nil {
		b.Fatal(err)
	}
	w := newWorld(partitions, workers)
	w.wish(r)
	fresh := w.input()
	w.settle()
	steady := w.input()
	w.workers[17].Standing = Leaving
	leaving := w.input()
	noRing := fresh
	noRing.Ring = nil
	for _, c := range []struct {
		name string
		in   Input
		want int
	}{{"fresh", fresh, partitions}, {"fresh without ring", noRing, partitions}, {"steady", steady, 0}, {"leave", leaving, -1}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out := Plan(c.in)
				if n := len(out.Grants) + len(out.Drains); c.want >= 0 && n != c.want || n == 0 && c.want < 0 {
					b.Fatalf("planned %d moves", n)
				}
			}
		})
	}
}

func names(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("w%04d", i)
	}
	return s
}
