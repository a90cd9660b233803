package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// spec is what a watcher wants to be told. Watchers with equal specs get equal
// messages, apart from the id, so that these are made once for all of them.
type spec struct {
	key, end string // end is empty for one key, and where a range has none
	ranged   bool
	prev     bool // with the pair before the event
	noPut    bool
	noDelete bool
	fragment bool // a revision may be split over messages
}

// specOf reads a request. It reports false for a range that is empty.
func specOf(r *pb.WatchCreateRequest) (spec, bool) {
	sp := spec{key: string(r.Key), prev: r.PrevKv, fragment: r.Fragment}
	if sp.key == "" {
		sp.key = "\x00" // the smallest key
	}
	switch end := string(r.RangeEnd); {
	case end == "":
	case end == "\x00":
		sp.ranged = true
	case end <= sp.key:
		return sp, false
	default:
		sp.ranged, sp.end = true, end
	}
	for _, f := range r.Filters {
		sp.noPut = sp.noPut || f == pb.WatchCreateRequest_NOPUT
		sp.noDelete = sp.noDelete || f == pb.WatchCreateRequest_NODELETE
	}
	return sp, true
}

// bounds are the key and the end as the store of keys takes them.
func (sp *spec) bounds() (key, end []byte) {
	switch {
	case !sp.ranged:
		return []byte(sp.key), nil
	case sp.end == "":
		return []byte(sp.key), []byte{0}
	default:
		return []byte(sp.key), []byte(sp.end)
	}
}

// group is the live watchers of one spec.
type group struct {
	spec    spec
	members []*watcher
	hits    []int // what a batch has for them, while it is given out
}

func (g *group) add(w *watcher) {
	w.slot = len(g.members)
	g.members = append(g.members, w)
}

func (g *group) remove(w *watcher) {
	last := len(g.members) - 1
	moved := g.members[last]
	g.members[w.slot], moved.slot = moved, w.slot
	g.members[last] = nil
	g.members = g.members[:last]
}

// groups finds the groups that a key concerns.
type groups struct {
	bySpec map[spec]*group
	keys   map[string][]*group
	ranges spans
	count  int // watchers
}

func newGroups() groups {
	return groups{bySpec: map[spec]*group{}, keys: map[string][]*group{}}
}

func (x *groups) add(w *watcher) {
	g := x.bySpec[w.spec]
	if g == nil {
		g = &group{spec: w.spec}
		x.bySpec[w.spec] = g
		if g.spec.ranged {
			x.ranges.add(g.spec.key, g.spec.end, g)
		} else {
			x.keys[g.spec.key] = append(x.keys[g.spec.key], g)
		}
	}
	g.add(w)
	x.count++
}

func (x *groups) remove(w *watcher) {
	g := x.bySpec[w.spec]
	g.remove(w)
	x.count--
	if len(g.members) > 0 {
		return
	}
	delete(x.bySpec, g.spec)
	if g.spec.ranged {
		x.ranges.remove(g.spec.key, g.spec.end, g)
		return
	}
	if x.keys[g.spec.key] = without(x.keys[g.spec.key], g); len(x.keys[g.spec.key]) == 0 {
		delete(x.keys, g.spec.key)
	}
}

// at calls fn with every group that watches key.
func (x *groups) at(key []byte, fn func(*group)) {
	for _, g := range x.keys[string(key)] {
		fn(g)
	}
	if x.ranges.root != nil {
		x.ranges.at(string(key), fn)
	}
}
