package state

import "fmt"

// grant gives partitions away, each under its own conditions: what the
// planner saw must still be so.
func (s *State) grant(c *Grant, r *Result) {
	if r.Err = s.void("grant", c.Term); r.Err != nil {
		return
	}
	k, err := s.numbered(c.Keyspace)
	if err == nil && k.Deleting {
		err = refuse(ReasonDeleting, "keyspace", "name", k.Name, "a keyspace that is not being deleted")
	}
	if err == nil {
		err = s.held(k)
	}
	if err != nil {
		r.Err = err
		return
	}
	r.Tokens = make([]Token, len(c.Items))
	// Plans go worker by worker: remember the receiver of the item before.
	to := receiver{}
	for i := range c.Items {
		it := &c.Items[i]
		if i == 0 || it.Session != to.id {
			to = s.receiver(it.Session, k)
		}
		token, err := s.grantItem(k, it, to, c.Cause)
		if err != nil {
			r.setItem(i, len(c.Items), err)
			continue
		}
		r.Tokens[i] = token
	}
}

func (s *State) grantItem(k *Keyspace, it *GrantItem, to receiver, cause Cause) (Token, error) {
	p := it.Partition
	if err := k.hasPartition(p); err != nil {
		return 0, err
	}
	if k.token[p] != it.LastToken {
		return 0, k.stale(p, it.LastToken)
	}
	if k.holder[p] != 0 {
		return 0, k.leaseRefusal(ReasonConflict, p, "a partition without an owner")
	}
	if to.err != nil {
		return 0, to.err
	}
	if to.full() {
		return 0, to.fullRefusal()
	}
	token, err := s.nextToken()
	if err != nil {
		return 0, err
	}
	s.assign(k, p, to.x, to.list, token, cause)
	return token, nil
}

// receiver is a session looked at as one that is to be granted to.
type receiver struct {
	id   SessionID
	x    *Session
	list int // position of the keyspace in its lists
	err  error
}

// receiver finds out whether a session can be granted partitions of a
// keyspace, apart from its capacity.
func (s *State) receiver(id SessionID, k *Keyspace) receiver {
	t := receiver{id: id}
	t.x, t.err = s.unbarred(id)
	if t.err != nil {
		return t
	}
	var joined bool
	t.list, joined = t.x.list(k.ID)
	limit := ""
	switch {
	case k.Deleting:
		t.err = refuse(ReasonDeleting, "keyspace", "name", k.Name, "a keyspace that is not being deleted")
		return t
	case t.x.State != SessionLive:
		limit = "a session that is not leaving"
	case !joined:
		limit = "a session that has joined " + k.Name
	case t.x.record.Drained:
		limit = "a worker that is not drained"
	}
	if limit != "" {
		t.err = refuse(ReasonConflict, "session", "session_id", fmt.Sprint(uint64(id)), limit)
	}
	return t
}

func (t *receiver) full() bool { return t.x.Capacity > 0 && t.x.Held >= int(t.x.Capacity) }

func (t *receiver) fullRefusal() *Refusal {
	return refuse(ReasonConflict, "session", "session_id", fmt.Sprint(uint64(t.id)), fmt.Sprintf("below its capacity of %d", t.x.Capacity))
}

// leaseRefusal names the present token and owner of a partition.
func (k *Keyspace) leaseRefusal(reason Reason, p uint32, limit string) *Refusal {
	r := refuse(reason, "lease", "partition", fmt.Sprintf("%s/%d", k.Name, p), limit)
	r.Token = k.token[p]
	if x := k.owner(p); x != nil {
		r.Owner = x.Worker
	}
	return r
}

func (k *Keyspace) stale(p uint32, token Token) *Refusal {
	return k.leaseRefusal(ReasonStaleToken, p, fmt.Sprintf("token %d, not %d", k.token[p], token))
}
