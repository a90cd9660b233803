package controller

import (
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// giveBack returns to a worker what its id held before it went and others
// hold by now; if the id does not come back, a newcomer in its zone gets it
// (the pod that replaces a pod). No quiet, cool-down or stability is waited
// for, and nobody is brought above its share by it: then the general rule
// takes over.
func (b *balance) giveBack() {
	if len(b.in.Slots) == 0 {
		return
	}
	taken := make(map[int32]bool)
	for i := range b.in.Slots {
		s := &b.in.Slots[i]
		if b.in.Now >= s.Until {
			continue
		}
		to, ok := b.byID[s.Worker]
		if !ok && !s.Reserved {
			to = b.newcomer(s, taken)
			ok = to != nobody
		}
		if !ok || !b.open(to) {
			continue
		}
		taken[to] = true
		b.refill(s, to)
	}
}

// newcomer is the first worker of a slot's zone that has just come, has no
// slot of its own, and has not been given one in this plan. Workers that name
// no zone are all in the same.
func (b *balance) newcomer(s *state.Slot, taken map[int32]bool) int32 {
	for _, i := range b.who {
		w := &b.in.Workers[i]
		if w.Zone == s.Zone && b.in.Now-w.Opened <= newcomerFor && !taken[i] && b.load[i] < b.fill(i) && !b.hasSlot(w.ID) {
			return i
		}
	}
	return nobody
}

func (b *balance) hasSlot(id string) bool {
	for i := range b.in.Slots {
		if s := &b.in.Slots[i]; s.Worker == id && b.in.Now < s.Until {
			return true
		}
	}
	return false
}

// refill drains the slot's partitions towards a worker, up to its share and
// never below the share of the one that gives.
func (b *balance) refill(s *state.Slot, to int32) {
	for _, part := range s.Partitions {
		if b.load[to] >= b.fill(to) || b.budget <= 0 {
			return
		}
		if int(part) >= len(b.in.Owners) {
			continue
		}
		o := b.in.Owners[part]
		if o < 0 || o == to || !b.in.Workers[o].mayReceive() || !b.mayGive(o) || b.load[o] <= b.fill(o) {
			continue
		}
		if b.moving(part) || b.suspected(part) {
			continue
		}
		b.start(part, o, to, state.CauseRestart)
	}
}

func (b *balance) moving(part uint32) bool {
	_, ok := b.in.move(part)
	return ok
}
