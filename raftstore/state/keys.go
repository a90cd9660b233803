package state

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

const (
	// MaxCommandBytes is how long the encoding of one command may be that is
	// proposed. It has room for the largest request of etcd's, 1.5 MiB.
	MaxCommandBytes = 2 << 20
	// MaxSessionKeys is how many keys may be attached to one session. They all
	// go in one revision, which is one step of Apply and one message to each
	// watcher, so that there has to be a bound; etcd, which has none, stalls.
	MaxSessionKeys = 100_000
)

// Keys is the store of keys; it must not be changed.
func (s *State) Keys() *mvcc.Store { return s.keys }

// SessionKeys returns the keys attached to a session, in order.
func (s *State) SessionKeys(id SessionID) []string {
	x, ok := s.sessions[id]
	if !ok {
		return nil
	}
	return sortedKeys(x.keys)
}

// SequenceCount is how many prefixes have numbers.
func (s *State) SequenceCount() int { return len(s.sequences) }

// coordinate sends a command on keys, or a lease of them, to its noun.
func (s *State) coordinate(c Command, r *Result) {
	if r.Err = s.Permits(c); r.Err != nil {
		return
	}
	if len(s.alarms) > 0 && takesSpace(c) {
		r.Err = mvcc.ErrNoSpace
		return
	}
	switch c := c.(type) {
	case *Transact:
		s.transact(c, r)
	case *Compact:
		r.Err = s.keys.Compact(c.Revision)
	case *GrantLease:
		s.grantLease(c, r)
	case *RevokeLease:
		r.Err = s.revokeLease(c)
	case *Enqueue:
		s.enqueue(c, r)
	case *Sequence:
		s.sequence(c, r)
	case *SetAlarm:
		r.Err = s.setAlarm(c)
	}
}

// takesSpace reports whether a command is refused while space is short.
// Whatever frees some, and whatever keeps sessions alive, goes on.
func takesSpace(c Command) bool {
	switch c := c.(type) {
	case *Transact:
		return c.Txn.Puts()
	case *GrantLease, *Enqueue, *Sequence:
		return true
	}
	return false
}

func (s *State) transact(c *Transact, r *Result) {
	if r.Err = s.checkAttached(&c.Txn); r.Err != nil {
		return
	}
	r.KV, r.Err = s.change(&c.Txn, 0)
}

// change carries a transaction out and keeps the sessions' keys right.
func (s *State) change(t *mvcc.Txn, token Token) (*mvcc.TxnResult, error) {
	u, err := s.keys.Txn(t, s.attachable, uint64(token))
	if err != nil {
		return nil, err
	}
	for i := range u.Events {
		s.reattach(&u.Events[i])
	}
	return u.Result, nil
}

// attachable says whether keys may be attached to a session. A barred one is
// as good as gone: it cannot be renewed.
func (s *State) attachable(id int64) bool {
	x, ok := s.sessions[SessionID(id)]
	return ok && !x.barred()
}

// reattach follows one change of a key.
func (s *State) reattach(e *mvcc.Event) {
	before, after := int64(0), int64(0)
	if e.Prev != nil {
		before = e.Prev.Lease
	}
	if !e.Delete {
		after = e.KV.Lease
	}
	if before == after {
		return
	}
	if x := s.sessions[SessionID(before)]; before != 0 && x != nil {
		delete(x.keys, string(e.KV.Key))
	}
	if x := s.sessions[SessionID(after)]; after != 0 && x != nil {
		x.attach(e.KV.Key)
	}
}

func (x *Session) attach(key []byte) {
	if x.keys == nil {
		x.keys = make(map[string]struct{})
	}
	x.keys[string(key)] = struct{}{}
}

// dropKeys deletes what is attached to a session that has ended, in one
// revision.
func (s *State) dropKeys(x *Session) {
	if len(x.keys) > 0 {
		s.keys.DeleteKeys(sortedKeys(x.keys))
		x.keys = nil
	}
}

// checkAttached refuses a transaction that could attach too many keys to a
// session, whichever of its branches is taken.
func (s *State) checkAttached(t *mvcc.Txn) error {
	puts := puts(t, nil)
	for _, p := range puts {
		x := s.sessions[SessionID(p.Lease)]
		if x == nil || len(x.keys)+len(puts) <= MaxSessionKeys {
			continue
		}
		added := make(map[string]struct{})
		for _, o := range puts {
			if _, has := x.keys[string(o.Key)]; o.Lease == p.Lease && !has {
				added[string(o.Key)] = struct{}{}
			}
		}
		if len(x.keys)+len(added) > MaxSessionKeys {
			return fullSession(x, len(x.keys)+len(added))
		}
	}
	return nil
}

func fullSession(x *Session, n int) error {
	return refuse(ReasonInvalid, "session", "keys", strconv.Itoa(n),
		fmt.Sprintf("at most %d keys attached to one session; spread them over several", MaxSessionKeys))
}

// puts appends the puts of all branches that name a session.
func puts(t *mvcc.Txn, all []*mvcc.PutOp) []*mvcc.PutOp {
	for _, ops := range [][]mvcc.Op{t.Success, t.Failure} {
		for i := range ops {
			switch op := &ops[i]; {
			case op.Put != nil && op.Put.Lease != 0:
				all = append(all, op.Put)
			case op.Txn != nil:
				all = puts(op.Txn, all)
			}
		}
	}
	return all
}

// rebaseKeys is the part of a Rebase that is about keys. A cluster that cannot
// have had any is left as it is, for the sake of servers that know none; see
// raiseFeature.
func (s *State) rebaseKeys(revision int64) {
	if s.Feature() < featureKeys {
		return
	}
	s.keys.Rebase(revision, func(kv *mvcc.KeyValue) bool { return kv.Lease != 0 })
	s.alarms = nil
}

// Alarms are the members that have raised the alarm of no space, in order.
func (s *State) Alarms() []uint64 { return slices.Clone(s.alarms) }

// setAlarm raises or lowers a member's alarm; what is so already is done.
func (s *State) setAlarm(c *SetAlarm) error {
	i, raised := slices.BinarySearch(s.alarms, c.Member)
	switch {
	case raised == c.Raised:
	case raised:
		s.alarms = slices.Delete(s.alarms, i, i+1)
	case c.Member == 0:
		return refuse(ReasonInvalid, "alarm", "member", "0", "the id of a member, which is not 0")
	case len(s.alarms) >= MaxServers:
		return refuse(ReasonInvalid, "alarm", "member", fmt.Sprint(c.Member), fmt.Sprintf("alarms of at most %d members", MaxServers))
	default:
		s.alarms = slices.Insert(s.alarms, i, c.Member)
	}
	return nil
}
