package state

import "fmt"

// bar keeps a session from renewals and grants. Its fenced leases go at once:
// the resource's guard sees to what it still does. Its strict ones last until
// they are released or expire, and so does the session, also with nothing
// held, so that its worker can be told why.
func (s *State) bar(x *Session, to SessionState, cause Cause) {
	died := to == SessionSuperseded && x.State == SessionLive
	x.State = to
	s.emitSession(KindSessionBar, x, cause)
	share := s.blame(x, s.seconds(), died, func(k *Keyspace) bool { return k.Settings.Takeover == Fenced })
	for i, id := range x.Keyspaces {
		if k := s.keyspaces[id]; k.Settings.Takeover == Fenced {
			s.takeAll(x, i, k, KindRevoke, cause, s.seconds(), share)
		}
	}
}

// expire ends sessions that have not been renewed. The conditions make it
// safe to propose on suspicion: a renewal in between, or a clock that has not
// come so far, refuses it.
func (s *State) expire(c *Expire, r *Result) {
	if r.Err = s.void("expire", c.Term); r.Err != nil {
		return
	}
	s.advance(c.Term, c.Elapsed)
	r.Sessions = make([]SessionResult, len(c.Sessions))
	for i, e := range c.Sessions {
		x, ok := s.sessions[e.Session]
		if !ok {
			r.Sessions[i].Err = noSession(e.Session)
			continue
		}
		r.Sessions[i].TTLMillis = x.TTL.Milliseconds()
		switch {
		case x.Renewal != e.Renewal:
			r.Sessions[i].Err = refuse(ReasonConflict, "session", "renewal", fmt.Sprint(e.Renewal), fmt.Sprintf("%d, the last one", x.Renewal))
		case x.Deadline > s.clock:
			r.Sessions[i].Err = refuse(ReasonConflict, "session", "deadline", x.Deadline.String(), fmt.Sprintf("reached; the clock is at %s", s.clock))
		default:
			s.endSession(x, KindExpire, KindSessionExpire, CauseExpired)
		}
	}
}

func (s *State) closeSession(c *CloseSession) error {
	x, ok := s.sessions[c.Session]
	if !ok {
		return noSession(c.Session)
	}
	s.endSession(x, KindRelease, KindSessionClose, CauseClosed)
	return nil
}

// endSession ends all leases of a session, then the session, and its keys with
// it at one revision.
func (s *State) endSession(x *Session, leases, session Kind, cause Cause) {
	died := session == KindSessionExpire && (x.State == SessionLive || x.State == SessionSuperseded)
	// A session that ran out was last known to live when it last renewed.
	alive := seconds(x.renewed)
	share := s.blame(x, alive, died, func(*Keyspace) bool { return true })
	leaseCause := cause
	switch {
	case session != KindSessionExpire:
	case x.State == SessionSuperseded:
		leaseCause = CauseSuperseded
	case x.State == SessionEvicted:
		leaseCause = CauseEvicted
	}
	for i, id := range x.Keyspaces {
		s.takeAll(x, i, s.keyspaces[id], leases, leaseCause, alive, share)
	}
	delete(s.sessions, x.ID)
	s.sessionOrder = removeBy(s.sessionOrder, x.ID, sessionKey)
	s.dropKeys(x)
	if x.isLease() {
		return
	}
	s.emitSession(session, x, cause)
	s.seats[x.seat] = nil
	s.freeSeats = append(s.freeSeats, x.seat)
	w := x.record
	w.sessions--
	w.seen = s.clock
	if w.Session == x.ID {
		w.Session = 0
	}
}

// takeAll ends every lease a session has in one keyspace, keeps them in its
// worker's slot, and where the session died counts that against the young
// ones (share 0: it did not). It costs O(held).
func (s *State) takeAll(x *Session, i int, k *Keyspace, kind Kind, cause Cause, alive, share uint32) {
	n := int(x.held[i].count)
	if n == 0 {
		return
	}
	parts := make([]uint32, 0, n)
	var young []uint32
	for p := x.held[i].head; p != none; {
		next := k.next[p]
		s.emitLease(kind, k, p, x, cause)
		if share > 0 && youngAt(k.since[p], alive) {
			young = append(young, p)
		}
		s.unassign(k, p, x, i)
		parts = append(parts, p)
		p = next
	}
	if !k.Deleting {
		s.keep(k, x, parts, false)
		for _, p := range young {
			s.suspect(k, p, x.Worker, share, true, "")
		}
	}
}
