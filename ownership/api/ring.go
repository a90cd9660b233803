package api

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/leasehold-dev/leasehold/ownership/controller"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// maxSimulated bounds the workers that one simulation adds or removes.
const maxSimulated = 1000

// rings is RingService.
type rings struct {
	pb.UnimplementedRingServiceServer
	*API
}

func (a *rings) GetRing(ctx context.Context, r *pb.GetRingRequest) (*pb.Ring, error) {
	plan, sight, err := a.planned(ctx, r.GetKeyspace())
	if err != nil {
		return nil, err
	}
	m := &pb.Ring{Keyspace: r.GetKeyspace(), Index: sight.index}
	in := &plan.Input
	var row []uint32
	m.Members, row = membersOf(plan, sight)
	circle := plan.Circle()
	if circle == nil {
		return m, nil
	}
	h := fnv.New64a()
	byMember := make([]uint32, len(plan.Ring.Members()))
	for i, id := range plan.Ring.Members() {
		_, _ = h.Write(append([]byte(id), 0)) // never fails
		if w := in.RingWorkers[i]; w >= 0 {
			byMember[i] = row[w]
			continue
		}
		byMember[i] = uint32(len(m.Members)) // went since the ring was made
		m.Members = append(m.Members, &pb.RingMember{Worker: id, State: "gone"})
	}
	m.Version = fmt.Sprintf("%016x", h.Sum64())
	for _, o := range plan.Ring.Owners() {
		if o >= 0 {
			m.Members[byMember[o]].Placed++
		}
	}
	if !r.GetPoints() {
		return m, nil
	}
	m.Points = make([]*pb.RingPoint, 0, len(circle.Points()))
	for _, p := range circle.Points() {
		m.Points = append(m.Points, &pb.RingPoint{Position: fmt.Sprintf("%016x", p.Position), Member: byMember[p.Member]})
	}
	m.Placement = make([]uint32, len(plan.Ring.Owners()))
	for p, o := range plan.Ring.Owners() {
		m.Placement[p] = byMember[max(o, 0)] // with points, nobody is placed nowhere
	}
	return m, nil
}

// sight is what is read of a keyspace beside its plan.
type sight struct {
	id    state.KeyspaceID
	index uint64
	held  map[state.SessionID]int
	state map[state.SessionID]string
}

// planned reads a keyspace and the leader's last plan of it.
func (a *API) planned(ctx context.Context, keyspace string) (*controller.Planned, sight, error) {
	g := sight{held: map[state.SessionID]int{}, state: map[state.SessionID]string{}}
	deleting := false
	err := a.look(ctx, false, "keyspace", keyspace, func(s *state.State, ks *state.Keyspace) {
		g.id, deleting = ks.ID, ks.Deleting
		g.index, _ = s.Applied()
		for x := range s.Sessions() {
			if slices.Contains(x.Keyspaces, ks.ID) {
				g.held[x.ID], g.state[x.ID] = s.HeldCount(x.ID, ks.ID), x.State.String()
			}
		}
	})
	if err != nil {
		return nil, g, err
	}
	if deleting {
		return nil, g, failf(pb.ReasonDeleting, "keyspace %q is being deleted: nothing is planned for it", keyspace)
	}
	plan, err := a.cfg.Controller.Planned(g.id)
	if err == nil && plan == nil {
		err = noLeader("this server has just become the leader: keyspace " + keyspace + " has no plan yet")
	}
	if errors.Is(err, controller.ErrNotLeading) {
		err = a.notLeader()
	}
	return plan, g, err
}

// membersOf lists the workers of a plan by id, and the row of each.
func membersOf(plan *controller.Planned, g sight) (members []*pb.RingMember, row []uint32) {
	in := &plan.Input
	order := make([]int, len(in.Workers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return controller.ByName(&in.Workers[a], &in.Workers[b]) })
	row = make([]uint32, len(in.Workers))
	for k, i := range order {
		w := &in.Workers[i]
		row[i] = uint32(k)
		m := memberOf(w, plan.Output.Shares, i)
		m.Held, m.State = int64(g.held[w.Session]), g.state[w.Session]
		if m.State == "" {
			m.State = "gone" // since the plan was made
		}
		members = append(members, m)
	}
	return members, row
}

