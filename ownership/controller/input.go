package controller

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Input is all that Plan looks at: one keyspace at one moment. Plan reads it
// and keeps nothing of it, except that Output shares no memory with it.
type Input struct {
	Keyspace state.KeyspaceID
	Settings state.Settings
	Deleting bool
	// Now is the logical clock, carried on between log entries with the
	// leader's boot clock.
	Now state.Clock
	// LastJoin is when a session last joined the keyspace.
	LastJoin state.Clock
	// Restored is until when the state machine grants nothing in this keyspace,
	// because leases of before a restore may still be believed in; 0: no limit.
	Restored state.Clock

	// Workers are the sessions that joined the keyspace or still hold some of
	// it, in any order. Ties are broken by it.
	Workers []Worker
	// Owners has one entry per partition: the holder's index in Workers, or
	// -1 for unowned. Draining leases still have their holder.
	Owners []int32
	// Tokens has the last token of each partition.
	Tokens []state.Token
	// Lost says why a partition that is unowned lost its owner. Nil: unknown.
	Lost []state.Cause

	// Ring is the ring's wish per partition, an index into RingWorkers or -1;
	// RingWorkers maps it onto Workers (-1: not here). Nil: no wish.
	Ring        []int32
	RingWorkers []int32

	// Moves are the drains in progress, by partition; Actions what Step says
	// about them.
	Moves   []state.Move
	Actions []Action
	// Slots are kept for worker ids that went, by worker id.
	Slots []state.Slot
	// Suspects are the partitions with failures against them, by partition.
	Suspects []Suspect

	// Timers of the controller. LastChange is when the set of workers last
	// changed, FirstChange when that unrest began, ColdSince when workers
	// began to wait in a keyspace that nobody holds any of.
	LastChange, FirstChange, ColdSince state.Clock
	// Cool has, for partitions moved lately, when they may be moved for
	// balance again; Hold has when partitions that are granted and given back
	// over and over may be granted again.
	Cool, Hold map[uint32]state.Clock
	// Filling is what the last plan said: who was being filled up to its
	// share goes on to be, although it is within 10 % of it by now.
	Filling []state.SessionID
	// Pace starts this many times as many balance moves at once as published, so
	// that a simulation of a large keyspace ends. 0 is 1.
	Pace int32
}

// Standing is where a worker's session stands, for placement.
type Standing uint8

// Only a Live worker counts for the shares and can be granted anything.
const (
	Live Standing = iota + 1
	// Leaving workers hand over all they hold.
	Leaving
	// Barred sessions are superseded or evicted. Their strict leases last
	// until they release or expire.
	Barred
	// Gone is a worker known dead before its session has run out.
	Gone
)

// String is the word for a standing, as ListWorkers says it.
func (s Standing) String() string {
	switch s {
	case Live:
		return "live"
	case Leaving:
		return "leaving"
	case Barred:
		return "barred"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// ByName orders workers by id, and sessions of one id by age.
func ByName(a, b *Worker) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Session, b.Session))
}

// Worker is one session as placement sees it.
type Worker struct {
	Session  state.SessionID
	ID       string
	Zone     string
	Standing Standing
	Restart  bool // leaving, and coming back under the same id
	Drained  bool // by an operator: hands over all, gets nothing
	// Capacity over all keyspaces, 0 for no limit; Here is what it holds of this
	// one, Elsewhere of others.
	Capacity, Here, Elsewhere uint32
	// Opened is when the session was opened; Opens are the last sessions of
	// this worker id, oldest first.
	Opened state.Clock
	Opens  []state.Clock
	// Gossip is what gossip says, believed until GossipUntil.
	Gossip      Verdict
	GossipUntil state.Clock
}

// Suspect is a partition with failures against it, and whether somebody holds
// it at present.
type Suspect struct {
	state.Suspect
	Held bool
	// Since is the last change of owner.
	Since state.Clock
}

// The constants of placement, as published.
const (
	overload       = 1.10 // an owner keeps, and orphans fill, at most this share of the mean
	underload      = 0.90 // below this share of its own a worker is refilled
	settled        = 1.05 // an overloaded worker sheds down to this
	coldMax        = 5 * time.Second
	quietFor       = 3 * time.Second
	quietMax       = 15 * time.Second
	coolDown       = 2 * time.Minute
	unstableWithin = 5 * time.Minute
	unstableOpens  = 3
	stableFor      = time.Minute
	newcomerFor    = time.Minute
	perReceiver    = 2
	trialSlack     = 2 * time.Second  // on top of the TTL
	absolvedWithin = 11 * time.Second // more than the state's time between sweeps
)

// inFlight is how many balance moves may be under way at once.
func inFlight(partitions int) int { return max(1, partitions/20) }

// quietAt is when balance may begin: when the set of workers has not changed
// for a while, but not for ever later.
func (in *Input) quietAt() state.Clock {
	return min(in.LastChange+quietFor, in.FirstChange+quietMax)
}

// suspect finds the failures against a partition.
func (in *Input) suspect(part uint32) (at int, ok bool) {
	return slices.BinarySearchFunc(in.Suspects, part, func(s Suspect, p uint32) int {
		return cmp.Compare(s.Partition, p)
	})
}

// move finds the drain of a partition.
func (in *Input) move(part uint32) (at int, ok bool) {
	return slices.BinarySearchFunc(in.Moves, part, func(m state.Move, p uint32) int {
		return cmp.Compare(m.Partition, p)
	})
}
