package ring

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Point is a virtual node: where a member stands on the ring.
type Point struct {
	Position uint64
	Member   int32 // index into Members
}

// Circle is the ring behind a placement, for those who want to look at it: the
// virtual nodes of the members that take part, and where partitions stand
// between them. It is immutable; any goroutine may use it.
type Circle struct {
	points  []Point
	members int
	taking  int
	most    int32
}

// Circle works out the virtual nodes, which a Ring does not keep. It costs a
// sort of 20 points for each member.
func (r *Ring) Circle() *Circle {
	c := &Circle{members: len(r.members), taking: len(r.taking)}
	if c.taking == 0 {
		return c
	}
	c.most = int32(math.Ceil(float64(len(r.owners)) / float64(c.taking) * defaults.load))
	c.points = make([]Point, 0, c.taking*defaults.replicas)
	for _, m := range r.taking {
		for i := range defaults.replicas {
			key := strconv.Itoa(i) + ":" + r.members[m] + terminator
			c.points = append(c.points, Point{xxhash.Sum64String(key), m})
		}
	}
	slices.SortFunc(c.points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Member, b.Member))
	})
	return c
}

// Points returns the virtual nodes by position. The slice is shared: read only.
func (c *Circle) Points() []Point { return c.points }

// Most is how many partitions the placement gives one member at most; 0 when
// none takes part.
func (c *Circle) Most() int32 { return c.most }

// Position is where a partition stands on the ring.
func Position(partition uint32) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(partition))
	return xxhash.Sum64(b[:])
}

// Order lists the members that take part, as indexes into Members, in the order
// in which a partition meets them on its way around the ring: the first that has
// not reached Most is the one it is placed with.
func (c *Circle) Order(partition uint32) []int32 {
	at, _ := slices.BinarySearchFunc(c.points, Position(partition), func(p Point, v uint64) int { return cmp.Compare(p.Position, v) })
	order := make([]int32, 0, c.taking)
	met := make([]bool, c.members)
	for k := range c.points {
		m := c.points[(at+k)%len(c.points)].Member
		if met[m] {
			continue
		}
		met[m] = true
		if order = append(order, m); len(order) == c.taking {
			break
		}
	}
	return order
}
