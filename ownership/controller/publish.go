package controller

import (
	"maps"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// publish makes the plans of a round visible to readers and to metrics.
func (t *term) publish(v *view, plans []*planned) {
	fresh := make(map[state.KeyspaceID]*published, len(plans))
	for _, p := range plans {
		pub := &published{rest: p.out.Rest, unowned: p.out.Unowned, blocked: t.blocked(v, p), plan: t.planned(p)}
		for _, a := range p.actions {
			if a.Kind == Stuck {
				pub.stuck = append(pub.stuck, t.stuckMove(p, a))
			}
		}
		fresh[p.view.id] = pub
		m := t.c.cfg.Metrics
		m.Planned(p.view.name, p.out.Wanted)
		m.Imbalance(p.view.name, p.out.Imbalance)
		m.Stuck(p.view.name, len(pub.stuck))
	}
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	for id, pub := range fresh {
		t.c.views[id] = pub
	}
	for id := range t.c.views {
		if t.spaces[id] == nil {
			delete(t.c.views, id)
		}
	}
}

// blocked lists the sessions whose leases nobody works on, or probably
// nobody, and that cannot be given away yet.
func (t *term) blocked(v *view, p *planned) map[state.SessionID]Reason {
	var blocked map[state.SessionID]Reason
	for i := range p.workers {
		w := &p.workers[i]
		if w.Standing != Barred && w.Standing != Gone && !w.thoughtDead(t.clock) {
			continue
		}
		if blocked == nil {
			blocked = make(map[state.SessionID]Reason)
		}
		blocked[w.Session] = Reason{Code: CodeBlocked, Worker: w.ID, Until: v.sessions[p.view.members[i]].deadline}
	}
	return blocked
}

// planned is a plan for those who ask about it later: what the loop goes on to
// change is copied.
func (t *term) planned(p *planned) *Planned {
	in := p.in
	in.Cool, in.Hold, in.Lost = maps.Clone(in.Cool), maps.Clone(in.Hold), slices.Clone(in.Lost)
	return &Planned{Input: in, Output: p.out, Ring: p.ring}
}

func (t *term) stuckMove(p *planned, a Action) StuckMove {
	s := StuckMove{
		Keyspace: p.view.id, Partition: a.Move.Partition, Token: a.Move.Token,
		Deadline: a.Move.Deadline, Cause: a.Move.Cause,
	}
	if o := p.view.owners[a.Move.Partition]; o >= 0 {
		s.Session, s.Worker = p.workers[o].Session, p.workers[o].ID
	}
	return s
}
