package controller

import (
	"context"
	"hash/fnv"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring"
)

// planned is the plan of one keyspace in one round.
type planned struct {
	space   *space
	view    *spaceView
	workers []Worker
	actions []Action
	ring    *ring.Ring
	in      Input
	out     Output
}

// How long a plan waits for its ring: a moment when somebody waits for it, a
// little longer when a whole keyspace is handed out for the first time. One so
// large that its ring would take longer than its plan is handed out evenly,
// and its ring is computed when there is time.
const (
	ringPatience      = 3 * time.Millisecond
	firstRingPatience = 20 * time.Millisecond
	largeKeyspace     = 1 << 15
)

// plan makes a plan for every keyspace of the view. What one of them gives a
// worker counts against its capacity in the next.
func (t *term) plan(ctx context.Context, v *view) []*planned {
	plans := make([]*planned, 0, len(v.spaces))
	extra := make(map[state.SessionID]uint32)
	for i := range v.spaces {
		sv := &v.spaces[i]
		p := &planned{space: t.space(sv.id), view: sv}
		p.workers = t.workersOf(v, sv, extra)
		t.noteMembers(p)
		in := t.input(ctx, p)
		step, wake := Step(Handoffs{
			Now: in.Now, Takeover: in.Settings.Takeover, Deleting: in.Deleting, Moves: in.Moves, Workers: in.Workers,
		})
		in.Actions, p.actions = step, step
		p.in, p.out = in, Plan(in)
		p.space.wake = earliest(p.out.Wake, wake)
		p.space.dirty = false
		p.space.filling = p.out.Filling
		if i+1 < len(v.spaces) {
			for _, g := range p.out.Grants {
				extra[g.Session]++
			}
		}
		for _, d := range p.out.Drains {
			if isBalance(d.Cause) {
				p.space.cool[d.Partition] = t.clock + coolDown
			}
		}
		p.space.prune(t.clock)
		plans = append(plans, p)
	}
	return plans
}

// workersOf turns the sessions of one keyspace into what the planner knows.
func (t *term) workersOf(v *view, sv *spaceView, extra map[state.SessionID]uint32) []Worker {
	here := make([]uint32, len(sv.members))
	for _, o := range sv.owners {
		if o >= 0 {
			here[o]++
		}
	}
	workers := make([]Worker, len(sv.members))
	for i, m := range sv.members {
		s := &v.sessions[m]
		workers[i] = Worker{
			Session: s.id, ID: s.worker, Zone: s.zone, Standing: t.standing(s), Restart: s.restart, Drained: s.drained,
			Capacity: s.capacity, Here: here[i], Elsewhere: uint32(s.held) - here[i] + extra[s.id],
			Opened: s.opened, Opens: s.opens, Gossip: s.verdict, GossipUntil: s.until,
		}
	}
	return workers
}

func (t *term) standing(s *session) Standing {
	if w := t.watched[s.id]; w != nil && w.gone {
		return Gone
	}
	switch s.state {
	case state.SessionLive:
		return Live
	case state.SessionLeaving:
		return Leaving
	}
	return Barred
}

// noteMembers notices when the set of workers changes, for the quiet that
// balance waits for, and when one arrives, for the cold start: workers that were
// there all the time, and lost everything in an outage, are not waited for.
func (t *term) noteMembers(p *planned) {
	h := fnv.New64a()
	receivers := 0
	for i := range p.workers {
		w := &p.workers[i]
		if w.mayReceive() {
			receivers++
		}
		var b [10]byte
		for k := range 8 {
			b[k] = byte(w.Session >> (8 * k))
		}
		b[8] = byte(w.Standing)
		if w.Drained {
			b[9] = 1
		}
		_, _ = h.Write(b[:]) // never fails
	}
	s := p.space
	if sum := h.Sum64(); sum != s.members {
		t.noteArrivals(p)
		if s.members == 0 || t.clock-s.lastChange >= quietFor {
			s.firstChange = t.clock
		}
		s.members, s.lastChange = sum, t.clock
	}
	switch {
	case p.view.owned > 0 || receivers == 0:
		s.coldSince = 0
	case s.coldSince == 0:
		s.coldSince = t.clock
	}
}

// joinSlack is how far the log's clock may be behind when it notes a join.
const joinSlack = time.Second

// noteArrivals notes when a worker was first seen in this term.
func (t *term) noteArrivals(p *planned) {
	s := p.space
	arrived := t.clock
	if s.seen == nil { // all are new here, and may have been there for long
		arrived = min(t.clock, p.view.lastJoin+joinSlack)
	}
	seen := make(map[state.SessionID]struct{}, len(p.workers))
	for i := range p.workers {
		id := p.workers[i].Session
		seen[id] = struct{}{}
		if _, known := s.seen[id]; !known {
			s.lastArrival = max(s.lastArrival, arrived)
		}
	}
	s.seen = seen
}

// input puts together what the planner looks at.
func (t *term) input(ctx context.Context, p *planned) Input {
	sv, s := p.view, p.space
	in := Input{
		Keyspace: sv.id, Settings: sv.settings, Deleting: sv.deleting, Now: t.clock,
		LastJoin: max(sv.lastJoin, s.lastArrival), Restored: sv.restored,
		Workers: p.workers, Owners: sv.owners, Tokens: sv.tokens, Lost: s.lost,
		Moves: sv.moves, Slots: sv.slots, Suspects: sv.suspects,
		LastChange: s.lastChange, FirstChange: s.firstChange, ColdSince: s.coldSince,
		Cool: s.cool, Hold: s.hold, Filling: s.filling,
	}
	if sv.deleting {
		return in
	}
	at := make(map[string]int32, len(p.workers))
	members := make([]string, 0, len(p.workers))
	waiting := sv.owned < int(sv.partitions)
	for i := range p.workers {
		w := &p.workers[i]
		if !w.mayReceive() {
			waiting = true
			continue
		}
		at[w.ID] = int32(i)
		members = append(members, w.ID)
	}
	if len(members) == 0 {
		return in // a ring of those who went would be nobody's wish
	}
	slices.Sort(members)
	patience := time.Duration(0)
	switch {
	case waiting && sv.owned == 0 && sv.partitions > largeKeyspace:
		return in
	case waiting && sv.owned == 0:
		patience = firstRingPatience
	case waiting:
		patience = ringPatience
	}
	r := t.rings.get(ctx, sv.id, members, sv.partitions, patience)
	if r == nil {
		return in
	}
	p.ring = r
	in.wish(r, at)
	return in
}

// wish is the ring's, for workers found by id.
func (in *Input) wish(r *ring.Ring, at map[string]int32) {
	in.Ring = r.Owners()
	in.RingWorkers = make([]int32, len(r.Members()))
	for i, id := range r.Members() {
		in.RingWorkers[i] = nobody
		if w, ok := at[id]; ok {
			in.RingWorkers[i] = w
		}
	}
}
