package state

import "fmt"

// Apply carries out one log entry and returns one Result per command. It
// never fails as a whole. Pointers in the results are copies that may be kept.
func (s *State) Apply(index, term uint64, b *Batch) []Result {
	s.index, s.term, s.wall = index, term, b.Wall.UnixMilli()
	results := make([]Result, len(b.Commands))
	var group uint64
	for i, c := range b.Commands {
		r := &results[i]
		r.Index = index
		if id := b.request(i); id != group {
			group = id
			if id != 0 && !s.requests.add(id) {
				group = 0
				r.Err = refuse(ReasonUnknownOutcome, "request", "id", fmt.Sprint(id), "an id that was not seen before")
				r.Revision, r.KVRevision = s.Revision(), s.keys.Revision()
				continue
			}
		}
		s.dispatch(c, r)
		if s.deleting > 0 {
			s.dropDeleted()
		}
		r.Revision, r.KVRevision = s.Revision(), s.keys.Revision()
	}
	return results
}

func (b *Batch) request(i int) uint64 {
	if i < len(b.Requests) {
		return b.Requests[i]
	}
	return 0
}

// dispatch sends a command to its noun. Before Bootstrap there is no token
// counter to grant from, so only what a first leader needs is let through.
func (s *State) dispatch(c Command, r *Result) {
	switch c := c.(type) {
	case *Bootstrap:
		r.Err = s.bootstrap(c)
		return
	case *Announce:
		r.Err = s.announce(c)
		return
	case *Tick:
		s.advance(c.Term, c.Elapsed)
		return
	case *skipped:
		return
	case nil:
		r.Err = refuse(ReasonInvalid, "command", "", "", "a known command")
		return
	}
	if s.clusterID == "" {
		r.Err = refuse(ReasonConflict, "cluster", "", "", "the cluster has not been bootstrapped")
		return
	}
	switch c := c.(type) {
	case *KeepAlive:
		s.keepAlive(c, r)
	case *Expire:
		s.expire(c, r)
	case *OpenSession:
		s.openSession(c, r)
	case *JoinKeyspace:
		s.joinKeyspace(c, r)
	case *LeaveSession:
		r.Err = s.leaveSession(c)
	case *CloseSession:
		r.Err = s.closeSession(c)
	case *CreateKeyspace:
		s.createKeyspace(c, r)
	case *UpdateKeyspace:
		s.updateKeyspace(c, r)
	case *DeleteKeyspace:
		r.Err = s.deleteKeyspace(c)
	case *Grant:
		s.grant(c, r)
	case *Release:
		s.release(c, r)
	case *Drain:
		s.drain(c, r)
	case *Revoke:
		s.revoke(c, r)
	case *BarWorker:
		r.Err = s.barWorker(c)
	case *Evict:
		r.Err = s.evict(c)
	case *Retry:
		r.Err = s.retry(c)
	case *RaiseToken:
		r.Err = s.raiseToken(c)
	case *RaiseFeature:
		r.Err = s.raiseFeature(c)
	case *Transact, *Compact, *GrantLease, *RevokeLease, *Enqueue, *Sequence, *SetAlarm:
		s.coordinate(c, r)
	case *PutCredential, *RevokeCredential, *SetKeyring:
		s.admit(c, r)
	default:
		r.Err = refuse(ReasonInvalid, "command", "number", fmt.Sprint(c.number()), "a known command")
	}
}

// void refuses a command of a leader's duties in any term but its own: what
// it was computed from may have changed under another leader.
func (s *State) void(what string, term uint64) error {
	if term == s.term {
		return nil
	}
	return refuse(ReasonVoidTerm, what, "term", fmt.Sprint(term), fmt.Sprintf("term %d", s.term))
}

// setItem records the refusal of item i of n; nil results stay nil slices as
// long as every item is done.
func (r *Result) setItem(i, n int, err error) {
	if r.Items == nil {
		r.Items = make([]error, n)
	}
	r.Items[i] = err
}
