package ring

import (
	"slices"
	"testing"
)

// The circle is the one that the placement was made on: whoever walks it
// partition by partition, with the same bound, ends at the same owners.
func TestCircleLeadsToThePlacement(t *testing.T) {
	for _, c := range []struct{ members, partitions int }{{0, 7}, {1, 7}, {3, 12}, {10, 271}, {9, 4}, {100, 4096}} {
		r, err := New(memberNames(c.members), uint32(c.partitions))
		if err != nil {
			t.Fatal(err)
		}
		circle := r.Circle()
		if want := min(c.members, c.partitions) * 20; len(circle.Points()) != want {
			t.Errorf("%+v: %d points, want %d", c, len(circle.Points()), want)
		}
		load := make([]int32, c.members)
		for p := range uint32(c.partitions) {
			order := circle.Order(p)
			at := slices.IndexFunc(order, func(m int32) bool { return load[m] < circle.Most() })
			if c.members == 0 {
				if at >= 0 || r.Owner(p) != None {
					t.Errorf("%+v: partition %d has an order without members", c, p)
				}
				continue
			}
			if at < 0 || order[at] != r.Owner(p) {
				t.Fatalf("%+v: partition %d is placed with %d, its order %v leads to place %d", c, p, r.Owner(p), order, at)
			}
			load[order[at]]++
		}
	}
}

// A ring that was reached step by step has the circle of one built at once.
func TestCircleOfAChangedRing(t *testing.T) {
	var c Cache
	for _, n := range []int{3, 4, 3} {
		r, err := c.Get(memberNames(n), 64)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := New(memberNames(n), 64)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Circle().Points(), fresh.Circle().Points()) {
			t.Errorf("%d members: the points differ", n)
		}
	}
	r, err := NewWeighted([]Member{{"a", 1}, {"b", 0}, {"c", 1}}, 8)
	if err != nil {
		t.Fatal(err)
	}
	for p := range uint32(8) {
		if order := r.Circle().Order(p); len(order) != 2 || slices.Contains(order, 1) {
			t.Errorf("partition %d: order %v with a member of weight 0", p, order)
		}
	}
}
