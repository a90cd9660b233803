package state

import (
	"fmt"
	"time"
)

// Rebase makes a state the first one of a new cluster: what is left of an old
// cluster's once nobody can speak for its sessions any more.
type Rebase struct {
	// ClusterID of the new cluster; it must differ from the old one's.
	ClusterID string
	// Index and Term of the snapshot that the new cluster begins with. They
	// must be above those of the state, so that nothing that is ordered by
	// them ever goes back.
	Index, Term uint64
	// First is a token, and an event revision, above all that the old cluster
	// can have given out since the backup was made; see FirstToken. What the
	// state has already raises it further.
	First Token
	// Hold is how long nothing is granted in strict keyspaces at least; what
	// the state tells of TTLs raises it further.
	Hold time.Duration
	// Wall goes into the one event.
	Wall time.Time
}

// Rebase turns s into the state of a new cluster:
//
//   - kept: keyspaces with their ids, settings and partitions, the last token
//     of every partition, as the condition of its next grant, and who had it;
//     keys that no session holds, and the numbers of sequences; workers that
//     an operator has drained; credentials, also those that were revoked after
//     the backup was made; the feature level; the clock
//   - raised: the token counter, the event revision and the revision of keys
//   - dropped: sessions with their leases and keys, the history of keys,
//     alarms, moves, slots, suspects, request ids, servers, keyspaces that were
//     being deleted, the keys of gossip, since the servers of the new cluster
//     begin with those that they are given, and the ledger, in which one event
//     stands for it
//
// Workers of the old cluster may go on for up to a TTL, so nothing strict is
// granted before that is over; see StrictHold. A state that cannot be rebased
// is left as it was.
func (s *State) Rebase(r Rebase) error {
	if err := s.checkRebase(&r); err != nil {
		return err
	}
	old, hold := s.clusterID, max(r.Hold, s.LongestTTL(), s.StrictHold())
	last := max(s.lastToken, r.First-1)
	revision := max(s.Revision(), uint64(r.First)-1) + 1

	s.index, s.term, s.wall = r.Index, r.Term, r.Wall.UnixMilli()
	s.dropSuspects()
	s.rebaseKeys(int64(r.First - 1))
	s.dropSessions()
	s.dropDeleted()
	s.keepDrained()
	s.servers, s.leader, s.leaderTerm = nil, "", 0
	s.requests = newRequestWindow()
	s.keyring = Keyring{}
	// A term of the new cluster may not be taken for one that was counted in.
	s.clockTerm = 0
	s.clusterID, s.lastToken, s.strictAt = r.ClusterID, last, s.clock+hold

	s.ledger = ledger{first: revision - 1}
	e := s.emit(KindRestore, CauseNone)
	e.From, e.Token = old, last
	return nil
}

func (s *State) checkRebase(r *Rebase) error {
	if err := ValidateName("cluster", "cluster_id", r.ClusterID); err != nil {
		return err
	}
	switch {
	case r.ClusterID == s.clusterID:
		return refuse(ReasonConflict, "cluster", "cluster_id", r.ClusterID, "an id other than that of the old cluster")
	case r.Index <= s.index || r.Term <= s.term:
		return refuse(ReasonConflict, "cluster", "index", fmt.Sprintf("%d, term %d", r.Index, r.Term),
			fmt.Sprintf("above %d, term %d", s.index, s.term))
	case r.First == 0 || r.First > MaxToken:
		return refuse(ReasonInvalid, "cluster", "first_token", fmt.Sprint(uint64(r.First)), fmt.Sprintf("1 to %d", uint64(MaxToken)))
	case r.Hold < 0 || r.Hold > MaxTTL:
		return refuse(ReasonInvalid, "cluster", "hold", r.Hold.String(), fmt.Sprintf("0 to %s", MaxTTL))
	}
	return nil
}

// LongestTTL is how long after its last keep-alive a worker may believe in a
// lease, whichever it is: the longest TTL of any keyspace or worker's session.
func (s *State) LongestTTL() time.Duration {
	longest := time.Duration(0)
	for _, k := range s.keyspaceOrder {
		longest = max(longest, k.Settings.TTL)
	}
	for _, x := range s.sessionOrder {
		// A TTL that was lowered counts from the next keep-alive on.
		if !x.isLease() {
			longest = max(longest, x.TTL, x.Deadline-s.clock)
		}
	}
	return longest
}

// dropSuspects forgets failures and what was kept for workers.
func (s *State) dropSuspects() {
	for _, k := range s.keyspaceOrder {
		clear(k.suspects)
		k.Quarantined = 0
		k.slots = nil
		k.LastJoin = s.clock
	}
}

// dropSessions ends every lease and forgets all sessions. The tokens stay.
func (s *State) dropSessions() {
	for _, x := range s.sessionOrder {
		for i, id := range x.Keyspaces {
			k := s.keyspaces[id]
			for p := x.held[i].head; p != none; p = x.held[i].head {
				s.unassign(k, p, x, i)
			}
		}
	}
	clear(s.sessions)
	s.sessionOrder, s.seats, s.freeSeats, s.fresh = nil, []*Session{nil}, nil, nil
}

// keepDrained forgets all workers but those that an operator has drained.
func (s *State) keepDrained() {
	kept := s.workerOrder[:0]
	for _, w := range s.workerOrder {
		if !w.Drained {
			delete(s.workers, w.ID)
			continue
		}
		// No session of the new cluster can have an index as low as 1.
		w.Session, w.sessions, w.Incarnation, w.seen = 0, 0, 1, s.clock
		kept = append(kept, w)
	}
	clear(s.workerOrder[len(kept):])
	s.workerOrder = kept
}
