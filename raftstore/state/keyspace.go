package state

import (
	"fmt"
)

// Keyspace is a read-only view of one keyspace and its dense lease table.
// The pointer stays valid while the reader holds raftstore's read lock. One
// that came in a Result is a copy of the fields alone.
type Keyspace struct {
	ID         KeyspaceID
	Name       string
	Partitions uint32
	Settings   Settings
	Deleting   bool
	CreatedAt  Clock
	// LastJoin is when a session last joined it, for the cold start.
	LastJoin Clock
	// Counts, kept up with every change. Owned includes Draining; Quarantined
	// has only those without an owner.
	Owned, Draining, Quarantined int

	leaseTable
	state    *State
	moves    map[uint32]Move
	slots    []*slot // by worker
	suspects map[uint32]*suspect
}

// view is a copy for outside: no lease table, no sparse tables.
func (k *Keyspace) view() *Keyspace {
	v := *k
	v.leaseTable, v.state, v.moves, v.slots, v.suspects = leaseTable{}, nil, nil, nil, nil
	return &v
}

// named finds a keyspace by name, for a command.
func (s *State) named(name string) (*Keyspace, error) {
	if err := ValidateName("keyspace", "name", name); err != nil {
		return nil, err
	}
	k, ok := s.keyspaceNames[name]
	if !ok {
		return nil, refuse(ReasonNotFound, "keyspace", "name", name, "a keyspace that exists")
	}
	return k, nil
}

// numbered finds a keyspace by id, for a command.
func (s *State) numbered(id KeyspaceID) (*Keyspace, error) {
	k, ok := s.keyspaces[id]
	if !ok {
		return nil, refuse(ReasonNotFound, "keyspace", "id", fmt.Sprint(uint32(id)), "a keyspace that exists")
	}
	return k, nil
}

// hasPartition refuses a number outside the keyspace.
func (k *Keyspace) hasPartition(p uint32) error {
	if p < k.Partitions {
		return nil
	}
	return refuse(ReasonInvalid, "keyspace "+k.Name, "partition", fmt.Sprint(p), fmt.Sprintf("0 to %d", k.Partitions-1))
}

func (s *State) createKeyspace(c *CreateKeyspace, r *Result) {
	if r.Err = s.checkCreate(c); r.Err != nil {
		return
	}
	s.lastKeyspace++
	k := &Keyspace{
		ID: s.lastKeyspace, Name: c.Name, Partitions: c.Partitions, Settings: c.Settings,
		CreatedAt: s.clock, LastJoin: s.clock,
		leaseTable: newLeaseTable(c.Partitions),
	}
	s.addKeyspace(k)
	s.emitKeyspace(KindKeyspaceCreate, k, CauseNone)
	r.Keyspace = k.view()
}

func (s *State) checkCreate(c *CreateKeyspace) error {
	const what = "keyspace"
	if err := ValidateName(what, "name", c.Name); err != nil {
		return err
	}
	if c.Partitions == 0 || c.Partitions > MaxPartitions {
		return refuse(ReasonInvalid, what, "partitions", fmt.Sprint(c.Partitions), fmt.Sprintf("1 to %d", MaxPartitions))
	}
	if err := c.Settings.Validate(); err != nil {
		return err
	}
	if k, ok := s.keyspaceNames[c.Name]; ok {
		if k.Deleting {
			return refuse(ReasonDeleting, what, "name", c.Name, "a name that is free; it is when the last lease has ended")
		}
		return refuse(ReasonExists, what, "name", c.Name, "a name that is free")
	}
	if len(s.keyspaceOrder) >= MaxKeyspaces {
		return refuse(ReasonInvalid, what, "name", c.Name, fmt.Sprintf("at most %d keyspaces at a time", MaxKeyspaces))
	}
	if s.lastKeyspace == ^KeyspaceID(0) {
		return refuse(ReasonInvalid, what, "id", fmt.Sprint(uint32(s.lastKeyspace)), "keyspace ids are used up")
	}
	return nil
}

func (s *State) addKeyspace(k *Keyspace) {
	k.state = s
	k.moves = make(map[uint32]Move)
	k.suspects = make(map[uint32]*suspect)
	s.keyspaces[k.ID] = k
	s.keyspaceNames[k.Name] = k
	s.keyspaceOrder = append(s.keyspaceOrder, k) // ids only rise
}

// updateKeyspace replaces the settings. A lower TTL is passed on to the
// sessions; a higher one is for those opened later.
func (s *State) updateKeyspace(c *UpdateKeyspace, r *Result) {
	k, err := s.joinable(c.Name)
	if err == nil {
		err = c.Settings.Validate()
	}
	if err != nil {
		r.Err = err
		return
	}
	if k.Settings != c.Settings {
		fenced := k.Settings.Takeover == Strict && c.Settings.Takeover == Fenced
		k.Settings = c.Settings
		s.emitKeyspace(KindKeyspaceUpdate, k, CauseNone)
		for _, x := range s.sessionOrder {
			i, joined := x.list(k.ID)
			if !joined {
				continue
			}
			x.TTL = min(x.TTL, k.Settings.TTL)
			// What a barred session kept only because it was strict.
			if fenced && x.barred() {
				cause := CauseSuperseded
				if x.State == SessionEvicted {
					cause = CauseEvicted
				}
				s.takeAll(x, i, k, KindRevoke, cause, 0, 0)
			}
		}
	}
	r.Keyspace = k.view()
}

// deleteKeyspace bars a keyspace. A second one of the same finds it done.
func (s *State) deleteKeyspace(c *DeleteKeyspace) error {
	k, err := s.named(c.Name)
	if err != nil || k.Deleting {
		return err
	}
	k.Deleting = true
	s.deleting++
	s.emitKeyspace(KindKeyspaceDelete, k, CauseDeleted)
	for _, x := range s.sessionOrder {
		i, joined := x.list(k.ID)
		if !joined {
			continue
		}
		if k.Settings.Takeover == Fenced {
			s.takeAll(x, i, k, KindRevoke, CauseDeleted, 0, 0)
			continue
		}
		for p := x.held[i].head; p != none; p = k.next[p] {
			s.setMove(k, p, x, DrainItem{Partition: p}, k.Settings.HandoffTimeout, CauseDeleted)
		}
	}
	return nil
}

// dropDeleted removes the keyspaces that waited for their last lease.
func (s *State) dropDeleted() {
	kept := s.keyspaceOrder[:0]
	for _, k := range s.keyspaceOrder {
		if !k.Deleting || k.Owned > 0 {
			kept = append(kept, k)
			continue
		}
		s.deleting--
		for p := range k.Partitions {
			s.owners.drop(k.next[p])
		}
		for _, x := range s.sessionOrder {
			if i, joined := x.list(k.ID); joined {
				x.Keyspaces = append(x.Keyspaces[:i:i], x.Keyspaces[i+1:]...)
				x.held = append(x.held[:i:i], x.held[i+1:]...)
			}
		}
		delete(s.keyspaces, k.ID)
		delete(s.keyspaceNames, k.Name)
		s.emitKeyspace(KindKeyspaceGone, k, CauseDeleted)
	}
	clear(s.keyspaceOrder[len(kept):])
	s.keyspaceOrder = kept
}
