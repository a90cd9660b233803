package state

import (
	"fmt"
	"time"
)

// A cluster that was restored from a backup does not know the sessions of the
// one before it, whose workers may still believe in their leases. So nothing
// is granted in strict keyspaces until the longest of those leases has run
// out, on the logical clock, which never runs ahead.

// StrictHold is how long nothing will be granted in strict keyspaces yet, on
// the logical clock; 0: it is not held.
func (s *State) StrictHold() time.Duration { return max(0, s.strictAt-s.clock) }

// held refuses a grant that comes too soon after a restore.
func (s *State) held(k *Keyspace) error {
	if k.Settings.Takeover != Strict || s.clock >= s.strictAt {
		return nil
	}
	return refuse(ReasonRestored, "keyspace", "name", k.Name,
		fmt.Sprintf("nothing strict for another %v: leases of before the restore have to run out", s.StrictHold().Round(time.Millisecond)))
}
