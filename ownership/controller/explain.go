package controller

import (
	"slices"
	"sync"

	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring"
)

// Planned is a keyspace as the last plan saw it, and that plan. It is shared by
// all who asked: read only.
type Planned struct {
	Input  Input
	Output Output
	// Ring is what Input.Ring was made of; nil where there was none yet.
	Ring *ring.Ring

	once   sync.Once
	circle *ring.Circle
}

// Circle is the ring's, worked out once; nil without a ring.
func (p *Planned) Circle() *ring.Circle {
	p.once.Do(func() {
		if p.Ring != nil {
			p.circle = p.Ring.Circle()
		}
	})
	return p.circle
}

// Chance is how a worker stands for one partition.
type Chance string

// The chances. Only an eligible worker would be given the partition at once; one
// that is unsettled, or on which the partition failed, if nobody else has room.
const (
	ChanceOwner       Chance = "owner"
	ChanceEligible    Chance = "eligible"
	ChanceFull        Chance = "full"
	ChanceDraining    Chance = "draining"
	ChanceDrained     Chance = "drained"
	ChanceBarred      Chance = "barred"
	ChanceUnreachable Chance = "unreachable"
	ChanceFailed      Chance = "failed"
	ChanceUnsettled   Chance = "unsettled"
)

// Candidate is a worker of the keyspace, seen from one partition.
type Candidate struct {
	Worker *Worker
	// Rank is its place in the ring's order for the partition, from 1; 0 for one
	// that is not on the ring.
	Rank int
	Share
	Chance Chance
	// Without is the chance that the owner would have if it were not.
	Without Chance
	// Settled: it may be granted partitions and nothing is held against it, so that
	// what it has it keeps.
	Settled bool
	// Until is when the chance gets better by itself; 0: no clock does that.
	Until state.Clock
}

// Stay says why a partition that is owned is not moved for balance.
type Stay string

// The reasons to stay.
const (
	StayNone  Stay = ""
	StayCool  Stay = "cool_down" // moved lately
	StayTrial Stay = "probation" // has failures against it
	StayQuiet Stay = "quiet"     // the set of workers has just changed
	StayDoubt Stay = "doubt"     // gossip doubts its owner
)

// Explained is what the planner makes of one partition.
type Explained struct {
	// Candidates are all workers of the keyspace: in the ring's order, and then
	// by id those that are not on it.
	Candidates []Candidate
	// Owner and Wish index Candidates: who holds it, and with whom the ring
	// places it. -1 for nobody.
	Owner, Wish int
	// Gives: its owner has more than its share while another has too little, or
	// more than anybody should, so that this partition may be moved for balance.
	// Stay is why that is not begun now, Until when it may be.
	Gives bool
	Stay  Stay
	Until state.Clock
}

// Explain looks at one partition with the planner's own predicates. It is pure,
// and costs time by workers, not by partitions. The owner is given, because the
// log may be ahead of the plan; so is the time, to which no plan may be due.
func Explain(p *Planned, partition uint32, owner state.SessionID, now state.Clock) Explained {
	in := &p.Input
	x := Explained{Owner: -1, Wish: -1}
	if int(partition) >= len(in.Owners) {
		return x
	}
	order, ranked, wish := p.order(partition)
	for rank, i := range order {
		c := Candidate{Worker: &in.Workers[i]}
		if rank < ranked {
			c.Rank = rank + 1
		}
		if int(i) < len(p.Output.Shares) {
			c.Share = p.Output.Shares[i]
		}
		c.Settled = c.Worker.mayReceive() && !c.Worker.doubted(now)
		c.Chance, c.Until = in.chance(partition, c.Worker, c.Share, now)
		if owner != 0 && c.Worker.Session == owner {
			x.Owner, c.Without, c.Chance = rank, c.Chance, ChanceOwner
		}
		if i == wish {
			x.Wish = rank
		}
		x.Candidates = append(x.Candidates, c)
	}
	if x.Owner >= 0 {
		x.Gives, x.Stay, x.Until = p.gives(partition, &x.Candidates[x.Owner], now)
	}
	return x
}

// order lists the workers by index: those on the ring in its order, and how many
// these are, then the others by id; and who the ring places the partition with.
func (p *Planned) order(partition uint32) (order []int32, ranked int, wish int32) {
	in := &p.Input
	wish = nobody
	listed := make([]bool, len(in.Workers))
	if circle := p.Circle(); circle != nil {
		for _, m := range circle.Order(partition) {
			if w := in.RingWorkers[m]; w >= 0 {
				order, listed[w] = append(order, w), true
			}
		}
		wish = (&planner{in: in}).wish(partition)
	}
	ranked = len(order)
	for i := range in.Workers {
		if !listed[i] {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order[ranked:], func(a, b int32) int {
		return ByName(&in.Workers[a], &in.Workers[b])
	})
	return order, ranked, wish
}

// chance says how a worker stands for a partition: what keeps it from being
// granted anything first, then what keeps it from this one.
func (in *Input) chance(partition uint32, w *Worker, s Share, now state.Clock) (Chance, state.Clock) {
	suspect, suspected := in.suspect(partition)
	switch {
	case w.Standing == Gone:
		return ChanceUnreachable, 0
	case w.Standing == Barred:
		return ChanceBarred, 0
	case w.Standing == Leaving:
		return ChanceDraining, 0
	case !w.mayReceive():
		return ChanceDrained, 0
	case w.doubted(now):
		return ChanceUnreachable, w.GossipUntil
	case s.Load >= s.Limit:
		return ChanceFull, 0
	case suspected && in.Suspects[suspect].failedOn(w.ID):
		return ChanceFailed, 0
	case w.unsettled(now) > 0:
		return ChanceUnsettled, w.unsettled(now)
	case s.Load >= s.Most:
		return ChanceFull, 0
	}
	return ChanceEligible, 0
}

// gives says whether the balancer has a reason to take partitions from the
// owner, and what keeps it from this one.
func (p *Planned) gives(partition uint32, owner *Candidate, now state.Clock) (bool, Stay, state.Clock) {
	in := &p.Input
	w := owner.Worker
	if _, moving := in.move(partition); moving || !w.mayReceive() || p.Output.Wanted == 0 || float64(owner.Load) <= owner.Fair {
		return false, StayNone, 0
	}
	if w.doubted(now) {
		return true, StayDoubt, w.GossipUntil
	}
	if at := in.quietAt(); at > now {
		return true, StayQuiet, at
	}
	why, until := in.staysFor(partition, now)
	return true, why, until
}

// staysFor says why the balancer leaves a partition where it is although others
// of its owner may go, and when to look again.
func (in *Input) staysFor(part uint32, now state.Clock) (Stay, state.Clock) {
	if until := in.Cool[part]; until > now {
		return StayCool, until
	}
	if i, ok := in.suspect(part); ok {
		// The log clears a suspect that has been held for long enough in one of
		// its sweeps, and nothing tells of it: look again then.
		return StayTrial, max(in.Suspects[i].Since+state.ProbationTime, now) + absolvedWithin
	}
	return StayNone, 0
}

// Planned returns the last plan of a keyspace; nil when there has been none yet.
// Only the leader knows; a follower says ErrNotLeading.
func (c *Controller) Planned(ks state.KeyspaceID) (*Planned, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch pub := c.views[ks]; {
	case c.proposer == nil:
		return nil, ErrNotLeading
	case pub == nil:
		return nil, nil
	default:
		return pub.plan, nil
	}
}
