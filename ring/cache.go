package ring

import "slices"

// Cache computes rings for several partition counts and keeps the library's
// state between calls, so that one worker more or less costs one step instead
// of a new start: with 1,000 members a step is about twenty times cheaper.
//
// A Cache is for one goroutine; the zero value is ready. The rings it returns
// are immutable and may be shared.
type Cache struct {
	entries map[uint32]*cacheEntry
}

// cacheEntry is the last ring of one partition count.
type cacheEntry struct {
	ring        *Ring
	arrangement *arrangement
	part        []string // the members that take part, sorted
}

// Get returns the ring of members, in any order, over partitions. It is equal
// to New of the same, also after an error.
func (c *Cache) Get(members []string, partitions uint32) (*Ring, error) {
	names, err := checkMembers(members, partitions)
	if err != nil {
		return nil, err
	}
	last := c.entries[partitions]
	if last != nil && slices.Equal(last.ring.members, names) {
		return last.ring, nil
	}
	next, err := c.build(last, names, partitions)
	if err != nil {
		delete(c.entries, partitions)
		return nil, err
	}
	if c.entries == nil {
		c.entries = make(map[uint32]*cacheEntry)
	}
	c.entries[partitions] = next
	return next.ring, nil
}

// Forget drops what is kept for a partition count that is not needed any more.
func (c *Cache) Forget(partitions uint32) { delete(c.entries, partitions) }

func (c *Cache) build(last *cacheEntry, names []string, partitions uint32) (*cacheEntry, error) {
	next := &cacheEntry{part: clip(names, partitions)}
	if err := next.arrange(last, partitions); err != nil {
		return nil, err
	}
	r, err := next.arrangement.ring(names)
	next.ring = r
	return next, err
}

// arrange takes over the last arrangement when changing it is cheaper than
// starting again.
func (e *cacheEntry) arrange(last *cacheEntry, partitions uint32) error {
	if last != nil {
		remove, add := difference(last.part, e.part)
		if last.arrangement.worthChanging(len(remove)+len(add), len(e.part)) {
			e.arrangement = last.arrangement
			return e.arrangement.change(remove, add)
		}
	}
	a, err := arrange(e.part, partitions, defaults)
	e.arrangement = a
	return err
}

// worthChanging weighs steps, each of which places every partition, against a
// start with n members, which places them once but sorts n times.
func (a *arrangement) worthChanging(steps, n int) bool {
	if a.lib == nil || n == 0 {
		return false
	}
	return steps <= 1+n/64
}

// difference returns what is only in a and what is only in b; both are sorted.
func difference(a, b []string) (onlyA, onlyB []string) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0] < b[0]:
			onlyA, a = append(onlyA, a[0]), a[1:]
		default:
			onlyB, b = append(onlyB, b[0]), b[1:]
		}
	}
	return append(onlyA, a...), append(onlyB, b...)
}
