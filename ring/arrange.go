package ring

import (
	"errors"
	"fmt"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// ErrLibrary is returned when the consistent-hash library panicked. It names a
// combination that our checks should have refused: please report it.
var ErrLibrary = errors.New("consistent-hash library failed")

// settings are the library's two knobs.
type settings struct {
	replicas int     // virtual nodes per member
	load     float64 // cap of a member over the mean
}

// defaults follow measurements over P and N: the cap of 1.10 is the balance
// that the planner aims at. More virtual nodes than 20 even out what the cap
// has evened out already, and make a ring of many members expensive, because
// the library sorts all of them again for every member it adds.
var defaults = settings{replicas: 20, load: 1.10}

// point is a member inside the library. The library calls String for every
// partition, so the name is kept ready.
type point struct {
	name  string
	index int32 // in the member list of the ring being built
}

// String returns the key that the library hashes. It ends in a character that
// no digit can follow: the library once joined name and number without a
// separator, and w1+11 met w11+1. A name may contain any byte, but the
// terminator is the last one either way, so two names never give one key.
func (p *point) String() string { return p.name }

const terminator = "/"

type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }

// arrangement is one instance of the library and what we put into it.
type arrangement struct {
	lib        *consistent.Consistent // nil without points
	points     map[string]*point      // by member name
	partitions uint32
	settings   settings
}

// arrange makes an arrangement of names, which are sorted and distinct, at most
// one per partition.
func arrange(names []string, partitions uint32, s settings) (_ *arrangement, err error) {
	defer recovered(&err)
	a := &arrangement{points: make(map[string]*point, len(names)), partitions: partitions, settings: s}
	if len(names) == 0 {
		return a, nil
	}
	members := make([]consistent.Member, 0, len(names))
	for _, n := range names {
		members = append(members, a.point(n))
	}
	a.lib = consistent.New(members, consistent.Config{
		Hasher:            hasher{},
		PartitionCount:    int(partitions),
		ReplicationFactor: s.replicas,
		Load:              s.load,
	})
	return a, nil
}

func (a *arrangement) point(name string) *point {
	p := &point{name: name + terminator}
	a.points[name] = p
	return p
}

// change removes and adds members. After an error the arrangement must not be
// used any more. The library places every partition anew after each step.
func (a *arrangement) change(remove, add []string) (err error) {
	defer recovered(&err)
	// Adding first keeps the library from ever being empty, a state in which it
	// keeps stale figures.
	for _, n := range add {
		a.lib.Add(a.point(n))
	}
	for _, n := range remove {
		a.lib.Remove(a.points[n].name)
		delete(a.points, n)
	}
	return nil
}

// ring copies the placement into a flat table whose numbers index members: all
// members, sorted, those included that do not take part.
func (a *arrangement) ring(members []string) (_ *Ring, err error) {
	defer recovered(&err)
	r := &Ring{members: members, owners: make([]int32, a.partitions)}
	for i, n := range members {
		if p, ok := a.points[n]; ok {
			p.index = int32(i)
			r.taking = append(r.taking, p.index)
		}
	}
	for p := range r.owners {
		r.owners[p] = None
		if a.lib == nil {
			continue
		}
		if owner, ok := a.lib.GetPartitionOwner(p).(*point); ok {
			r.owners[p] = owner.index
		}
	}
	return r, nil
}

// recovered turns a panic of the library into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("build ring: %w: %v", ErrLibrary, p)
	}
}
