package api

import (
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// changeKind is what a change asks of the worker.
type changeKind uint8

const (
	changeGrant changeKind = iota
	changeDrain
	changeRevoke
)

// change is one event of one lease on its way to the worker that holds it.
type change struct {
	token     state.Token
	from      string // previous owner, of a grant
	drainBy   time.Duration
	keyspace  state.KeyspaceID
	partition uint32
	kind      changeKind
	cause     state.Cause
}

// maxPerMessage keeps one LeaseChanges below half a megabyte.
const maxPerMessage = 1 << 15

// merger packs changes, which are in log order, into few messages. One message
// does not say in which order its lists are meant, so a partition that comes a
// second time opens the next one; only a drain may follow the grant it is about.
type merger struct {
	now         time.Duration
	term, index uint64
	// ordered: some partition may be in the changes more than once.
	ordered bool

	out  []*pb.AttachResponse
	cur  *pb.LeaseChanges
	n    int
	last *group
	all  []*group
	seen map[uint64]change
}

// group is one pb.Leases under construction.
type group struct {
	kind     changeKind
	keyspace state.KeyspaceID
	cause    state.Cause
	drainBy  time.Duration
	leases   *pb.Leases
	owners   map[string]uint32
	lastFrom string
	lastIdx  uint32
}

func (m *merger) merge(changes []change) []*pb.AttachResponse {
	for i := range changes {
		c := &changes[i]
		if m.cur == nil || m.n == maxPerMessage || m.ordered && m.clashes(c) {
			m.open()
		}
		if m.ordered {
			m.seen[c.lease()] = *c
		}
		g := m.group(c, len(changes)-i)
		g.leases.Partitions = append(g.leases.Partitions, c.partition)
		g.leases.Tokens = append(g.leases.Tokens, uint64(c.token))
		if c.kind == changeGrant {
			g.leases.Previous = append(g.leases.Previous, g.owner(c.from))
		}
		m.n++
	}
	return m.out
}

// open starts the next message.
func (m *merger) open() {
	m.cur = &pb.LeaseChanges{Term: m.term, Index: m.index}
	m.out = append(m.out, &pb.AttachResponse{Response: &pb.AttachResponse_Changes{Changes: m.cur}})
	m.n, m.last, m.all = 0, nil, nil
	if m.ordered {
		m.seen = map[uint64]change{}
	}
}

// clashes tells whether c must not stand in the same message as what it has of
// c's partition.
func (m *merger) clashes(c *change) bool {
	before, ok := m.seen[c.lease()]
	return ok && (before.token != c.token || c.kind != changeDrain)
}

// lease is a key for (keyspace, partition).
func (c *change) lease() uint64 { return uint64(c.keyspace)<<32 | uint64(c.partition) }

func (m *merger) group(c *change, left int) *group {
	if g := m.last; g != nil && g.holds(c) {
		return g
	}
	for _, g := range m.all {
		if g.holds(c) {
			m.last = g
			return g
		}
	}
	size := min(left, maxPerMessage)
	if len(m.all) > 0 {
		size = min(size, 64) // a big one came first, as a rule
	}
	g := &group{kind: c.kind, keyspace: c.keyspace, cause: c.cause, drainBy: c.drainBy}
	g.leases = &pb.Leases{
		KeyspaceId: uint32(c.keyspace),
		Partitions: make([]uint32, 0, size),
		Tokens:     make([]uint64, 0, size),
		Cause:      causeName(c.cause),
	}
	switch c.kind {
	case changeGrant:
		g.leases.Previous = make([]uint32, 0, size)
		m.cur.Granted = append(m.cur.Granted, g.leases)
	case changeDrain:
		g.leases.DrainMs = max(1, (c.drainBy - m.now).Milliseconds())
		m.cur.Drain = append(m.cur.Drain, g.leases)
	case changeRevoke:
		m.cur.Revoked = append(m.cur.Revoked, g.leases)
	}
	m.all, m.last = append(m.all, g), g
	return g
}

func (g *group) holds(c *change) bool {
	return g.kind == c.kind && g.keyspace == c.keyspace && g.cause == c.cause && g.drainBy == c.drainBy
}

// owner numbers the previous owners of a group, 0 for nobody.
func (g *group) owner(from string) uint32 {
	if from == "" {
		return 0
	}
	if from == g.lastFrom {
		return g.lastIdx
	}
	idx, ok := g.owners[from]
	if !ok {
		if g.owners == nil {
			g.owners = map[string]uint32{}
		}
		g.leases.PreviousOwners = append(g.leases.PreviousOwners, from)
		idx = uint32(len(g.leases.PreviousOwners))
		g.owners[from] = idx
	}
	g.lastFrom, g.lastIdx = from, idx
	return idx
}
