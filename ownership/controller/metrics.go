package controller

import (
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Metrics hears what the controller does. Its methods must not block; they
// are called by the loop only.
type Metrics interface {
	// Moved counts grants by why the partition changed hands.
	Moved(keyspace string, cause state.Cause, n int)
	// Takeover is the time from the loss of an owner (for a worker known
	// dead: from the first sign) to the next grant.
	Takeover(keyspace string, cause state.Cause, d time.Duration)
	// Drained is the time from a drain to the release of the lease.
	Drained(keyspace string, d time.Duration)
	// Handoff is the time from a drain to the next grant.
	Handoff(keyspace string, cause state.Cause, d time.Duration)
	// Planned is how many balance moves are still to come, Imbalance the
	// greatest load over its fair share, Stuck the drains past their timeout.
	Planned(keyspace string, n int)
	Imbalance(keyspace string, ratio float64)
	Stuck(keyspace string, n int)
	// Refused counts grants that the state would not make, because the plan was
	// made from a view that was not true any more.
	Refused(keyspace string, n int)
}

// quiet is the Metrics of those who gave none.
type quiet struct{}

func (quiet) Moved(string, state.Cause, int)              {}
func (quiet) Takeover(string, state.Cause, time.Duration) {}
func (quiet) Drained(string, time.Duration)               {}
func (quiet) Handoff(string, state.Cause, time.Duration)  {}
func (quiet) Planned(string, int)                         {}
func (quiet) Imbalance(string, float64)                   {}
func (quiet) Stuck(string, int)                           {}
func (quiet) Refused(string, int)                         {}
