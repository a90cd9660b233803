package state

import "fmt"

// revoke ends fenced leases without their holder.
func (s *State) revoke(c *Revoke, r *Result) {
	if r.Err = s.void("revoke", c.Term); r.Err != nil {
		return
	}
	k, err := s.numbered(c.Keyspace)
	if err == nil && k.Settings.Takeover != Fenced {
		err = refuse(ReasonStrict, "keyspace", "takeover", k.Settings.Takeover.String(), "fenced; a strict lease ends by release or expiry")
	}
	if err != nil {
		r.Err = err
		return
	}
	share := s.blameItems(k, c)
	for i := range c.Items {
		if err := s.revokeItem(k, &c.Items[i], c.Cause, share); err != nil {
			r.setItem(i, len(c.Items), err)
		}
	}
}

func (s *State) revokeItem(k *Keyspace, it *RevokeItem, cause Cause, share uint32) error {
	p := it.Partition
	if err := k.hasPartition(p); err != nil {
		return err
	}
	x := k.owner(p)
	if x == nil || x.ID != it.Session {
		return k.leaseRefusal(ReasonNotHolder, p, fmt.Sprintf("the session that holds it, not %d", uint64(it.Session)))
	}
	if k.token[p] != it.Token {
		return k.stale(p, it.Token)
	}
	i, _ := x.list(k.ID)
	young := youngAt(k.since[p], s.seconds())
	s.emitLease(KindRevoke, k, p, x, cause)
	s.unassign(k, p, x, i)
	if cause == CauseCrash && !k.Deleting {
		s.keep(k, x, []uint32{p}, false)
		if young && share > 0 && x.State == SessionLive {
			s.suspect(k, p, x.Worker, share, true, "")
		}
	}
	return nil
}
