package mvcc

import (
	"bytes"
	"cmp"
	"math"
)

// compare orders two pairs by what a range is sorted by.
func (t SortTarget) compare(a, b *KeyValue) int {
	switch t {
	case SortByVersion:
		return cmp.Compare(a.Version, b.Version)
	case SortByCreate:
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	case SortByMod:
		return cmp.Compare(a.ModRevision, b.ModRevision)
	case SortByValue:
		return bytes.Compare(a.Value, b.Value)
	default:
		return bytes.Compare(a.Key, b.Key)
	}
}

// hold says whether all conditions hold of what the tree has now.
func (s *Store) hold(conditions []Compare) bool {
	for i := range conditions {
		if !s.holds(&conditions[i]) {
			return false
		}
	}
	return true
}

func (s *Store) holds(c *Compare) bool {
	some, all := false, true
	span{c.Key, c.End}.visit(s.tree, func(_ []byte, it *item) bool {
		if v := it.at(math.MaxInt64); !v.del {
			some, all = true, c.of(&v.kv)
		}
		return all
	})
	if !some {
		return c.Target != CompareValue && c.of(&KeyValue{})
	}
	return all
}

// of compares one pair. A target or relation without a name is treated as etcd
// does: the first as equal, the second as one that always holds.
func (c *Compare) of(kv *KeyValue) bool {
	var d int
	switch c.Target {
	case CompareVersion:
		d = cmp.Compare(kv.Version, c.Number)
	case CompareCreate:
		d = cmp.Compare(kv.CreateRevision, c.Number)
	case CompareMod:
		d = cmp.Compare(kv.ModRevision, c.Number)
	case CompareValue:
		d = bytes.Compare(kv.Value, c.Value)
	case CompareLease:
		d = cmp.Compare(kv.Lease, c.Number)
	}
	switch c.Result {
	case CompareEqual:
		return d == 0
	case CompareNotEqual:
		return d != 0
	case CompareGreater:
		return d > 0
	case CompareLess:
		return d < 0
	}
	return true
}
