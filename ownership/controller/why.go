package controller

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// StuckMove is a drain past its timeout that only its holder can end.
type StuckMove struct {
	Keyspace  state.KeyspaceID
	Partition uint32
	Token     state.Token
	Session   state.SessionID
	Worker    string
	Cause     state.Cause
	// Deadline is when it should have been released, on the logical clock;
	// Overdue is how long ago that was when Stuck was called.
	Deadline state.Clock
	Overdue  time.Duration
}

// published is what readers see of the last plan of one keyspace. It is
// replaced as a whole and never changed.
type published struct {
	rest    Reason
	unowned []Unowned
	stuck   []StuckMove
	blocked map[state.SessionID]Reason
}

// Why says why a partition has no owner, or has one that does not work. The
// zero Reason: it is owned and well, or the plan has nothing against it. Only
// the leader knows; a follower says ErrNotLeading.
func (c *Controller) Why(ks state.KeyspaceID, p uint32) (Reason, error) {
	var lease state.Lease
	var now state.Clock
	var found bool
	c.cfg.Store.View(func(s *state.State) {
		k, ok := s.Keyspace(ks)
		if found = ok && p < k.Partitions; found {
			lease, now = k.Lease(p), s.Now()
		}
	})
	if !found {
		return Reason{}, &state.Refusal{Reason: state.ReasonNotFound, What: "partition"}
	}
	c.mu.Lock()
	leading, pub := c.proposer != nil, c.views[ks]
	c.mu.Unlock()
	if !leading {
		return Reason{}, ErrNotLeading
	}
	var r Reason
	switch {
	case pub == nil && lease.Session == 0:
		r = Reason{Code: CodePending}
	case pub == nil:
	case lease.Session != 0:
		r = pub.blocked[lease.Session]
		for _, m := range pub.stuck {
			if m.Partition == p && m.Token == lease.Token {
				r = Reason{Code: CodeStuck, Worker: m.Worker}
			}
		}
	default:
		r = pub.why(p)
	}
	if r.Until > now {
		r.Left = r.Until - now
	}
	return r, nil
}

func (p *published) why(partition uint32) Reason {
	i, ok := slices.BinarySearchFunc(p.unowned, partition, func(u Unowned, p uint32) int {
		return cmp.Compare(u.Partition, p)
	})
	switch {
	case ok:
		return p.unowned[i].Reason
	case p.rest.Code == CodeNone:
		return Reason{Code: CodePending}
	}
	return p.rest
}

// Stuck lists the drains past their timeout, over all keyspaces, by keyspace
// and partition. Empty while not leading.
func (c *Controller) Stuck() []StuckMove {
	var now state.Clock
	c.cfg.Store.View(func(s *state.State) { now = s.Now() })
	c.mu.Lock()
	var all []StuckMove
	for _, p := range c.views {
		all = append(all, p.stuck...)
	}
	c.mu.Unlock()
	for i := range all {
		all[i].Overdue = max(now-all[i].Deadline, 0)
	}
	slices.SortFunc(all, func(a, b StuckMove) int {
		return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), cmp.Compare(a.Partition, b.Partition))
	})
	return all
}
