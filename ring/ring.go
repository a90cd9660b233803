package ring

import (
	"fmt"
	"slices"
)

// MaxPartitions is the largest number of partitions of a ring.
const MaxPartitions = 1 << 20

// MaxNameLen is the longest member name in bytes.
const MaxNameLen = 256

// None is the owner of a partition that no member is wished for.
const None int32 = -1

// Member is a member with a weight. The ring knows only two weights: 0 means
// that the member is wished for nowhere, anything else that it takes part like
// every other. How much a member can carry is the planner's matter.
type Member struct {
	Name   string
	Weight uint32
}

// Ring is an immutable placement: for one set of members and one number of
// partitions it tells which member would suit each partition. Any goroutine
// may use it.
type Ring struct {
	members []string
	owners  []int32
	taking  []int32 // members that take part
}

// New computes the placement for members, in any order and with or without
// repetitions. No members is allowed: then nobody is wished for. With more
// members than partitions the first ones in the order of names take part and
// the others stand by.
//
// The error names the field, the value and the limit.
func New(members []string, partitions uint32) (*Ring, error) {
	names, err := checkMembers(members, partitions)
	if err != nil {
		return nil, err
	}
	a, err := arrange(clip(names, partitions), partitions, defaults)
	if err != nil {
		return nil, err
	}
	return a.ring(names)
}

// NewWeighted is New for members of which some may have weight 0. Those are
// listed by Members and own nothing.
func NewWeighted(members []Member, partitions uint32) (*Ring, error) {
	all := make([]string, 0, len(members))
	zero := make(map[string]bool)
	for _, m := range members {
		all = append(all, m.Name)
		// Of two weights for one name the last one counts.
		zero[m.Name] = m.Weight == 0
	}
	names, err := checkMembers(all, partitions)
	if err != nil {
		return nil, err
	}
	part := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return zero[n] })
	a, err := arrange(clip(part, partitions), partitions, defaults)
	if err != nil {
		return nil, err
	}
	return a.ring(names)
}

// Members returns all members, sorted by name. The slice is shared: read only.
func (r *Ring) Members() []string { return r.members }

// Owner returns the index in Members of the member that partition p would suit
// best, or None: when there are no members, or no such partition.
func (r *Ring) Owner(p uint32) int32 {
	if uint64(p) >= uint64(len(r.owners)) {
		return None
	}
	return r.owners[p]
}

// Owners returns Owner for each partition. The slice is shared: read only.
func (r *Ring) Owners() []int32 { return r.owners }

// checkMembers validates and returns the names sorted and without repetitions.
func checkMembers(members []string, partitions uint32) ([]string, error) {
	if partitions < 1 || partitions > MaxPartitions {
		return nil, fmt.Errorf("build ring: partitions is %d, must be 1 to %d", partitions, MaxPartitions)
	}
	names := slices.Clone(members)
	slices.Sort(names)
	names = slices.Compact(names)
	for _, n := range names {
		if n == "" {
			return nil, fmt.Errorf("build ring: member name is empty, must have 1 to %d bytes", MaxNameLen)
		}
		if len(n) > MaxNameLen {
			return nil, fmt.Errorf("build ring: member name %.32q… has %d bytes, must have 1 to %d", n, len(n), MaxNameLen)
		}
	}
	return names, nil
}

// clip returns the members that take part: at most one per partition.
func clip(names []string, partitions uint32) []string {
	if uint64(len(names)) > uint64(partitions) {
		return names[:partitions]
	}
	return names
}
