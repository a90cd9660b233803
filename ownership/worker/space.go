package worker

import (
	"sync/atomic"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// space is one keyspace as this worker knows it. The fields above the line
// never change; those below belong to the loop.
type space struct {
	id         uint32
	name       string
	owner      string // the worker's id
	partitions uint32
	tenure     *tenure
	ready      *atomic.Int32 // handlers of the whole worker that are ready

	// ---

	fenced bool
	// highest token seen of each partition ever granted to this worker.
	// Whatever is at or below it is late and ignored. A worker has a share of
	// the partitions, so a dense table would be mostly untouched memory.
	highest map[uint32]fence.Token
	// held has the lease of each partition that the servers believe is ours,
	// from its grant until its release has been asked for.
	held map[uint32]*Lease
	// old has handlers that still run although their lease is given back. At
	// most one per partition: the next waits for it.
	old map[uint32]*Lease
}

// phase is how far a lease has come.
type phase uint8

const (
	phaseWaiting  phase = iota // for an old handler, or for a confirmed session
	phaseClaiming              // the claimer has it
	phaseRunning               // its handler runs
	phaseOver                  // its handler has returned, or will never start
)

// learn takes what the servers say about a keyspace. A name can come back
// under another id when the keyspace was deleted and created again.
func (c *core) learn(k *leaseholdv1.KeyspaceJoined) *space {
	sp := c.spaces[k.GetKeyspaceId()]
	if sp == nil {
		sp = &space{
			id:         k.GetKeyspaceId(),
			name:       k.GetName(),
			owner:      c.id,
			partitions: k.GetPartitions(),
			tenure:     c.tenure,
			ready:      &c.ready,
			highest:    make(map[uint32]fence.Token),
			held:       make(map[uint32]*Lease),
			old:        make(map[uint32]*Lease),
		}
		c.spaces[sp.id] = sp
	}
	sp.fenced = k.GetTakeover() == leaseholdv1.Takeover_TAKEOVER_FENCED
	if r := c.runs[sp.name]; r != nil {
		r.space = sp
	}
	return sp
}

// see notes a token and reports whether it is new.
func (sp *space) see(partition uint32, token fence.Token) bool {
	if token <= sp.highest[partition] {
		return false
	}
	sp.highest[partition] = token
	return true
}
