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

// BenchmarkExplain65536x1000 explains one partition after another of a plan, and
// with the points of its ring worked out anew, as the first to ask does.
func BenchmarkExplain65536x1000(b *testing.B) {
	const partitions, workers = 65536, 1000
	r, err := ring.New(names(workers), partitions)
	if err != nil {
		b.Fatal(err)
	}
	w := newWorld(partitions, workers)
	w.wish(r)
	w.settle()
	in := w.input()
	plan := &Planned{Input: in, Output: Plan(in), Ring: r}
	p := uint32(0)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			fresh := &Planned{Input: in, Output: plan.Output, Ring: r}
			Explain(fresh, 0, 1, in.Now)
		}
	})
	b.Run("next", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if x := Explain(plan, p%partitions, in.Workers[in.Owners[p%partitions]].Session, in.Now); x.Owner < 0 {
				b.Fatal("no owner")
			}
			p++
		}
	})
}

// BenchmarkSimulate tells what one more worker would move.
func BenchmarkSimulate(b *testing.B) {
	for _, c := range []struct{ partitions, workers int }{{256, 10}, {4096, 100}, {65536, 10}, {65536, 100}} {
		b.Run(fmt.Sprintf("P=%d/N=%d", c.partitions, c.workers), func(b *testing.B) {
			r, err := ring.New(names(c.workers), uint32(c.partitions))
			if err != nil {
				b.Fatal(err)
			}
			w := newWorld(c.partitions, c.workers)
			w.wish(r)
			w.settle()
			in := w.input()
			for b.Loop() {
				res, err := Simulate(b.Context(), in, Change{Add: []Worker{{ID: "x"}}})
				if err != nil || len(res.Moves) == 0 {
					b.Fatalf("%v, %v", res, err)
				}
			}
		})
	}
}
