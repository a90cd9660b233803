package api

import (
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	// ChurnWindow is how far back PartitionTable.Churn counts.
	ChurnWindow = 10 * time.Minute
	// mostMoves bounds how many changes of owner are remembered for Churn; the
	// oldest are forgotten first.
	mostMoves = 1 << 18
	// spareOwners is how many names of workers that own nothing any more a table
	// keeps before it starts over.
	spareOwners = 1024
)

// PartitionTable is every partition of one keyspace as this server's own state has
// it, dense. API.Look fills it and brings it up to date. The zero value with a
// Keyspace is ready for it. One goroutine uses it at a time; its fields are to be
// read only.
type PartitionTable struct {
	// Keyspace is looked at. Set it before the first Look and not again.
	Keyspace string
	// ID is 0 while there is no such keyspace; then everything else is empty.
	ID state.KeyspaceID
	// Owners are worker ids. One keeps its place while ID and Generation stay.
	Owners []string
	// Owner has, per partition, the place of its owner in Owners, or -1.
	Owner []int32
	State []pb.PartitionState
	// Since is when the owner last changed, Unix milliseconds, to the second.
	Since []int64
	// Churn counts the changes from one owner to another in the ChurnWindow.
	Churn []uint16
	// Changed are the partitions that the last Look found otherwise than the one
	// before, ascending. With a new Generation all are.
	Changed []uint32
	// Generation rises when the numbers in Owner mean something else than before.
	Generation uint64
	// Blocked counts the partitions in that state.
	Blocked int

	revision uint64
	planned  bool // the plan had something blocked
	since    []state.Clock
	places   map[string]int32
	moves    []movedAt // oldest first, within the ChurnWindow
	buf      []state.Event
	dirty    []bool // by partition, within one Look
}

// movedAt is one change of owner.
type movedAt struct {
	at        int64 // Unix milliseconds
	partition uint32
}

// Look brings t up to date with this server's state.
func (a *API) Look(t *PartitionTable) {
	now := a.cfg.Wall()
	t.Changed = t.Changed[:0]
	var id state.KeyspaceID
	a.cfg.Store.View(func(s *state.State) {
		if ks, ok := s.KeyspaceByName(t.Keyspace); ok {
			id = ks.ID
		}
	})
	blocked := a.cfg.Controller.Blocked(id)
	a.cfg.Store.View(func(s *state.State) {
		ks, ok := s.KeyspaceByName(t.Keyspace)
		switch {
		case !ok && t.ID != 0:
			t.reset()
			return
		case !ok:
			return
		case ks.ID != t.ID:
			t.reset()
			t.begin(ks)
		case t.revision == s.Revision() && blocked == nil && !t.planned:
			t.age(now)
			return
		case len(t.Owners) > spareOwners+2*s.WorkerSessionCount():
			moves, revision := t.moves, t.revision
			t.reset()
			t.begin(ks)
			t.moves, t.revision = moves, revision
			for _, m := range moves {
				t.Churn[m.partition]++
			}
		}
		t.count(s, now)
		t.age(now)
		t.scan(s, ks, now, blocked)
		t.revision, t.planned = s.Revision(), blocked != nil
	})
	for p, d := range t.dirty {
		if d {
			t.Changed = append(t.Changed, uint32(p))
			t.dirty[p] = false
		}
	}
}

func (t *PartitionTable) reset() {
	*t = PartitionTable{Keyspace: t.Keyspace, Generation: t.Generation + 1, buf: t.buf}
}

func (t *PartitionTable) begin(ks *state.Keyspace) {
	n := ks.Partitions
	t.ID, t.places = ks.ID, map[string]int32{}
	t.Owner, t.State, t.Since, t.Churn = make([]int32, n), make([]pb.PartitionState, n), make([]int64, n), make([]uint16, n)
	t.since, t.dirty = make([]state.Clock, n), make([]bool, n)
	for p := range t.Owner {
		t.Owner[p], t.since[p] = -1, -1 // nothing is like it
	}
}

