package state

// nameTable numbers the worker ids that were the last owners of partitions
// without one, so that a later grant can tell whom it follows. Numbers start
// at 1 and are free again with their last reference; they are not visible
// outside and may differ between servers.
type nameTable struct {
	ids   map[string]uint32
	names []string
	refs  []uint32
	free  []uint32
}

func newNameTable() nameTable {
	return nameTable{ids: make(map[string]uint32), names: []string{""}, refs: []uint32{0}}
}

// hold returns the number of a name and counts one more reference to it.
func (t *nameTable) hold(name string) uint32 {
	if id, ok := t.ids[name]; ok {
		t.refs[id]++
		return id
	}
	var id uint32
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
		t.names[id], t.refs[id] = name, 1
	} else {
		id = uint32(len(t.names))
		t.names, t.refs = append(t.names, name), append(t.refs, 1)
	}
	t.ids[name] = id
	return id
}

// drop gives a reference back and returns the name, "" for 0.
func (t *nameTable) drop(id uint32) string {
	if id == 0 {
		return ""
	}
	name := t.names[id]
	if t.refs[id]--; t.refs[id] == 0 {
		delete(t.ids, name)
		t.names[id] = ""
		t.free = append(t.free, id)
	}
	return name
}
