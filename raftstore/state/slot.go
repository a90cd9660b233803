package state

import (
	"iter"
	"slices"
)

// Slot is what a worker id held when its session ended, kept for it.
type Slot struct {
	Worker     string
	Zone       string
	Partitions []uint32
	// Reserved partitions are not granted to others before Until. A slot that
	// is not reserved is a preference until Until.
	Reserved bool
	Until    Clock
}

// slot gathers what one session of a worker id let go of. It remembers
// partitions whoever owns them now; Slots leaves out what is settled.
type slot struct {
	worker   string
	zone     string
	session  SessionID // whose end it is about
	reserved bool
	until    Clock
	parts    []uint32 // in the order of letting go, may repeat
}

func slotKey(t *slot) string { return t.worker }

// Slots yields what is kept for worker ids that went, by worker id: of a
// reserved slot the partitions that nobody owns, of any other those that the
// worker itself does not own again. The slices are the caller's.
func (k *Keyspace) Slots() iter.Seq[Slot] {
	return func(yield func(Slot) bool) {
		for _, t := range k.slots {
			if t.until <= k.state.clock {
				continue
			}
			v := Slot{Worker: t.worker, Zone: t.zone, Reserved: t.reserved, Until: t.until}
			for _, p := range t.parts {
				if x := k.owner(p); x == nil || !t.reserved && x.Worker != t.worker {
					v.Partitions = append(v.Partitions, p)
				}
			}
			if len(v.Partitions) == 0 {
				continue
			}
			slices.Sort(v.Partitions)
			v.Partitions = slices.Compact(v.Partitions)
			if !yield(v) {
				return
			}
		}
	}
}

// keep adds partitions that x let go of to the slot of its worker id. What an
// earlier session left is replaced. Nothing is kept for a worker that may not
// come back.
func (s *State) keep(k *Keyspace, x *Session, parts []uint32, reserve bool) {
	if k.Deleting || x.State == SessionEvicted || x.record.Drained {
		return
	}
	i, found := searchBy(k.slots, x.Worker, slotKey)
	if !found {
		if len(k.slots) >= MaxSlots {
			k.makeRoom()
			i, _ = searchBy(k.slots, x.Worker, slotKey)
		}
		k.slots = slices.Insert(k.slots, i, &slot{worker: x.Worker})
	}
	t := k.slots[i]
	if t.session != x.ID {
		*t = slot{worker: x.Worker, zone: x.Zone, session: x.ID}
	}
	grace := k.Settings.RestartGrace
	if reserve && grace > 0 {
		t.reserved = true
		t.until = max(t.until, s.clock+grace)
	} else if !t.reserved {
		t.until = max(t.until, s.clock+SlotTime)
	}
	if len(t.parts)+len(parts) > int(k.Partitions) {
		slices.Sort(t.parts)
		t.parts = slices.Compact(t.parts)
	}
	t.parts = append(t.parts, parts...)
	k.boundSlots(t)
}

// dropSlots forgets the slots whose time has passed.
func (k *Keyspace) dropSlots() {
	k.slots = slices.DeleteFunc(k.slots, func(t *slot) bool { return t.until <= k.state.clock })
}

// makeRoom drops expired slots, or else the one that would end first.
func (k *Keyspace) makeRoom() {
	k.dropSlots()
	if len(k.slots) >= MaxSlots {
		k.dropEarliest(nil)
	}
}

// boundSlots keeps all slots together within a few times the keyspace, also
// when it changes hands over and over within a minute. The newest stays.
func (k *Keyspace) boundSlots(newest *slot) {
	total := 0
	for _, t := range k.slots {
		total += len(t.parts)
	}
	for total > 4*int(k.Partitions) && len(k.slots) > 1 {
		total -= k.dropEarliest(newest)
	}
}

// dropEarliest drops the slot, other than keep, that would end first, and
// returns how many partitions it had.
func (k *Keyspace) dropEarliest(keep *slot) int {
	best := -1
	for i, t := range k.slots {
		if t != keep && (best < 0 || t.until < k.slots[best].until) {
			best = i
		}
	}
	n := len(k.slots[best].parts)
	k.slots = slices.Delete(k.slots, best, best+1)
	return n
}

func (k *Keyspace) removeSlot(worker string) { k.slots = removeBy(k.slots, worker, slotKey) }