// count adds the changes of owner since the last Look. Should the ledger not
// reach back so far, it begins again with what there is.
func (t *PartitionTable) count(s *state.State, now time.Time) {
	oldest := now.Add(-ChurnWindow).UnixMilli()
	from := t.revision
	if from == 0 {
		t.countBack(s, oldest)
		return
	}
	for from < s.Revision() {
		evs, err := s.Events(from, eventsPerMessage, t.buf[:0])
		if err != nil || len(evs) == 0 {
			t.forget(len(t.moves))
			t.countBack(s, oldest)
			return
		}
		for i := range evs {
			t.note(&evs[i])
		}
		from, t.buf = evs[len(evs)-1].Revision, evs
	}
}

func (t *PartitionTable) countBack(s *state.State, oldest int64) {
	var found []movedAt
	newestFirst(s, func(ev *state.Event) bool {
		if t.moved(ev) && ev.Wall >= oldest {
			found = append(found, movedAt{ev.Wall, ev.Partition})
		}
		return ev.Wall >= oldest && len(found) < mostMoves
	})
	for i := len(found) - 1; i >= 0; i-- {
		t.push(found[i])
	}
}

func (t *PartitionTable) moved(ev *state.Event) bool {
	return ev.Kind == state.KindGrant && ev.Keyspace == t.ID && ev.From != "" && ev.From != ev.Worker && int(ev.Partition) < len(t.Churn)
}

func (t *PartitionTable) note(ev *state.Event) {
	if t.moved(ev) {
		t.push(movedAt{ev.Wall, ev.Partition})
	}
}

func (t *PartitionTable) push(m movedAt) {
	if len(t.moves) >= mostMoves {
		t.forget(1)
	}
	t.moves = append(t.moves, m)
	t.Churn[m.partition]++
	t.dirty[m.partition] = true
}

// age forgets what lies before the ChurnWindow.
func (t *PartitionTable) age(now time.Time) {
	oldest := now.Add(-ChurnWindow).UnixMilli()
	n := 0
	for n < len(t.moves) && t.moves[n].at < oldest {
		n++
	}
	t.forget(n)
}

func (t *PartitionTable) forget(n int) {
	for _, m := range t.moves[:n] {
		t.Churn[m.partition]--
		t.dirty[m.partition] = true
	}
	t.moves = t.moves[n:]
}

// scan compares every partition with what it was.
func (t *PartitionTable) scan(s *state.State, ks *state.Keyspace, now time.Time, blocked func(uint32, state.Lease) bool) {
	t.Blocked = 0
	begin := now.UnixMilli() - s.Now().Milliseconds() // of the logical clock, on the wall
	var last state.SessionID
	place := int32(-1)
	for p := range ks.Partitions {
		l := ks.Lease(p)
		if l.Session != last {
			last, place = l.Session, t.placeOf(s, l.Session)
		}
		st := stateOf(s, ks, p, l)
		if blocked != nil {
			st = withPlan(st, blocked(p, l))
		}
		if st == pb.PartitionState_PARTITION_STATE_BLOCKED {
			t.Blocked++
		}
		since := max(l.Since, ks.CreatedAt.Truncate(time.Second))
		if since != t.since[p] {
			t.since[p], t.Since[p], t.dirty[p] = since, begin+since.Milliseconds(), true
		}
		if place != t.Owner[p] || st != t.State[p] {
			t.Owner[p], t.State[p], t.dirty[p] = place, st, true
		}
	}
}

func (t *PartitionTable) placeOf(s *state.State, id state.SessionID) int32 {
	sess, ok := s.Session(id)
	if !ok {
		return -1
	}
	place, known := t.places[sess.Worker]
	if !known {
		place = int32(len(t.Owners))
		t.places[sess.Worker] = place
		t.Owners = append(t.Owners, sess.Worker)
	}
	return place
}
