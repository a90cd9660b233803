package state

import "fmt"

// release gives leases back and hands them on in the same command where a
// drain has named who is next.
func (s *State) release(c *Release, r *Result) {
	switch c.Cause {
	case CauseDrained, CauseYield, CauseFailed, CauseEnded, CauseClaimRefused, CauseRefused:
	default:
		r.Err = refuse(ReasonInvalid, "release", "cause", c.Cause.String(), "drained, yield, failed, ended, claim_refused or refused")
		return
	}
	text := printable(shorten(c.Error, MaxTextLen))
	for i := range c.Items {
		if err := s.releaseItem(c, &c.Items[i], text); err != nil {
			r.setItem(i, len(c.Items), err)
		}
	}
}

func (s *State) releaseItem(c *Release, it *LeaseRef, text string) error {
	k, err := s.numbered(it.Keyspace)
	if err != nil {
		return err
	}
	p := it.Partition
	if err := k.hasPartition(p); err != nil {
		return err
	}
	x := k.owner(p)
	if x == nil || x.ID != c.Session {
		return k.leaseRefusal(ReasonNotHolder, p, fmt.Sprintf("the session that holds it, not %d", uint64(c.Session)))
	}
	if k.token[p] != it.Token {
		return k.stale(p, it.Token)
	}
	move, draining := k.moves[p]
	i, _ := x.list(k.ID)
	s.emitLease(KindRelease, k, p, x, c.Cause)
	s.unassign(k, p, x, i)
	switch c.Cause {
	case CauseFailed:
		s.suspect(k, p, x.Worker, wholeBlame, false, text)
		return nil
	case CauseClaimRefused:
		// The resource has seen a higher token: the counter has to be raised
		// before anyone's claim can succeed.
		return nil
	}
	reserve := move.Reserve
	if !draining {
		// A worker that stops and has heard no drain lets go by itself.
		reserve = x.State == SessionLeaving && x.Restart
	}
	if reserve || x.State == SessionLeaving || x.State == SessionSuperseded {
		s.keep(k, x, []uint32{p}, reserve)
	}
	if draining && move.Target != 0 && !move.Reserve {
		s.handOn(k, p, move)
	}
	return nil
}

// handOn grants a released partition to the target of its drain. A target
// that cannot receive any more leaves it unowned, for the planner to place.
func (s *State) handOn(k *Keyspace, p uint32, move Move) {
	to := s.receiver(move.Target, k)
	if to.err != nil || to.full() {
		return
	}
	if token, err := s.nextToken(); err == nil {
		s.assign(k, p, to.x, to.list, token, move.Cause)
	}
}
