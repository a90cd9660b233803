package state

import (
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// Lease limits, etcd's own.
const (
	MinLeaseTTL = 2             // seconds
	MaxLeaseTTL = 9_000_000_000 // seconds
)

// isLease reports whether a session belongs to no worker.
func (x *Session) isLease() bool { return x.Worker == "" }

// Granted is the TTL of an etcd lease in whole seconds; for a worker's session
// its TTL rounded down.
func (x *Session) Granted() int64 { return int64(x.TTL / time.Second) }

// Remaining is how long until the deadline at a reading of the clock; less
// than 0 when it has passed and the session has not been ended yet.
func (x *Session) Remaining(now Clock) time.Duration { return x.Deadline - now }

// grantLease opens a session without a worker. It is in no lease table, and
// the ledger, which is about ownership, has no event of it.
func (s *State) grantLease(c *GrantLease, r *Result) {
	switch {
	case c.Session == 0:
		r.Err = refuse(ReasonInvalid, "lease", "session_id", "0", "an id that is not 0")
		return
	case c.TTL > MaxLeaseTTL:
		r.Err = refuse(ReasonInvalid, "lease", "ttl", fmt.Sprint(c.TTL), fmt.Sprintf("at most %d seconds", int64(MaxLeaseTTL)))
		return
	}
	if r.Err = s.checkOwner(c, "lease", c.Owner); r.Err != nil {
		return
	}
	if _, ok := s.sessions[c.Session]; ok {
		r.Err = refuse(ReasonExists, "lease", "session_id", fmt.Sprint(uint64(c.Session)), "an id that no session uses")
		return
	}
	x := &Session{
		ID: c.Session, State: SessionLive, TTL: time.Duration(max(c.TTL, MinLeaseTTL)) * time.Second,
		Opened: s.clock, Renewal: s.index, renewed: s.clock, Owner: c.Owner,
	}
	x.Deadline = later(s.clock, x.TTL)
	s.addSession(x)
	s.refresh(x)
	r.Session = x.view()
}

func (s *State) revokeLease(c *RevokeLease) error {
	x, ok := s.sessions[c.Session]
	switch {
	case !ok:
		return mvcc.ErrLeaseNotFound
	case !x.isLease():
		return refuse(ReasonConflict, "lease", "session_id", fmt.Sprint(uint64(x.ID)),
			"a session that belongs to no worker; this one is worker "+x.Worker+"'s and ends with it")
	}
	s.endSession(x, KindRelease, KindSessionClose, CauseClosed)
	return nil
}
