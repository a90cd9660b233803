package controller

import (
	"context"
	"strconv"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// MoveTo starts an operator's move of a partition to a worker and returns when
// it has been logged, not when it has ended. What it cannot do it refuses with
// a *state.Refusal; a partition that is there already, or on its way there, is
// no error. The balancer leaves the partition alone for a while.
func (c *Controller) MoveTo(ctx context.Context, ks state.KeyspaceID, partition uint32, worker string) error {
	c.mu.Lock()
	p := c.proposer
	c.mu.Unlock()
	if p == nil {
		return ErrNotLeading
	}
	cmd, err := c.moveCommand(ks, partition, worker)
	if err != nil || cmd == nil {
		return err
	}
	c.mu.Lock()
	c.cool = append(c.cool, coolNote{ks, partition})
	c.mu.Unlock()
	res, err := p.Propose(ctx, cmd)
	if err != nil {
		return err
	}
	if res[0].Err != nil {
		return res[0].Err
	}
	if len(res[0].Items) > 0 && res[0].Items[0] != nil {
		return res[0].Items[0]
	}
	return nil
}

// moveCommand checks a move against the present state; nil when nothing is to do.
func (c *Controller) moveCommand(ks state.KeyspaceID, partition uint32, worker string) (cmd state.Command, err error) {
	refuse := func(why state.Reason, field, value, limit string) {
		err = &state.Refusal{Reason: why, What: "move partition", Field: field, Value: value, Limit: limit}
	}
	c.cfg.Store.View(func(s *state.State) {
		k, ok := s.Keyspace(ks)
		if !ok {
			refuse(state.ReasonNotFound, "keyspace", strconv.Itoa(int(ks)), "")
			return
		}
		num := strconv.FormatUint(uint64(partition), 10)
		switch {
		case k.Deleting:
			refuse(state.ReasonDeleting, "keyspace", k.Name, "")
			return
		case partition >= k.Partitions:
			refuse(state.ReasonNotFound, "partition", num, "0 to "+strconv.FormatUint(uint64(k.Partitions)-1, 10))
			return
		}
		w, ok := s.Worker(worker)
		if !ok || w.Session == 0 {
			refuse(state.ReasonNotFound, "worker", worker, "a worker with a session")
			return
		}
		to, ok := s.Session(w.Session)
		lease := k.Lease(partition)
		switch {
		case !ok:
			refuse(state.ReasonNotFound, "worker", worker, "a worker with a session")
		case lease.Session == to.ID && !lease.Draining:
		case to.State != state.SessionLive:
			refuse(state.ReasonConflict, "worker", worker, "a worker that is not leaving or barred")
		case w.Drained:
			refuse(state.ReasonConflict, "worker", worker, "a worker that is not drained; workers undrain lifts it")
		case !joined(to, ks):
			refuse(state.ReasonConflict, "worker", worker, "a worker that has joined keyspace "+k.Name)
		case to.Capacity > 0 && to.Held >= int(to.Capacity):
			refuse(state.ReasonConflict, "worker", worker, "a worker below its capacity of "+strconv.FormatUint(uint64(to.Capacity), 10))
		case lease.Session == 0:
			cmd = &state.Grant{Keyspace: ks, Cause: state.CauseOperator,
				Items: []state.GrantItem{{Partition: partition, LastToken: lease.Token, Session: to.ID}}}
		default:
			if m, moving := k.Move(partition); moving && m.Target == to.ID {
				return
			}
			cmd = &state.Drain{Keyspace: ks, Cause: state.CauseOperator, Timeout: k.Settings.HandoffTimeout,
				Items: []state.DrainItem{{Partition: partition, Token: lease.Token, Target: to.ID}}}
		}
	})
	return cmd, err
}

func joined(s *state.Session, ks state.KeyspaceID) bool {
	for _, k := range s.Keyspaces {
		if k == ks {
			return true
		}
	}
	return false
}
