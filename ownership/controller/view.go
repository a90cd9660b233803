package controller

import (
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// view is a copy of what one round needs of the state.
type view struct {
	now      state.Clock
	sessions []session
	spaces   []spaceView
}

// session is a copy of the fields of a state.Session that matter here, and
// of its worker.
type session struct {
	id        state.SessionID
	worker    string
	zone      string
	state     state.SessionState
	restart   bool
	drained   bool
	gossips   bool
	capacity  uint32
	held      int
	ttl       state.Clock
	opened    state.Clock
	deadline  state.Clock
	renewal   uint64
	opens     []state.Clock
	keyspaces []state.KeyspaceID
	// fenced: it holds leases that may be taken back early.
	fenced bool
	// verdict of gossip and how long it is believed, looked up later.
	verdict Verdict
	until   state.Clock
}

// spaceView is one keyspace that needs a plan. Owners index members, which
// index view.sessions.
type spaceView struct {
	id         state.KeyspaceID
	name       string
	settings   state.Settings
	deleting   bool
	lastJoin   state.Clock
	restored   state.Clock // see Input
	partitions uint32
	owned      int
	members    []int32
	owners     []int32
	tokens     []state.Token
	moves      []state.Move
	slots      []state.Slot
	suspects   []Suspect
}

// look copies, under the read lock, the sessions and the keyspaces that need a
// plan. Dense data is copied in one sweep; nothing is decided here.
func (t *term) look() *view {
	v := &view{}
	t.c.cfg.Store.View(func(s *state.State) {
		v.now = s.Now()
		fenced := make(map[state.KeyspaceID]bool)
		seen := make(map[state.KeyspaceID]bool)
		t.fenced = false
		for k := range s.Keyspaces() {
			seen[k.ID] = true
			fenced[k.ID] = k.Settings.Takeover == state.Fenced
			t.fenced = t.fenced || fenced[k.ID]
		}
		v.copySessions(s, fenced)
		for k := range s.Keyspaces() {
			sp := t.space(k.ID)
			sp.name = k.Name
			if sp.dirty || sp.wake > 0 && sp.wake <= t.clock {
				v.copySpace(s, k)
			}
		}
		for id := range t.spaces {
			if !seen[id] {
				delete(t.spaces, id)
				t.rings.forget(id)
			}
		}
	})
	t.clock = max(t.clock, v.now+t.p.Ahead())
	return v
}

func (v *view) copySessions(s *state.State, fenced map[state.KeyspaceID]bool) {
	v.sessions = make([]session, 0, s.WorkerSessionCount())
	for x := range s.Sessions() {
		if x.Worker == "" {
			continue // it can own nothing
		}
		c := session{
			id: x.ID, worker: x.Worker, zone: x.Zone, state: x.State, restart: x.Restart, gossips: x.Gossip,
			capacity: x.Capacity, held: x.Held, ttl: x.TTL, opened: x.Opened, deadline: x.Deadline,
			renewal: x.Renewal, keyspaces: slices.Clone(x.Keyspaces),
		}
		if w, ok := s.Worker(x.Worker); ok {
			c.drained, c.opens = w.Drained, slices.Clone(w.Opens)
		}
		for _, k := range x.Keyspaces {
			c.fenced = c.fenced || fenced[k] && s.HeldCount(x.ID, k) > 0
		}
		v.sessions = append(v.sessions, c)
	}
}

func (v *view) copySpace(s *state.State, k *state.Keyspace) {
	c := spaceView{
		id: k.ID, name: k.Name, settings: k.Settings, deleting: k.Deleting,
		lastJoin: k.LastJoin, partitions: k.Partitions, owned: k.Owned,
	}
	if left := s.StrictHold(); left > 0 && k.Settings.Takeover == state.Strict {
		c.restored = s.Now() + left
	}
	defer func() { v.spaces = append(v.spaces, c) }()
	if k.Deleting {
		return
	}
	c.owners = make([]int32, k.Partitions)
	c.tokens = make([]state.Token, k.Partitions)
	for p := range c.owners {
		c.owners[p] = -1
	}
	for i := range v.sessions {
		if !slices.Contains(v.sessions[i].keyspaces, k.ID) {
			continue
		}
		at := int32(len(c.members))
		c.members = append(c.members, int32(i))
		for p := range s.Held(v.sessions[i].id, k.ID) {
			c.owners[p] = at
		}
	}
	for p := range c.tokens {
		c.tokens[p] = k.Lease(uint32(p)).Token
	}
	c.moves = slices.AppendSeq(make([]state.Move, 0, k.Draining), k.Moves())
	c.slots = slices.Collect(k.Slots())
	for x := range k.Suspects() {
		lease := k.Lease(x.Partition)
		x.Workers = slices.Clone(x.Workers)
		c.suspects = append(c.suspects, Suspect{Suspect: x, Held: lease.Session != 0, Since: lease.Since})
	}
}
