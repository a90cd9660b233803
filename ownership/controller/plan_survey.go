package controller

import (
	"cmp"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// kept is a partition in a slot.
type kept struct {
	partition uint32
	slot      int32
}

// survey walks over the partitions once, in order, beside the sorted lists of
// moves, actions, suspects and slots: it counts loads and collects what needs
// a place.
func (p *planner) survey() {
	in := p.in
	slots := p.slotTable()
	moves, actions, suspects := 0, 0, 0
	unowned := 0
	for _, o := range in.Owners {
		unowned += int(uint32(o) >> 31)
	}
	p.orphans = make([]item, 0, unowned)
	for q, o := range in.Owners {
		part := uint32(q)
		for suspects < len(in.Suspects) && in.Suspects[suspects].Partition < part {
			suspects++
		}
		for len(slots) > 0 && slots[0].partition < part {
			slots = slots[1:]
		}
		if o < 0 {
			s := nobody
			if suspects < len(in.Suspects) && in.Suspects[suspects].Partition == part {
				s = int32(suspects)
			}
			slot := nobody
			if len(slots) > 0 && slots[0].partition == part {
				slot = slots[0].slot
			}
			p.surveyUnowned(part, s, slot)
			continue
		}
		p.held++
		for moves < len(in.Moves) && in.Moves[moves].Partition < part {
			moves++
		}
		move := nobody
		if moves < len(in.Moves) && in.Moves[moves].Partition == part {
			move = int32(moves)
		}
		for actions < len(in.Actions) && in.Actions[actions].Move.Partition < part {
			actions++
		}
		p.surveyOwned(part, o, move, in.Actions[actions:])
	}
}

// slotTable lists the partitions of all slots that still count, by number. A
// partition may be in several, as it went from worker to worker within their
// time: a reserved slot comes first, then that of the last holder, which is
// kept the longest.
func (p *planner) slotTable() []kept {
	var table []kept
	for i, s := range p.in.Slots {
		if p.in.Now >= s.Until {
			continue
		}
		for _, part := range s.Partitions {
			table = append(table, kept{part, int32(i)})
		}
	}
	slices.SortStableFunc(table, func(a, b kept) int {
		if c := cmp.Compare(a.partition, b.partition); c != 0 {
			return c
		}
		x, y := &p.in.Slots[a.slot], &p.in.Slots[b.slot]
		switch {
		case x.Reserved != y.Reserved && x.Reserved:
			return -1
		case x.Reserved != y.Reserved:
			return 1
		}
		return cmp.Compare(y.Until, x.Until)
	})
	return table
}

// surveyOwned sorts one partition that has a holder under what it needs.
func (p *planner) surveyOwned(part uint32, o, move int32, actions []Action) {
	in := p.in
	w := &in.Workers[o]
	it := item{partition: part, from: o, to: nobody, suspect: nobody, move: move}
	fenced := in.Settings.Takeover == state.Fenced

	switch {
	case fenced && (w.Standing == Gone || w.Standing == Barred):
		it.kind, it.cause = take, lossCause(w)
		p.takeFor(it)
	case move != nobody:
		p.surveyMove(it, w, actions)
	case w.Standing == Gone || w.Standing == Barred:
		// Strict: nobody may have it yet. If the worker is back under the same
		// id, this much is already on its way to it.
		if heir, ok := p.byID[w.ID]; ok {
			p.load[heir]++
		}
	case w.Standing == Leaving && w.Restart && !w.Drained && in.Settings.RestartGrace > 0:
		p.out.Drains = append(p.out.Drains, Drain{
			Partition: part, Token: in.Tokens[part], Reserve: true, Cause: state.CauseRestart})
	case w.Standing == Leaving:
		it.kind, it.cause = leave, state.CauseLeave
		p.leavers = append(p.leavers, it)
	case w.Drained:
		it.kind, it.cause = leave, state.CauseDrain
		p.leavers = append(p.leavers, it)
	default:
		p.load[o]++
	}
}

// surveyMove looks at a drain in progress.
func (p *planner) surveyMove(it item, w *Worker, actions []Action) {
	m := &p.in.Moves[it.move]
	stuck, again := false, false
	for _, a := range actions {
		if a.Move.Partition != it.partition {
			break
		}
		switch a.Kind {
		case TimedOut:
			it.kind, it.cause = take, state.CauseTimeout
			p.takeFor(it)
			return
		case Stuck:
			stuck = true
		case Retarget:
			again = true
		}
	}
	if w.Capacity > 0 && w.mayReceive() {
		p.limit[p.index(w.Session)]-- // still takes up capacity until released
	}
	t := p.index(m.Target)
	if again {
		it.kind, it.cause = retarget, m.Cause
		p.leavers = append(p.leavers, it)
		t = nobody
	}
	if t != nobody {
		p.load[t]++
	}
	if isBalance(m.Cause) && !stuck {
		p.flying++
		if t != nobody {
			p.inbound[t]++
		}
	}
}

// takeFor places a lease that is taken back: with the receiver that was
// chosen for it, if it was being handed over, else like any orphan.
func (p *planner) takeFor(it item) {
	if it.move != nobody {
		t := p.index(p.in.Moves[it.move].Target)
		if t != nobody && t != it.from && p.open(t) && p.load[t] < p.limit[t] {
			it.to = t
			p.load[t]++
		}
	}
	p.orphans = append(p.orphans, it)
}

// open says whether a worker may be granted anything at this moment.
func (p *planner) open(i int32) bool {
	w := &p.in.Workers[i]
	return w.mayReceive() && !w.doubted(p.in.Now)
}

// surveyUnowned sorts one partition without a holder.
func (p *planner) surveyUnowned(part uint32, suspect, slot int32) {
	in := p.in
	it := item{partition: part, kind: orphan, cause: p.lost(part), from: nobody, to: nobody, suspect: suspect, move: nobody}
	failures := 0
	if suspect != nobody {
		s := &in.Suspects[suspect]
		failures = s.Failures
		switch {
		case in.Now < s.RetryAt && s.Quarantined:
			p.leaveUnowned(part, Reason{Code: CodeQuarantined, Until: s.RetryAt})
			return
		case in.Now < s.RetryAt:
			p.leaveUnowned(part, Reason{Code: CodeBackoff, Until: s.RetryAt})
			return
		case s.serious():
			p.trials = append(p.trials, int(suspect))
			return
		}
	}
	if until := in.Hold[part]; until > in.Now {
		p.leaveUnowned(part, Reason{Code: CodeBackoff, Until: until})
		return
	}
	if slot != nobody && failures <= 1 && p.surveySlot(part, &in.Slots[slot]) {
		return
	}
	p.orphans = append(p.orphans, it)
}

// surveySlot gives an unowned partition back to the worker id that held it,
// or keeps it for that worker. False: anybody may have it.
func (p *planner) surveySlot(part uint32, s *state.Slot) bool {
	i, back := p.byID[s.Worker]
	switch {
	case back && p.open(i) && p.load[i] < p.limit[i]:
		p.load[i]++
		p.out.Grants = append(p.out.Grants, p.grantOf(part, i, state.CauseRestart))
		return true
	case s.Reserved && !p.barredForGood(s.Worker):
		p.leaveUnowned(part, Reason{Code: CodeReserved, Until: s.Until, Worker: s.Worker})
		return true
	}
	return false
}

// barredForGood says that an operator has drained the worker a slot is kept
// for, as far as it can be seen here.
func (p *planner) barredForGood(id string) bool {
	for i := range p.in.Workers {
		if w := &p.in.Workers[i]; w.ID == id && w.Drained {
			return true
		}
	}
	return false
}

// lost is the cause under which an unowned partition is granted again.
func (p *planner) lost(part uint32) state.Cause {
	if int(part) < len(p.in.Lost) {
		switch c := p.in.Lost[part]; c {
		case state.CauseNone:
		case state.CauseFailed:
			return state.CauseRetry
		default:
			return c
		}
	}
	if p.in.Tokens[part] == 0 {
		return state.CauseInitial
	}
	return state.CauseExpired
}

func lossCause(w *Worker) state.Cause {
	switch {
	case w.Standing == Gone:
		return state.CauseCrash
	case w.Drained:
		return state.CauseEvicted
	}
	return state.CauseSuperseded
}

// isBalance tells the causes of moves that merely even out.
func isBalance(c state.Cause) bool {
	return c == state.CauseJoin || c == state.CauseBalance || c == state.CauseRestart
}
