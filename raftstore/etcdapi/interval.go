package etcdapi

import "strings"

// spans holds ranges of keys, and at each what watches it. It finds the ranges
// that a key is in, in O(log n) and a step for each. It is a treap whose nodes
// know how far any range below them reaches. The zero value is empty.
type spans struct {
	root *span
	drew uint64 // of the sequence of priorities
}

// span is the range [start, end), or from start on where end is empty.
type span struct {
	start, end  string
	groups      []*group
	priority    uint64
	left, right *span

	last string // the greatest end in this subtree
	open bool   // this subtree has one without an end
}

// compare orders by start, then by end.
func (n *span) compare(start, end string) int {
	if c := strings.Compare(start, n.start); c != 0 {
		return c
	}
	return strings.Compare(end, n.end)
}

// update looks at the children again.
func (n *span) update() {
	n.last, n.open = n.end, n.end == ""
	for _, child := range [...]*span{n.left, n.right} {
		if child != nil {
			n.last, n.open = max(n.last, child.last), n.open || child.open
		}
	}
}

// add puts g at a range.
func (t *spans) add(start, end string, g *group) { t.root = t.insert(t.root, start, end, g) }

func (t *spans) insert(n *span, start, end string, g *group) *span {
	if n == nil {
		n = &span{start: start, end: end, groups: []*group{g}, priority: t.draw()}
		n.update()
		return n
	}
	switch c := n.compare(start, end); {
	case c == 0:
		n.groups = append(n.groups, g)
		return n
	case c < 0:
		if n.left = t.insert(n.left, start, end, g); n.left.priority > n.priority {
			l := n.left
			n.left, l.right = l.right, n
			n.update()
			n = l
		}
	default:
		if n.right = t.insert(n.right, start, end, g); n.right.priority > n.priority {
			r := n.right
			n.right, r.left = r.left, n
			n.update()
			n = r
		}
	}
	n.update()
	return n
}

// draw returns the next of a fixed sequence of well spread numbers (splitmix64):
// the shape of the tree needs no chance, only no pattern.
func (t *spans) draw() uint64 {
	t.drew += 0x9e3779b97f4a7c15
	z := t.drew
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// remove takes g away from a range.
func (t *spans) remove(start, end string, g *group) { t.root = t.root.remove(start, end, g) }

func (n *span) remove(start, end string, g *group) *span {
	if n == nil {
		return nil
	}
	switch c := n.compare(start, end); {
	case c < 0:
		n.left = n.left.remove(start, end, g)
	case c > 0:
		n.right = n.right.remove(start, end, g)
	default:
		if n.groups = without(n.groups, g); len(n.groups) == 0 {
			return joinSpans(n.left, n.right)
		}
	}
	n.update()
	return n
}

// joinSpans makes one tree of two; all in a are before all in b.
func joinSpans(a, b *span) *span {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = joinSpans(a.right, b)
		a.update()
		return a
	default:
		b.left = joinSpans(a, b.left)
		b.update()
		return b
	}
}

// at calls fn with every group whose range key is in.
func (t *spans) at(key string, fn func(*group)) { t.root.at(key, fn) }

func (n *span) at(key string, fn func(*group)) {
	if n == nil || !n.open && n.last <= key {
		return
	}
	n.left.at(key, fn)
	if key < n.start {
		return
	}
	if n.end == "" || key < n.end {
		for _, g := range n.groups {
			fn(g)
		}
	}
	n.right.at(key, fn)
}

// without removes one element, not keeping the order.
func without(groups []*group, g *group) []*group {
	for i := range groups {
		if groups[i] == g {
			last := len(groups) - 1
			groups[i] = groups[last]
			groups[last] = nil
			return groups[:last]
		}
	}
	return groups
}
