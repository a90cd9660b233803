package worker

import (
	"log/slog"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// changes takes what happened to the session's leases, in log order.
func (c *core) changes(m *leaseholdv1.LeaseChanges, now reading) {
	c.index = max(c.index, m.GetIndex())
	for _, g := range m.GetRevoked() {
		c.each(g, func(l *Lease, _ int) { c.revoke(l, causeOf(g.GetCause()), now) })
	}
	for _, g := range m.GetGranted() {
		c.granted(g, m.GetIndex(), now)
	}
	for _, g := range m.GetDrain() {
		left := time.Duration(g.GetDrainMs()) * time.Millisecond
		c.each(g, func(l *Lease, _ int) { c.drain(l, left, now) })
	}
}

// list takes the full list of what the session holds. What is missing from it
// is not held any more, unless it was granted later than the list was made.
func (c *core) list(m *leaseholdv1.LeaseList, now reading) {
	c.serial++
	for _, g := range m.GetGranted() {
		c.granted(g, m.GetIndex(), now)
		left := time.Duration(g.GetDrainMs()) * time.Millisecond
		c.each(g, func(l *Lease, _ int) {
			l.slot.serial = c.serial
			if left > 0 {
				c.drain(l, left, now)
			}
		})
	}
	for _, sp := range c.spaces {
		for _, l := range sp.held {
			if l.slot.serial == c.serial || l.index > m.GetIndex() {
				continue
			}
			c.endLive(l, ErrRevoked, now)
			c.giveUp(l)
		}
	}
	c.index = max(c.index, m.GetIndex())
}

// granted takes leases of one keyspace, new or known.
func (c *core) granted(g *leaseholdv1.Leases, index uint64, now reading) {
	tokens := g.GetTokens()
	sp := c.spaces[g.GetKeyspaceId()]
	if sp == nil {
		c.log(slog.LevelWarn, "leases of an unknown keyspace refused", "keyspace_id", g.GetKeyspaceId(), "leases", len(tokens))
		for i, p := range g.GetPartitions() {
			if i < len(tokens) {
				c.releaseRef(ref{g.GetKeyspaceId(), p, tokens[i]}, leaseholdv1.ReleaseCause_RELEASE_CAUSE_REFUSED, "unknown keyspace")
			}
		}
		return
	}
	previous, owners := g.GetPrevious(), g.GetPreviousOwners()
	var fresh []Lease // one allocation for all that is new
	for i, p := range g.GetPartitions() {
		if i >= len(tokens) || p >= sp.partitions || tokens[i] == 0 {
			continue
		}
		token := fence.Token(tokens[i])
		if !sp.see(p, token) {
			c.again(sp, p, token)
			continue
		}
		if len(fresh) == 0 {
			fresh = make([]Lease, len(tokens)-i)
		}
		l := &fresh[0]
		fresh = fresh[1:]
		l.space, l.partition, l.token, l.index, l.session = sp, p, token, index, c.session.id
		if i < len(previous) && previous[i] > 0 && int(previous[i]) <= len(owners) {
			l.previous = owners[previous[i]-1]
		}
		c.accept(l, now)
	}
}

// again answers a grant of a token seen before. The present one is no news; an
// older one is late; one that is over and that the servers still believe in
// goes back.
func (c *core) again(sp *space, p uint32, token fence.Token) {
	if l := sp.held[p]; l != nil && l.token == token || token < sp.highest[p] {
		return
	}
	c.releaseRef(ref{sp.id, p, uint64(token)}, leaseholdv1.ReleaseCause_RELEASE_CAUSE_ENDED, "")
}

// each calls f for those leases of a message that are held with just that token.
func (c *core) each(g *leaseholdv1.Leases, f func(l *Lease, i int)) {
	sp := c.spaces[g.GetKeyspaceId()]
	if sp == nil {
		return
	}
	tokens := g.GetTokens()
	for i, p := range g.GetPartitions() {
		if i >= len(tokens) {
			return
		}
		if l := sp.held[p]; l != nil && uint64(l.token) == tokens[i] {
			f(l, i)
		}
	}
}

// revoke ends a lease that the servers took back. A fenced one is gone at the
// servers; a strict one is gone when we have released it.
func (c *core) revoke(l *Lease, cause error, now reading) {
	if l.space.fenced {
		c.endLive(l, cause, now)
		c.giveUp(l)
		return
	}
	c.end(l, cause, now)
}
