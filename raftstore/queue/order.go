package queue

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// order is a sequence of members by create revision that tells a member's rank,
// and the member of a rank, in logarithmic time. Members come at its end and leave
// from anywhere: a Fenwick tree counts those that are still there.
type order struct {
	all  []*member // nil where one has left
	tree []int     // tree[i] counts the present ones of all[i-low(i)+1 … i], from 1
	n    int
}

// before is the order of the queue. Keys of one transaction share a revision.
func before(a, b *member) int { return compare(a.kv, b.kv) }

func compare(a, b *mvcc.KeyValue) int {
	if c := cmp.Compare(a.CreateRevision, b.CreateRevision); c != 0 {
		return c
	}
	return bytes.Compare(a.Key, b.Key)
}

func sortMembers(ms []*member) { slices.SortFunc(ms, before) }

// low is the lowest bit of i, the number of places that tree[i] counts.
func low(i int) int { return i & -i }

// add puts m where it belongs: at the end, but for keys that were attached to
// their session later than they were made.
func (o *order) add(m *member) {
	if len(o.all) > 0 {
		last := o.all[len(o.all)-1]
		if last == nil || before(last, m) > 0 {
			o.rebuild(m)
			return
		}
	}
	o.push(m)
}

func (o *order) push(m *member) {
	if len(o.tree) == 0 {
		o.tree = append(o.tree, 0)
	}
	m.at = len(o.all)
	o.all = append(o.all, m)
	i, sum := len(o.all), 1
	for j := i - 1; j > i-low(i); j -= low(j) {
		sum += o.tree[j]
	}
	o.tree = append(o.tree, sum)
	o.n++
}

// remove takes m out. The room of those that have left is taken back when they
// are more than those who have not.
func (o *order) remove(m *member) {
	o.all[m.at] = nil
	for i := m.at + 1; i < len(o.tree); i += low(i) {
		o.tree[i]--
	}
	o.n--
	for len(o.all) > 0 && o.all[len(o.all)-1] == nil {
		o.all, o.tree = o.all[:len(o.all)-1], o.tree[:len(o.tree)-1]
	}
	if len(o.all) > 2*o.n+16 {
		o.rebuild(nil)
	}
}

// rebuild makes the sequence anew, with one more if more is not nil.
func (o *order) rebuild(more *member) {
	var present []*member
	for _, m := range o.all {
		if m != nil {
			present = append(present, m)
		}
	}
	if more != nil {
		at, _ := slices.BinarySearchFunc(present, more, before)
		present = slices.Insert(present, at, more)
	}
	*o = order{}
	for _, m := range present {
		o.push(m)
	}
}

// rank is how many are before m.
func (o *order) rank(m *member) (n int) {
	for i := m.at; i > 0; i -= low(i) {
		n += o.tree[i]
	}
	return n
}

// ranked returns the member that has k before it, or nil.
func (o *order) ranked(k int) *member {
	if k < 0 || k >= o.n {
		return nil
	}
	step := 1
	for step*2 < len(o.tree) {
		step *= 2
	}
	at := 0
	for ; step > 0; step /= 2 {
		if at+step < len(o.tree) && o.tree[at+step] <= k {
			at += step
			k -= o.tree[at]
		}
	}
	return o.all[at]
}
