package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/leasehold-dev/leasehold/ownership/controller"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/keyrange"
)

// partitions is PartitionService.
type partitions struct {
	pb.UnimplementedPartitionServiceServer
	*API
}

const defaultPartitionLimit = 10_000

func (a *partitions) ListPartitions(ctx context.Context, r *pb.ListPartitionsRequest) (*pb.ListPartitionsResponse, error) {
	if r.GetWorker() != "" {
		if err := checkName("worker", r.GetWorker()); err != nil {
			return nil, err
		}
	}
	limit, err := limitOf(r.GetLimit(), defaultPartitionLimit)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListPartitionsResponse{}
	var id state.KeyspaceID
	var bad error
	err = a.look(ctx, r.GetStale(), "keyspace", r.GetKeyspace(), func(s *state.State, ks *state.Keyspace) {
		if r.GetFirst() >= ks.Partitions {
			bad = outOfRange("first", r.GetFirst(), ks.Partitions)
			return
		}
		id = ks.ID
		for p := r.GetFirst(); p < ks.Partitions; p++ {
			if !matches(s, ks, p, r) {
				continue
			}
			if len(resp.Items) == limit {
				resp.Next = p
				return
			}
			resp.Items = append(resp.Items, partitionOf(s, ks, p))
		}
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, err
	}
	for _, item := range resp.Items {
		a.explain(id, item)
	}
	return resp, nil
}

func matches(s *state.State, ks *state.Keyspace, p uint32, r *pb.ListPartitionsRequest) bool {
	l := ks.Lease(p)
	if r.GetUnowned() && l.Session != 0 {
		return false
	}
	if r.GetWorker() == "" {
		return true
	}
	sess, ok := s.Session(l.Session)
	return ok && sess.Worker == r.GetWorker()
}

func (a *partitions) GetPartition(ctx context.Context, r *pb.GetPartitionRequest) (*pb.Partition, error) {
	return a.one(ctx, r.GetStale(), r.GetKeyspace(), func(*state.Keyspace) uint32 { return r.GetPartition() })
}

func (a *partitions) Locate(ctx context.Context, r *pb.LocateRequest) (*pb.Partition, error) {
	return a.one(ctx, r.GetStale(), r.GetKeyspace(), func(ks *state.Keyspace) uint32 {
		return keyrange.Partition(r.GetKey(), ks.Partitions)
	})
}

func (a *partitions) MovePartition(ctx context.Context, r *pb.MovePartitionRequest) (*pb.Partition, error) {
	if err := checkName("to", r.GetTo()); err != nil {
		return nil, err
	}
	return a.after(ctx, r.GetKeyspace(), r.GetPartition(), func(id state.KeyspaceID) error {
		err := a.cfg.Controller.MoveTo(ctx, id, r.GetPartition(), r.GetTo())
		var refusal *state.Refusal
		if errors.As(err, &refusal) && refusal.Field == "worker" {
			d := detailOfRefusal(refusal)
			d.Field = "to" // as the caller knows it
			return fail(d)
		}
		return err
	})
}

func (a *partitions) RetryPartition(ctx context.Context, r *pb.RetryPartitionRequest) (*pb.Partition, error) {
	return a.after(ctx, r.GetKeyspace(), r.GetPartition(), func(id state.KeyspaceID) error {
		return a.propose(ctx, &state.Retry{Keyspace: id, Partition: r.GetPartition()})
	})
}

// after does something about one partition and answers with what it then is.
func (a *partitions) after(ctx context.Context, keyspace string, p uint32, do func(state.KeyspaceID) error) (*pb.Partition, error) {
	var id state.KeyspaceID
	var bad error
	err := a.look(ctx, false, "keyspace", keyspace, func(_ *state.State, ks *state.Keyspace) {
		id = ks.ID
		if p >= ks.Partitions {
			bad = outOfRange("partition", p, ks.Partitions)
		}
	})
	if err == nil {
		err = bad
	}
	if err == nil {
		err = do(id)
	}
	if err != nil {
		return nil, err
	}
	// Its effect has been applied here: no barrier is needed to see it.
	return a.one(ctx, true, keyspace, func(*state.Keyspace) uint32 { return p })
}

func (a *partitions) one(ctx context.Context, stale bool, keyspace string, which func(*state.Keyspace) uint32) (m *pb.Partition, err error) {
	var bad error
	var id state.KeyspaceID
	err = a.look(ctx, stale, "keyspace", keyspace, func(s *state.State, ks *state.Keyspace) {
		p := which(ks)
		if p >= ks.Partitions {
			bad = outOfRange("partition", p, ks.Partitions)
			return
		}
		id, m = ks.ID, partitionOf(s, ks, p)
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, err
	}
	a.explain(id, m)
	return m, nil
}

// explain adds what only the leader's controller knows.
func (a *partitions) explain(id state.KeyspaceID, m *pb.Partition) {
	why, err := a.cfg.Controller.Why(id, m.GetPartition(), leaseOf(m))
	if err != nil || why.Code == controller.CodeNone {
		return
	}
	m.Reason = why.String()
	m.State = withPlan(m.GetState(), why.Code == controller.CodeBlocked)
}

// leaseOf is what the controller needs of the lease that m was made of.
func leaseOf(m *pb.Partition) state.Lease {
	return state.Lease{Session: state.SessionID(m.GetSessionId()), Token: state.Token(m.GetToken())}
}

func partitionOf(s *state.State, ks *state.Keyspace, p uint32) *pb.Partition {
	l := ks.Lease(p)
	first, last := keyrange.Range(p, ks.Partitions)
	index, _ := s.Applied()
	m := &pb.Partition{
		Keyspace: ks.Name, Partition: p, Token: uint64(l.Token), SessionId: uint64(l.Session),
		RangeFirst: fmt.Sprintf("%016x", first), RangeLast: fmt.Sprintf("%016x", last), Index: index,
		State: stateOf(s, ks, p, l),
	}
	if sess, ok := s.Session(l.Session); ok {
		m.Owner, m.Endpoint = sess.Worker, sess.Endpoint
		m.HeldMs = max(0, (s.Now() - l.Since).Milliseconds())
		if barred(sess) {
			m.Reason = fmt.Sprintf("held by a session of worker %s that is %s, until it releases or expires", sess.Worker, sess.State.String())
		}
	}
	if mv, ok := ks.Move(p); ok {
		m.Cause = causeName(mv.Cause)
		if target, ok := s.Session(mv.Target); ok {
			m.Target = target.Worker
		}
	}
	if sus, ok := ks.Suspect(p); ok {
		m.Failures = int32(len(sus.Workers))
		if m.State == pb.PartitionState_PARTITION_STATE_QUARANTINED {
			m.Reason = "failed on " + strconv.Itoa(len(sus.Workers)) + " workers; partitions retry ends the quarantine"
			if sus.LastError != "" {
				m.Reason += " (last error: " + sus.LastError + ")"
			}
		}
	}
	return m
}

// stateOf is the state of a partition as the state machine has it; withPlan adds
// what only the leader's controller knows.
func stateOf(s *state.State, ks *state.Keyspace, p uint32, l state.Lease) pb.PartitionState {
	sess, owned := s.Session(l.Session)
	switch {
	case owned && barred(sess):
		return pb.PartitionState_PARTITION_STATE_BLOCKED
	case owned && l.Draining:
		return pb.PartitionState_PARTITION_STATE_DRAINING
	case owned:
		return pb.PartitionState_PARTITION_STATE_OWNED
	}
	if sus, ok := ks.Suspect(p); ok && sus.Quarantined {
		return pb.PartitionState_PARTITION_STATE_QUARANTINED
	}
	return pb.PartitionState_PARTITION_STATE_UNOWNED
}

// barred tells sessions that can neither renew nor be granted to.
func barred(sess *state.Session) bool {
	return sess.State == state.SessionSuperseded || sess.State == state.SessionEvicted
}

// withPlan is the state of a partition that the plan calls blocked.
func withPlan(st pb.PartitionState, blocked bool) pb.PartitionState {
	if blocked && st != pb.PartitionState_PARTITION_STATE_UNOWNED {
		return pb.PartitionState_PARTITION_STATE_BLOCKED
	}
	return st
}

func outOfRange(field string, p, partitions uint32) error {
	d := pb.DetailOf(notFound("partition", field, strconv.FormatUint(uint64(p), 10)))
	d.Limit = fmt.Sprintf("0 to %d", partitions-1)
	d.Message = fmt.Sprintf("%s %d: want %s", field, p, d.Limit)
	return fail(d)
}

// limitOf is how many items a list may have.
func limitOf(asked uint32, byDefault int) (int, error) {
	if asked > maxListLimit {
		return 0, invalid("limit", strconv.FormatUint(uint64(asked), 10), fmt.Sprintf("want 0 (%d) to %d", byDefault, maxListLimit))
	}
	if asked == 0 {
		return byDefault, nil
	}
	return int(asked), nil
}
