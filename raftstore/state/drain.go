package state

import (
	"fmt"
	"iter"
	"time"
)

// Move is a drain in progress. There is one per draining lease.
type Move struct {
	Partition uint32
	Token     Token
	Target    SessionID // 0: release only
	Reserve   bool
	Deadline  Clock
	Started   Clock
	Cause     Cause
}

// Moves yields the drains in progress by partition.
func (k *Keyspace) Moves() iter.Seq[Move] {
	return func(yield func(Move) bool) {
		for _, p := range sortedKeys(k.moves) {
			if !yield(k.moves[p]) {
				return
			}
		}
	}
}

// Move returns the drain in progress of one partition.
func (k *Keyspace) Move(p uint32) (Move, bool) {
	m, ok := k.moves[p]
	return m, ok
}

// drain asks holders to finish, or changes who is next.
func (s *State) drain(c *Drain, r *Result) {
	if r.Err = s.void("drain", c.Term); r.Err != nil {
		return
	}
	k, err := s.numbered(c.Keyspace)
	switch {
	case err != nil:
	case k.Deleting:
		err = refuse(ReasonDeleting, "keyspace", "name", k.Name, "a keyspace that is not being deleted")
	case c.Timeout < 0 || c.Timeout > MaxHandoffTimeout:
		err = refuse(ReasonInvalid, "drain", "timeout", c.Timeout.String(), fmt.Sprintf("0 to %s", MaxHandoffTimeout))
	}
	if err != nil {
		r.Err = err
		return
	}
	for i := range c.Items {
		if err := s.drainItem(k, &c.Items[i], c.Timeout, c.Cause); err != nil {
			r.setItem(i, len(c.Items), err)
		}
	}
}

func (s *State) drainItem(k *Keyspace, it *DrainItem, timeout time.Duration, cause Cause) error {
	p := it.Partition
	if err := k.hasPartition(p); err != nil {
		return err
	}
	if k.token[p] != it.Token {
		return k.stale(p, it.Token)
	}
	x := k.owner(p)
	if x == nil {
		return k.leaseRefusal(ReasonNotHolder, p, "a partition with an owner")
	}
	if it.Target != 0 {
		if it.Target == x.ID {
			return k.leaseRefusal(ReasonConflict, p, "a target that is not the holder")
		}
		// Capacity is looked at when the lease is handed on: the target may
		// be giving something up meanwhile.
		if to := s.receiver(it.Target, k); to.err != nil {
			return to.err
		}
	}
	s.setMove(k, p, x, *it, timeout, cause)
	return nil
}

// setMove marks a lease as draining. A drain that is already under way keeps
// its start, and its deadline unless the new one is sooner: the holder has
// been told it.
func (s *State) setMove(k *Keyspace, p uint32, x *Session, it DrainItem, timeout time.Duration, cause Cause) {
	m := Move{
		Partition: p, Token: k.token[p], Target: it.Target, Reserve: it.Reserve,
		Deadline: s.clock + timeout, Started: s.clock, Cause: cause,
	}
	if old, ok := k.moves[p]; ok {
		m.Started, m.Deadline = old.Started, min(old.Deadline, m.Deadline)
		if m == old {
			return
		}
	} else {
		k.flags[p] |= flagDraining
		k.Draining++
	}
	k.moves[p] = m
	s.emitLease(KindDrain, k, p, x, cause).Target = it.Target
}
