package controller

import (
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Output is a plan: what to propose now, why the rest has no owner, and when
// to look again if nothing happens before.
type Output struct {
	// Revokes come with the grant of the same partition, if there is one, in
	// one log entry.
	Revokes []Revoke
	Grants  []Grant
	Drains  []Drain
	// Rest is why partitions without an owner have none, unless Unowned (by
	// partition) has a reason of its own for one of them.
	Rest    Reason
	Unowned []Unowned
	// Wake is when time alone may change the plan; 0 for never.
	Wake state.Clock
	// Imbalance is the greatest load over its fair share among live workers.
	Imbalance float64
	// Wanted counts balance moves still to come, started ones not included.
	Wanted int
	// Filling are the workers short of their share that get more; input of
	// the next plan.
	Filling []state.SessionID
	// Shares has one entry per worker of the input, as the plan leaves it.
	Shares []Share
}

// Share is how a worker stands, for placement.
type Share struct {
	// Load is what it holds or is about to hold of the keyspace.
	Load int32
	// Fair is its share by weight, of all partitions, and Most what orphans may
	// bring it to; 0 for one that may not receive. Limit is what its capacity
	// leaves for this keyspace.
	Fair        float64
	Most, Limit int32
}

// Grant gives an unowned partition to a session.
type Grant struct {
	Partition uint32
	Cause     state.Cause
	LastToken state.Token
	Session   state.SessionID
}

// Drain asks the holder of Token to finish, for Target (0: for nobody), or
// changes the target of a drain in progress. The state machine sees to it that
// a second drain does not prolong the first.
type Drain struct {
	Partition uint32
	Cause     state.Cause
	Reserve   bool
	Token     state.Token
	Target    state.SessionID
}

// Revoke takes a fenced lease back from a session.
type Revoke struct {
	Partition uint32
	Cause     state.Cause
	Token     state.Token
	Session   state.SessionID
}

// Unowned is a partition that stays without an owner.
type Unowned struct {
	Partition uint32
	Reason    Reason
}

// Code is a stable word for why a partition has no working owner.
type Code string

// The codes.
const (
	CodeNone        Code = ""
	CodeNoWorker    Code = "no_worker"
	CodeCapacity    Code = "capacity"
	CodeColdStart   Code = "cold_start"
	CodeReserved    Code = "reserved"
	CodeQuarantined Code = "quarantined"
	CodeBackoff     Code = "backoff"
	CodeTrial       Code = "trial"
	CodeDoubt       Code = "doubt"
	CodeBlocked     Code = "blocked"
	CodeStuck       Code = "stuck"
	CodeDeleting    Code = "deleting"
	CodePending     Code = "pending"
	CodeRestored    Code = "restored"
)

// Reason says why a partition has no owner, or an owner that does not work.
type Reason struct {
	Code Code
	// Until is when the wait ends, on the logical clock; 0 when no clock ends it.
	Until state.Clock
	// Left is the same, as time from now. Why fills it in.
	Left time.Duration
	// Worker is whom the reason is about, if anybody.
	Worker string
}

// String is the sentence that status pages print.
func (r Reason) String() string {
	within := func(s string) string {
		if r.Left <= 0 {
			return s
		}
		return fmt.Sprintf("%s, at most %v more", s, r.Left.Round(100*time.Millisecond))
	}
	switch r.Code {
	case CodeNone:
		return ""
	case CodeNoWorker:
		return "no worker has joined the keyspace, or none that may be granted to"
	case CodeCapacity:
		return "the capacity of all workers is used up"
	case CodeColdStart:
		return within("waits for more workers to join (initial_delay)")
	case CodeReserved:
		return within(fmt.Sprintf("kept for worker %s (restart_grace)", r.Worker))
	case CodeQuarantined:
		return within("failed on three workers and is quarantined; partitions retry ends it")
	case CodeBackoff:
		return within("failed or was given back, waits before the next try")
	case CodeTrial:
		return within("another suspect partition is being tried first")
	case CodeDoubt:
		return within("gossip doubts every worker that could take it")
	case CodeBlocked:
		return within(fmt.Sprintf("held by a session of worker %s that is barred or thought dead, until it releases or expires", r.Worker))
	case CodeStuck:
		return fmt.Sprintf("worker %s has not returned it since the handoff timeout", r.Worker)
	case CodeDeleting:
		return "the keyspace is being deleted"
	case CodePending:
		return "is being granted"
	case CodeRestored:
		return within("restored: waits until leases of before the restore have run out")
	}
	return string(r.Code)
}
