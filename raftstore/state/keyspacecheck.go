package state

import (
	"errors"
	"fmt"
)

func (s *State) checkKeyspaces() error {
	if len(s.keyspaces) != len(s.keyspaceOrder) || len(s.keyspaceNames) != len(s.keyspaceOrder) {
		return errors.New("keyspace index and order differ")
	}
	deleting := 0
	for i, k := range s.keyspaceOrder {
		if i > 0 && s.keyspaceOrder[i-1].ID >= k.ID || k.ID == 0 || k.ID > s.lastKeyspace {
			return fmt.Errorf("keyspace %d is out of order", k.ID)
		}
		if s.keyspaces[k.ID] != k || s.keyspaceNames[k.Name] != k {
			return fmt.Errorf("keyspace %d is not in the index", k.ID)
		}
		if k.Deleting {
			deleting++
		}
		for _, check := range []func(*Keyspace) error{checkSettings, s.checkLeases, checkMoves, checkSlots, checkSuspects} {
			if err := check(k); err != nil {
				return fmt.Errorf("keyspace %s: %w", k.Name, err)
			}
		}
	}
	if deleting != s.deleting {
		return fmt.Errorf("%d keyspaces are being deleted, %d counted", deleting, s.deleting)
	}
	return nil
}

func checkSettings(k *Keyspace) error {
	if err := ValidateName("keyspace", "name", k.Name); err != nil {
		return err
	}
	if k.Partitions == 0 || k.Partitions > MaxPartitions {
		return fmt.Errorf("%d partitions", k.Partitions)
	}
	if k.Deleting && (k.Owned == 0 || k.Owned != k.Draining) {
		return fmt.Errorf("is being deleted with %d owned, %d draining", k.Owned, k.Draining)
	}
	return k.Settings.Validate()
}

// checkLeases: holders are sessions that joined, and the counts are right.
// With checkList, every held partition is in exactly one list.
func (s *State) checkLeases(k *Keyspace) error {
	n := int(k.Partitions)
	if len(k.token) != n || len(k.holder) != n || len(k.next) != n || len(k.prev) != n || len(k.since) != n || len(k.flags) != n {
		return errors.New("lease table has another size")
	}
	owned, draining, listed := 0, 0, 0
	for p, seat := range k.holder {
		if k.since[p] > s.seconds() {
			return fmt.Errorf("%d is held since the future", p)
		}
		if k.flags[p]&^flagDraining != 0 {
			return fmt.Errorf("%d has flags %#x", p, k.flags[p])
		}
		if k.flags[p]&flagDraining != 0 {
			draining++
			if m, ok := k.moves[uint32(p)]; !ok || m.Token != k.token[p] || seat == 0 {
				return fmt.Errorf("%d is draining without a move of its token", p)
			}
		}
		if seat == 0 {
			if name := k.next[p]; int(name) >= len(s.owners.names) || name != 0 && s.owners.refs[name] == 0 {
				return fmt.Errorf("%d has an unknown previous owner", p)
			}
			continue
		}
		owned++
		if int(seat) >= len(s.seats) || s.seats[seat] == nil {
			return fmt.Errorf("%d is held by nobody", p)
		}
	}
	for _, x := range s.sessionOrder {
		if i, joined := x.list(k.ID); joined {
			listed += int(x.held[i].count)
		}
	}
	if owned != k.Owned || owned != listed || draining != k.Draining {
		return fmt.Errorf("%d owned, %d listed, %d draining; counts are %d and %d", owned, listed, draining, k.Owned, k.Draining)
	}
	return nil
}

func checkMoves(k *Keyspace) error {
	if len(k.moves) != k.Draining {
		return fmt.Errorf("%d moves for %d draining leases", len(k.moves), k.Draining)
	}
	for _, p := range sortedKeys(k.moves) {
		m := k.moves[p]
		if p >= k.Partitions || m.Partition != p || k.flags[p]&flagDraining == 0 {
			return fmt.Errorf("move of %d without a draining lease", p)
		}
		if m.Started > k.state.clock || m.Target == k.owner(p).ID {
			return fmt.Errorf("move of %d to its holder or from the future", p)
		}
	}
	return nil
}

func checkSlots(k *Keyspace) error {
	if len(k.slots) > MaxSlots {
		return fmt.Errorf("%d slots", len(k.slots))
	}
	for i, t := range k.slots {
		if i > 0 && k.slots[i-1].worker >= t.worker || ValidateName("worker", "id", t.worker) != nil {
			return fmt.Errorf("slot of %q is out of order", t.worker)
		}
		for _, p := range t.parts {
			if p >= k.Partitions {
				return fmt.Errorf("slot of %s has partition %d", t.worker, p)
			}
		}
	}
	return nil
}

func checkSuspects(k *Keyspace) error {
	quarantined := 0
	for _, p := range sortedKeys(k.suspects) {
		t := k.suspects[p]
		if p >= k.Partitions || len(t.workers) == 0 || len(t.workers) > QuarantineWorkers || t.blame == 0 {
			return fmt.Errorf("suspect %d with %d workers", p, len(t.workers))
		}
		if t.quarantined && k.holder[p] == 0 {
			quarantined++
		}
		if t.quarantined && len(t.workers) < QuarantineWorkers {
			return fmt.Errorf("%d is quarantined after %d workers", p, len(t.workers))
		}
	}
	if quarantined != k.Quarantined {
		return fmt.Errorf("%d quarantined, %d counted", quarantined, k.Quarantined)
	}
	return nil
}

// checkNames: the references to previous owners add up.
func (s *State) checkNames() error {
	refs := make([]uint32, len(s.owners.names))
	for _, k := range s.keyspaceOrder {
		for p, seat := range k.holder {
			if seat == 0 {
				refs[k.next[p]]++
			}
		}
	}
	used := 0
	for id := 1; id < len(refs); id++ {
		if refs[id] != s.owners.refs[id] {
			return fmt.Errorf("previous owner %q has %d references, %d counted", s.owners.names[id], refs[id], s.owners.refs[id])
		}
		if refs[id] > 0 {
			used++
		}
	}
	if used != len(s.owners.ids) || used+len(s.owners.free)+1 != len(s.owners.names) {
		return errors.New("table of previous owners does not add up")
	}
	return nil
}

// checkLedger: revisions follow one another and indices never fall.
func (s *State) checkLedger() error {
	l := &s.ledger
	if l.count > LedgerSize || l.last() < l.first {
		return fmt.Errorf("ledger has %d events from %d", l.count, l.first)
	}
	for i := range l.count {
		e := l.at(i)
		if e.Revision != l.first+uint64(i)+1 || e.Index > s.index || i > 0 && e.Index < l.at(i-1).Index {
			return fmt.Errorf("event %d at position %d of index %d", e.Revision, i, e.Index)
		}
	}
	if len(s.requests.ring) > RequestWindow || len(s.requests.ring) != len(s.requests.seen) {
		return errors.New("request window does not add up")
	}
	return nil
}
