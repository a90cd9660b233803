package etcdapi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The index finds exactly what a look at every group would find, whatever is put in
// and taken out.
func TestSpansFindWhatALookAtAllFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	key := func() string {
		b := make([]byte, 1+random.IntN(3))
		for i := range b {
			b[i] = byte('a' + random.IntN(4))
		}
		return string(b)
	}
	var tree spans
	all := map[*group]bool{}
	for step := range 20_000 {
		switch {
		case random.IntN(3) > 0 || len(all) == 0:
			sp := spec{key: key(), ranged: true}
			if random.IntN(5) > 0 {
				if sp.end = key(); sp.end <= sp.key {
					continue
				}
			}
			g := &group{spec: sp}
			tree.add(sp.key, sp.end, g)
			all[g] = true
		default:
			for g := range all {
				tree.remove(g.spec.key, g.spec.end, g)
				delete(all, g)
				break
			}
		}
		if step%50 != 0 {
			if len(all) < 400 {
				continue
			}
			for g := range all { // small again
				if len(all) < 50 {
					break
				}
				tree.remove(g.spec.key, g.spec.end, g)
				delete(all, g)
			}
		}
		k := key()
		var got, want []string
		tree.at(k, func(g *group) { got = append(got, fmt.Sprintf("%p", g)) })
		for g := range all {
			if k >= g.spec.key && (g.spec.end == "" || k < g.spec.end) {
				want = append(want, fmt.Sprintf("%p", g))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("step %d: key %q is in %d ranges, found %d", step, k, len(want), len(got))
		}
	}
	for g := range all {
		tree.remove(g.spec.key, g.spec.end, g)
	}
	if tree.root != nil {
		t.Error("something is left when all has been taken out")
	}
}

// 100,000 ranges in order of their keys, as prefixes of numbered things are, make
// no list of the tree.
func TestSpansStayShallow(t *testing.T) {
	var tree spans
	const n = 100_000
	for i := range n {
		start := fmt.Sprintf("/registry/%08d/", i)
		tree.add(start, start[:len(start)-1]+"0", &group{})
	}
	var depth func(*span) int
	depth = func(s *span) int {
		if s == nil {
			return 0
		}
		return 1 + max(depth(s.left), depth(s.right))
	}
	if d, limit := depth(tree.root), int(4*math.Log2(n)); d > limit {
		t.Errorf("%d ranges make a tree %d deep, want at most %d", n, d, limit)
	}
	found := 0
	tree.at("/registry/00077777/pod", func(*group) { found++ })
	if found != 1 {
		t.Errorf("a key in one range: found %d", found)
	}
}
