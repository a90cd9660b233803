package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring"
)

// world is a keyspace and its workers as bare numbers, for property tests of
// the planner: what it plans happens at once, and who moved where is written
// down.
type world struct {
	now      state.Clock
	settings state.Settings
	workers  []Worker
	owners   []int32
	tokens   []state.Token
	moves    []state.Move
	slots    []state.Slot
	last     state.Token
	session  state.SessionID
	changed  state.Clock
	filling  []state.SessionID

	ring        []int32
	ringMembers []string
	made        *ring.Ring

	log []moved
}

// moved is one change of owner.
type moved struct {
	partition uint32
	from, to  string
	cause     state.Cause
}

func newWorld(partitions, workers int) *world {
	w := &world{
		now:      time.Hour,
		settings: state.Settings{TTL: 10 * time.Second, Takeover: state.Strict, HandoffTimeout: 30 * time.Second},
		owners:   make([]int32, partitions),
		tokens:   make([]state.Token, partitions),
	}
	for i := range w.owners {
		w.owners[i] = -1
	}
	for i := range workers {
		w.join(fmt.Sprintf("w%04d", i), 0)
	}
	return w
}

func (w *world) join(id string, capacity uint32) *Worker {
	w.session++
	w.workers = append(w.workers, Worker{
		Session: w.session, ID: id, Standing: Live, Capacity: capacity, Opened: w.now, Opens: []state.Clock{w.now},
	})
	w.changed = w.now
	return &w.workers[len(w.workers)-1]
}

// remove takes a session out of the world; what it still held is unowned.
func (w *world) remove(id string) {
	i := w.find(id)
	w.workers = slices.Delete(w.workers, i, i+1)
	for p, o := range w.owners {
		if int(o) == i {
			w.owners[p] = -1
		} else if int(o) > i {
			w.owners[p]--
		}
	}
	w.changed = w.now
}

func (w *world) find(id string) int {
	return slices.IndexFunc(w.workers, func(x Worker) bool { return x.ID == id })
}

func (w *world) wish(r *ring.Ring) { w.ring, w.ringMembers, w.made = r.Owners(), r.Members(), r }

// reRing computes the ring of the workers that count.
func (w *world) reRing() {
	var ids []string
	for i := range w.workers {
		if w.workers[i].mayReceive() {
			ids = append(ids, w.workers[i].ID)
		}
	}
	r, err := ring.New(ids, uint32(len(w.owners)))
	if err != nil {
		panic(err)
	}
	w.wish(r)
}

func (w *world) input() Input {
	in := Input{
		Keyspace: 1, Settings: w.settings, Now: w.now,
		Workers: slices.Clone(w.workers), Owners: slices.Clone(w.owners), Tokens: slices.Clone(w.tokens),
		Ring: w.ring, Moves: slices.Clone(w.moves), Slots: slices.Clone(w.slots),
		LastChange: w.changed, FirstChange: w.changed, Filling: w.filling,
	}
	for _, m := range w.ringMembers {
		in.RingWorkers = append(in.RingWorkers, int32(w.find(m)))
	}
	return in
}

// apply makes a plan come true.
func (w *world) apply(out Output) {
	w.filling = out.Filling
	at := func(s state.SessionID) int32 {
		return int32(slices.IndexFunc(w.workers, func(x Worker) bool { return x.Session == s }))
	}
	name := func(i int32) string {
		if i < 0 {
			return ""
		}
		return w.workers[i].ID
	}
	give := func(p uint32, to int32, cause state.Cause) {
		w.log = append(w.log, moved{p, name(w.owners[p]), name(to), cause})
		w.owners[p] = to
		if to >= 0 {
			w.last++
			w.tokens[p] = w.last
		}
	}
	for _, r := range out.Revokes {
		w.owners[r.Partition] = -1
	}
	for _, g := range out.Grants {
		if w.owners[g.Partition] != -1 || w.tokens[g.Partition] != g.LastToken {
			panic("a grant that the state machine would refuse")
		}
		give(g.Partition, at(g.Session), g.Cause)
	}
	for _, d := range out.Drains {
		if w.tokens[d.Partition] != d.Token {
			panic("a drain that the state machine would refuse")
		}
		give(d.Partition, at(d.Target), d.Cause)
	}
}

// settle runs plans until nothing moves for good, and returns what moved.
func (w *world) settle() []moved {
	w.log = nil
	idle := 0
	for range 100_000 {
		out := Plan(w.input())
		w.apply(out)
		if len(out.Grants)+len(out.Drains)+len(out.Revokes) > 0 {
			idle = 0
			continue
		}
		if idle++; idle > 3 {
			return w.log
		}
		w.now += quietMax
	}
	panic("the plan never comes to rest")
}

// held counts what each live worker has.
func (w *world) held() map[string]int {
	n := make(map[string]int)
	for i := range w.workers {
		n[w.workers[i].ID] = 0
	}
	for _, o := range w.owners {
		if o >= 0 {
			n[w.workers[o].ID]++
		}
	}
	return n
}