func memberOf(w *controller.Worker, shares []controller.Share, i int) *pb.RingMember {
	m := &pb.RingMember{Worker: w.ID, Capacity: w.Capacity, Draining: w.Drained}
	if i < len(shares) {
		m.Fair, m.Most = shares[i].Fair, int64(shares[i].Most)
	}
	return m
}

func (a *rings) SimulateRing(ctx context.Context, r *pb.SimulateRingRequest) (*pb.Simulation, error) {
	if err := checkSimulated(r); err != nil {
		return nil, err
	}
	plan, _, err := a.planned(ctx, r.GetKeyspace())
	if err != nil {
		return nil, err
	}
	change, err := changeOf(r, &plan.Input)
	if err != nil {
		return nil, err
	}
	select { // one at a time: it takes a processor for as long as it runs
	case a.simulating <- struct{}{}:
		defer func() { <-a.simulating }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	res, err := controller.Simulate(ctx, plan.Input, change)
	if errors.Is(err, controller.ErrUnsettled) {
		return nil, failf(pb.ReasonConflict, "keyspace %q: %v", r.GetKeyspace(), err)
	}
	if err != nil {
		return nil, err
	}
	m := &pb.Simulation{Kept: int64(res.Kept), Before: simulatedMembers(res.Before), After: simulatedMembers(res.After)}
	for _, mv := range res.Moves {
		m.Moves = append(m.Moves, &pb.SimulatedMove{Partition: mv.Partition, From: mv.From, To: mv.To, Cause: causeName(mv.Cause)})
	}
	return m, nil
}

func simulatedMembers(list []controller.SimulatedWorker) []*pb.RingMember {
	members := make([]*pb.RingMember, 0, len(list))
	for i := range list {
		w := &list[i]
		members = append(members, &pb.RingMember{
			Worker: w.ID, Placed: int64(w.Placed), Held: int64(w.Here), Fair: w.Fair, Most: int64(w.Most),
			Capacity: w.Capacity, Draining: w.Drained, State: w.Standing.String(),
		})
	}
	return members
}

// checkSimulated looks at what can be refused without looking at the cluster.
func checkSimulated(r *pb.SimulateRingRequest) error {
	if n := len(r.GetAdd()); n > maxSimulated {
		return invalid("add", strconv.Itoa(n), fmt.Sprintf("want at most %d workers", maxSimulated))
	}
	if n := len(r.GetRemove()); n > maxSimulated {
		return invalid("remove", strconv.Itoa(n), fmt.Sprintf("want at most %d workers", maxSimulated))
	}
	seen := map[string]bool{}
	for _, w := range r.GetAdd() {
		if err := checkName("add.id", w.GetId()); err != nil {
			return err
		}
		if err := checkText("add.zone", w.GetZone(), state.MaxTextLen); err != nil {
			return err
		}
		if seen[w.GetId()] {
			return invalid("add.id", w.GetId(), "want each worker once")
		}
		seen[w.GetId()] = true
	}
	for _, id := range r.GetRemove() {
		if err := checkName("remove", id); err != nil {
			return err
		}
		if seen[id] {
			return invalid("remove", id, "want each worker once, either added or removed")
		}
		seen[id] = true
	}
	return nil
}

// changeOf holds the workers of a simulation against those that are there.
func changeOf(r *pb.SimulateRingRequest, in *controller.Input) (ch controller.Change, err error) {
	there := func(id string, going bool) bool {
		return slices.ContainsFunc(in.Workers, func(w controller.Worker) bool {
			return w.ID == id && (!going || w.Standing == controller.Live)
		})
	}
	for _, w := range r.GetAdd() {
		if there(w.GetId(), false) {
			return ch, fail(&pb.ErrorDetail{
				Reason: pb.ReasonExists, Field: "add.id", Value: w.GetId(),
				Message: fmt.Sprintf("add.id %q: a worker of that id is in keyspace %s already", w.GetId(), r.GetKeyspace()),
			})
		}
		ch.Add = append(ch.Add, controller.Worker{ID: w.GetId(), Capacity: w.GetCapacity(), Zone: w.GetZone()})
	}
	for _, id := range r.GetRemove() {
		switch {
		case !there(id, false):
			return ch, notFound("worker of keyspace "+r.GetKeyspace(), "remove", id)
		case !there(id, true):
			return ch, failf(pb.ReasonConflict, "remove %q: that worker is leaving or barred already", id)
		}
		ch.Remove = append(ch.Remove, id)
	}
	return ch, nil
}
