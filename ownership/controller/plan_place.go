package controller

import (
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// placeAll finds a place for everything that needs one and writes the result.
// Workers that keep restarting are asked only for what nobody else has room
// for: to be unowned is worse than to be on a shaky worker.
func (p *planner) placeAll() {
	settledOnes, shaky, doubt := p.receivers()
	for _, who := range [][]int32{settledOnes, shaky} {
		if len(who) > 0 {
			p.place(who)
		}
	}
	p.writeOrphans(len(settledOnes)+len(shaky) > 0, doubt)
	p.writeLeavers()
}

// receivers lists who may be granted anything, the settled and the unsettled,
// and until when doubt holds back the others.
func (p *planner) receivers() (ready, shaky []int32, doubt state.Clock) {
	for i := range p.in.Workers {
		w := &p.in.Workers[i]
		switch {
		case !w.mayReceive():
		case w.doubted(p.in.Now):
			doubt = earliest(doubt, w.GossipUntil)
		case w.unsettled(p.in.Now) > 0:
			shaky = append(shaky, int32(i))
		default:
			ready = append(ready, int32(i))
		}
	}
	return ready, shaky, doubt
}

// place spreads what has no place yet over who, in three passes: the ring's
// wish where it also fills a worker that is short; the ring's wish up to 1.10
// of the share, as long as enough is left for those that are short; and the
// rest on the lightest. Orphans go before what still has an owner.
func (p *planner) place(who []int32) {
	open := unplaced(p.orphans) + unplaced(p.leavers)
	if open == 0 {
		return
	}
	total := open
	for _, i := range who {
		total += int(p.load[i])
	}
	p.share(who, total)
	inSet := make([]bool, len(p.in.Workers))
	short := 0
	for _, i := range who {
		inSet[i] = true
		short += int(max(p.fill(i)-p.load[i], 0))
	}
	for _, list := range [][]item{p.orphans, p.leavers} {
		for pass := range 2 {
			for k := range list {
				it := &list[k]
				w := p.wish(it.partition)
				if it.to != nobody || w == nobody || !inSet[w] || w == it.from || p.failedOn(it.suspect, w) {
					continue
				}
				needs := p.load[w] < p.fill(w)
				if !needs && (pass == 0 || open <= short || p.load[w] >= p.most(w)) {
					continue
				}
				if needs {
					short--
				}
				it.to = w
				p.load[w]++
				open--
			}
		}
		p.placeLightest(list, who)
	}
}

// placeLightest gives each item that is left to the lightest worker under its
// bound.
func (p *planner) placeLightest(list []item, who []int32) {
	var h *loads
	for k := range list {
		it := &list[k]
		if it.to != nobody {
			continue
		}
		if h == nil {
			h = p.loads(1, who, func(i int32) bool { return p.load[i] < p.most(i) })
		}
		w := h.first()
		if w == nobody {
			return
		}
		if p.failedOn(it.suspect, w) || w == it.from {
			if other := p.lightestOther(it, who); other != nobody {
				it.to = other
				p.load[other]++
				h = nil // its place in the heap is not the top: build it anew
				continue
			}
			if w == it.from {
				continue
			}
		}
		it.to = w
		p.load[w]++
		h.again(p.load[w] < p.most(w))
	}
}

// lightestOther is the lightest worker that a suspect has not failed on. It
// may go above 1.10, not above capacity: a partition that failed is one.
func (p *planner) lightestOther(it *item, who []int32) int32 {
	best := nobody
	for _, i := range who {
		if p.load[i] >= p.limit[i] || i == it.from || p.failedOn(it.suspect, i) {
			continue
		}
		if best == nobody || p.relative(i) < p.relative(best) {
			best = i
		}
	}
	return best
}

func unplaced(list []item) int {
	n := 0
	for i := range list {
		if list[i].to == nobody {
			n++
		}
	}
	return n
}

// writeOrphans turns placed orphans into grants, worker by worker. A lease
// that is taken back is taken back even when nobody can have it.
func (p *planner) writeOrphans(receivers bool, doubt state.Clock) {
	first := make([]int32, len(p.in.Workers)+1) // where each worker's grants begin
	left := 0
	for i := range p.orphans {
		it := &p.orphans[i]
		if it.kind == take {
			p.out.Revokes = append(p.out.Revokes, Revoke{
				Partition: it.partition, Cause: it.cause,
				Token: p.in.Tokens[it.partition], Session: p.in.Workers[it.from].Session,
			})
		}
		if it.to == nobody {
			left++
		} else {
			first[it.to+1]++
		}
	}
	for i := range p.in.Workers {
		first[i+1] += first[i]
	}
	at := len(p.out.Grants)
	p.out.Grants = slices.Grow(p.out.Grants, len(p.orphans)-left)[:at+len(p.orphans)-left]
	for i := range p.orphans {
		it := &p.orphans[i]
		if it.to == nobody {
			continue
		}
		p.out.Grants[at+int(first[it.to])] = p.grantOf(it.partition, it.to, it.cause)
		first[it.to]++
	}
	if left == 0 {
		return
	}
	switch {
	case receivers:
		p.out.Rest = Reason{Code: CodeCapacity}
	case doubt > 0:
		p.out.Rest = Reason{Code: CodeDoubt, Until: doubt}
	default:
		p.out.Rest = Reason{Code: CodeNoWorker}
	}
	p.wakeAt(doubt)
}

// writeLeavers turns leavers into drains. Who leaves, or was told by an
// operator to hand over everything, does so even if nobody can take it.
func (p *planner) writeLeavers() {
	for i := range p.leavers {
		it := &p.leavers[i]
		d := Drain{Partition: it.partition, Cause: it.cause, Token: p.in.Tokens[it.partition]}
		if it.to != nobody {
			d.Target = p.in.Workers[it.to].Session
		}
		if it.kind == retarget {
			m := &p.in.Moves[it.move]
			if m.Target == d.Target {
				continue
			}
			d.Token = m.Token
		}
		p.out.Drains = append(p.out.Drains, d)
	}
}
