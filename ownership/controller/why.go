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
	plan    *Planned
}

// Why says why a partition has no owner, or has one that does not work, of a lease
// of it that the caller has looked at: when that has changed since, nothing is said
// that is true of the next one only. The zero Reason: it is owned and well, or the
// plan has nothing against it. Only the leader knows; a follower says ErrNotLeading.
func (c *Controller) Why(ks state.KeyspaceID, p uint32, lease state.Lease) (Reason, error) {
	var now state.Clock
	c.cfg.Store.View(func(s *state.State) { now = s.Now() })
	c.mu.Lock()
	leading, pub := c.proposer != nil, c.views[ks]
	c.mu.Unlock()
	if !leading {
		return Reason{}, ErrNotLeading
	}
	r := pub.of(p, lease)
	if r.Until > now {
		r.Left = r.Until - now
	}
	return r, nil
}

// Blocked returns a test that says of a lease of ks what Why would: whether its
// Code is CodeBlocked. It is for looking at every partition at once, and goes by
// the plan of the time of this call. nil: none is, or this server does not lead.
func (c *Controller) Blocked(ks state.KeyspaceID) func(p uint32, l state.Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pub := c.views[ks]
	if c.proposer == nil || pub == nil {
		return nil
	}
	blocked := func(r Reason) bool { return r.Code == CodeBlocked }
	if len(pub.blocked) == 0 && !blocked(pub.rest) && !slices.ContainsFunc(pub.unowned, func(u Unowned) bool { return blocked(u.Reason) }) {
		return nil
	}
	return func(p uint32, l state.Lease) bool { return blocked(pub.of(p, l)) }
}

// of is the reason that the plan has for a lease.
func (p *published) of(partition uint32, l state.Lease) (r Reason) {
	switch {
	case p == nil && l.Session == 0:
		return Reason{Code: CodePending}
	case p == nil:
	case l.Session != 0:
		r = p.blocked[l.Session]
		for _, m := range p.stuck {
			if m.Partition == partition && m.Token == l.Token {
				r = Reason{Code: CodeStuck, Worker: m.Worker}
			}
		}
	default:
		return p.why(partition)
	}
	return r
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
