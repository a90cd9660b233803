package console

import (
	"time"

	"github.com/leasehold-dev/leasehold/ownership/api"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// look brings the feed up to date.
func (f *feed) look(src Source, listed []*pb.Keyspace) {
	name, n := f.asked, uint32(0)
	if name == "" && len(listed) > 0 {
		name = listed[0].GetName()
	}
	for _, ks := range listed {
		if ks.GetName() == name {
			n = ks.GetPartitions()
		}
	}
	shown := n <= mostShown
	if name != f.name || shown != (f.table != nil) || !shown && n != f.n {
		f.name, f.n, f.table, f.anew = name, n, nil, true
		if shown {
			f.table, f.generation = &api.PartitionTable{Keyspace: name}, 0
		}
	}
	if f.table == nil {
		return
	}
	src.Look(f.table)
	if f.table.Generation != f.generation {
		f.generation, f.anew = f.table.Generation, true
	}
}

// begun makes what was just looked at the first that is told.
func (f *feed) begun(now time.Time) {
	f.seq, f.at, f.anew, f.cached = f.seq+1, now, false, nil
	f.known = 0
	if f.table != nil {
		f.known = len(f.table.Owners)
	}
}

// tell sends everybody what has changed, if anything has.
func (f *feed) tell(now time.Time, c *common) {
	if f.anew {
		f.begun(now)
		for _, v := range f.viewers {
			v.fallBehind()
		}
		return
	}
	m := begin("delta", f.seq+1, now)
	empty := len(m.buf)
	for _, s := range c.parts() {
		if s.changed {
			m.field(s.name, s.json)
		}
	}
	if f.table != nil && (len(f.table.Changed) > 0 || f.known < len(f.table.Owners)) {
		m.changes(f.table, f.known)
	}
	if len(c.fresh) > 0 {
		m.events(c.fresh)
	}
	if len(m.buf) == empty && now.Sub(f.at) < quiet {
		return
	}
	f.begun(now)
	delta := m.end()
	for _, v := range f.viewers {
		v.push(delta)
	}
}

// full is the whole picture, encoded once per state.
func (f *feed) full(now time.Time, c *common) []byte {
	if f.cached != nil {
		return f.cached
	}
	m := begin("full", f.seq, now)
	m.field("keyspace", encode(f.name))
	for _, s := range c.parts() {
		m.field(s.name, s.json)
	}
	if f.table == nil {
		m.omitted(f.n)
	} else {
		m.table(f.table)
	}
	m.events(c.events)
	f.cached = m.end()
	return f.cached
}

type namedPart struct {
	name string
	*part
}

func (c *common) parts() [5]namedPart {
	return [5]namedPart{
		{"cluster", &c.cluster.part}, {"keyspaces", &c.keyspace.part}, {"workers", &c.workers.part},
		{"servers", &c.servers.part}, {"gossip", &c.members.part},
	}
}
