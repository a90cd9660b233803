package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring"
)

// Change is a set of workers that come and go at one moment. Of those that come
// ID, Zone and Capacity count; those that go leave as on a clean stop.
type Change struct {
	Add    []Worker
	Remove []string
}

// SimulatedMove is one change of owner; "" is nobody.
type SimulatedMove struct {
	Partition uint32
	From, To  string
	Cause     state.Cause
}

// SimulatedWorker is how a worker that counts stands before or after.
type SimulatedWorker struct {
	Worker
	Share
	Placed int // by the ring
}

// Simulated is what a change leads to.
type Simulated struct {
	Moves         []SimulatedMove
	Kept          int // partitions with the owner they had
	Before, After []SimulatedWorker
	// Rest is why some partitions are left without an owner.
	Rest Reason
}

// ErrUnsettled is returned for a simulation that does not come to rest.
var ErrUnsettled = errors.New("simulate: the plan does not come to rest within its bounds")

// Bounds and paces of a simulation, in its own time.
const (
	simulatedHandoff = 100 * time.Millisecond
	simulatedFor     = 2 * time.Hour
	simulatedPlans   = 200_000
	// simulatedWhole is the largest keyspace whose moves start at the planner's own pace.
	simulatedWhole = 4096
)

// Simulate runs Plan over and over, from a plan's input and with the change
// made, until nothing moves any more. Every handoff succeeds within a moment,
// nobody fails, and waiting costs nothing. It is pure: the input is only read.
//
// In a keyspace of more than 4,096 partitions more moves are begun at once than
// the planner would, so that it ends; how many move is the same.
func Simulate(ctx context.Context, in Input, ch Change) (*Simulated, error) {
	w := newSimulation(in)
	if err := w.ring(); err != nil {
		return nil, err
	}
	res := &Simulated{Before: w.figures()}
	first := w.holders()
	if err := w.change(ch); err != nil {
		return nil, err
	}
	if err := w.ring(); err != nil {
		return nil, err
	}
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	w.noteLeft()
	res.Moves, res.After, res.Rest = w.log, w.figures(), w.rest
	for p, id := range w.holders() {
		if id == first[p] {
			res.Kept++
		}
	}
	return res, nil
}

// simulation is a keyspace whose plans come true.
type simulation struct {
	in     Input
	from   []string // of partitions that have lost their owner and found none yet
	token  state.Token
	last   state.SessionID
	log    []SimulatedMove
	rest   Reason
	placed map[string]int
}

func newSimulation(in Input) *simulation {
	w := &simulation{in: in, from: make([]string, len(in.Owners))}
	w.in.Workers = slices.Clone(in.Workers)
	w.in.Owners, w.in.Tokens = slices.Clone(in.Owners), slices.Clone(in.Tokens)
	w.in.Lost = make([]state.Cause, len(in.Owners))
	copy(w.in.Lost, in.Lost)
	w.in.Moves, w.in.Slots = slices.Clone(in.Moves), slices.Clone(in.Slots)
	w.in.Suspects = slices.Clone(in.Suspects)
	w.in.Cool, w.in.Hold = make(map[uint32]state.Clock, len(in.Cool)), maps.Clone(in.Hold)
	maps.Copy(w.in.Cool, in.Cool)
	w.in.Actions = nil
	w.in.Pace = int32(max(1, len(in.Owners)/simulatedWhole))
	for _, t := range in.Tokens {
		w.token = max(w.token, t)
	}
	for i := range w.in.Workers {
		x := &w.in.Workers[i]
		w.last = max(w.last, x.Session)
		if x.thoughtDead(in.Now) {
			x.Standing = Gone // it will not renew
		}
	}
	w.count()
	return w
}

// count sets what each worker holds here.
func (w *simulation) count() {
	for i := range w.in.Workers {
		w.in.Workers[i].Here = 0
	}
	for _, o := range w.in.Owners {
		if o >= 0 {
			w.in.Workers[o].Here++
		}
	}
}

// ring computes the wish for the workers that count now.
func (w *simulation) ring() error {
	at := make(map[string]int32)
	var ids []string
	for i := range w.in.Workers {
		if x := &w.in.Workers[i]; x.mayReceive() {
			at[x.ID] = int32(i)
			ids = append(ids, x.ID)
		}
	}
	r, err := ring.New(ids, uint32(len(w.in.Owners)))
	if err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	w.in.wish(r, at)
	w.placed = make(map[string]int)
	for _, o := range r.Owners() {
		if o >= 0 {
			w.placed[r.Members()[o]]++
		}
	}
	return nil
}

// figures are the workers that hold something or may be given something, by id.
func (w *simulation) figures() []SimulatedWorker {
	w.count()
	out := Plan(w.in)
	var list []SimulatedWorker
	for i := range w.in.Workers {
		x := w.in.Workers[i]
		if !x.mayReceive() && x.Here == 0 {
			continue
		}
		f := SimulatedWorker{Worker: x, Placed: w.placed[x.ID]}
		if i < len(out.Shares) {
			f.Share = out.Shares[i]
		}
		list = append(list, f)
	}
	slices.SortStableFunc(list, func(a, b SimulatedWorker) int {
		return ByName(&a.Worker, &b.Worker)
	})
	return list
}

func (w *simulation) holders() []string {
	ids := make([]string, len(w.in.Owners))
	for p, o := range w.in.Owners {
		if o >= 0 {
			ids[p] = w.in.Workers[o].ID
		}
	}
	return ids
}

// change lets workers come and go, all at this moment.
func (w *simulation) change(ch Change) error {
	in := &w.in
	for _, id := range ch.Remove {
		i := slices.IndexFunc(in.Workers, func(x Worker) bool { return x.ID == id && x.Standing == Live })
		if i < 0 {
			return fmt.Errorf("simulate: no live worker %q", id)
		}
		in.Workers[i].Standing, in.Workers[i].Restart = Leaving, false
	}
	for _, x := range ch.Add {
		w.last++
		in.Workers = append(in.Workers, Worker{
			Session: w.last, ID: x.ID, Zone: x.Zone, Capacity: x.Capacity, Standing: Live,
			Opened: in.Now, Opens: []state.Clock{in.Now},
		})
		in.LastJoin = in.Now
	}
	if len(ch.Add)+len(ch.Remove) > 0 {
		if in.Now-in.LastChange >= quietFor {
			in.FirstChange = in.Now
		}
		in.LastChange = in.Now
	}
	return nil
}

// settle plans until a plan neither moves anything nor waits for a time that
// could change it.
func (w *simulation) settle(ctx context.Context) error {
	end := w.in.Now + simulatedFor
	for range simulatedPlans {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("simulate: %w", err)
		}
		w.cold()
		w.absolve()
		actions, _ := Step(Handoffs{Now: w.in.Now, Takeover: w.in.Settings.Takeover, Deleting: w.in.Deleting, Moves: w.in.Moves, Workers: w.in.Workers})
		w.in.Actions = actions
		out := Plan(w.in)
		w.rest = out.Rest
		w.in.Filling = out.Filling
		w.apply(out)
		moving := len(w.in.Moves) > 0
		w.handOver()
		switch {
		case moving || len(out.Grants)+len(out.Revokes) > 0:
			w.in.Now += simulatedHandoff
		case w.endBarred():
			w.in.Now += w.in.Settings.TTL
		case out.Wake == 0 || out.Wake > end:
			return nil
		default:
			w.in.Now = out.Wake
		}
	}
	return ErrUnsettled
}

// cold notes since when workers wait in a keyspace that nobody holds any of.
func (w *simulation) cold() {
	receivers := slices.ContainsFunc(w.in.Workers, func(x Worker) bool { return x.mayReceive() })
	owned := slices.ContainsFunc(w.in.Owners, func(o int32) bool { return o >= 0 })
	switch {
	case owned || !receivers:
		w.in.ColdSince = 0
	case w.in.ColdSince == 0:
		w.in.ColdSince = w.in.Now
	}
}

// absolve clears suspects that have been held for long enough.
func (w *simulation) absolve() {
	w.in.Suspects = slices.DeleteFunc(w.in.Suspects, func(s Suspect) bool {
		return s.Held && w.in.Now >= s.Since+state.ProbationTime
	})
}

func (w *simulation) at(s state.SessionID) int32 {
	return int32(slices.IndexFunc(w.in.Workers, func(x Worker) bool { return x.Session == s }))
}

// apply makes grants and revokes true, and drains begun.
func (w *simulation) apply(out Output) {
	for _, r := range out.Revokes {
		w.lose(r.Partition, r.Cause)
		w.endMove(r.Partition)
	}
	for _, g := range out.Grants {
		w.give(g.Partition, w.at(g.Session), g.Cause)
	}
	for _, d := range out.Drains {
		m := state.Move{Partition: d.Partition, Token: d.Token, Target: d.Target, Reserve: d.Reserve, Cause: d.Cause,
			Started: w.in.Now, Deadline: w.in.Now + w.in.Settings.HandoffTimeout}
		if i, ok := w.in.move(d.Partition); ok {
			w.in.Moves[i].Target = d.Target // a move that goes elsewhere now
		} else {
			w.in.Moves = slices.Insert(w.in.Moves, i, m)
		}
		if isBalance(d.Cause) {
			w.in.Cool[d.Partition] = w.in.Now + coolDown
		}
	}
}

func (w *simulation) endMove(p uint32) {
	if i, ok := w.in.move(p); ok {
		w.in.Moves = slices.Delete(w.in.Moves, i, i+1)
	}
}

// handOver ends all drains: every holder returns, and the receiver gets it.
func (w *simulation) handOver() {
	moves := w.in.Moves
	w.in.Moves = nil
	for _, m := range moves {
		o := w.in.Owners[m.Partition]
		if o < 0 {
			continue
		}
		if holder := &w.in.Workers[o]; m.Reserve || holder.Standing == Leaving {
			w.keep(holder, m)
		}
		w.lose(m.Partition, m.Cause)
		to := w.at(m.Target)
		if m.Target == 0 || m.Reserve || to < 0 || !w.in.Workers[to].mayReceive() || w.full(to) {
			continue // for the planner to place
		}
		w.give(m.Partition, to, m.Cause)
	}
}

func (w *simulation) full(i int32) bool {
	x := &w.in.Workers[i]
	return x.Capacity > 0 && x.Here+x.Elsewhere >= x.Capacity
}

// keep is the slot that the log keeps of a worker that leaves.
func (w *simulation) keep(x *Worker, m state.Move) {
	until := w.in.Now + state.SlotTime
	if m.Reserve {
		until = w.in.Now + w.in.Settings.RestartGrace
	}
	i, ok := slices.BinarySearchFunc(w.in.Slots, x.ID, func(s state.Slot, id string) int { return cmp.Compare(s.Worker, id) })
	if !ok {
		w.in.Slots = slices.Insert(w.in.Slots, i, state.Slot{Worker: x.ID, Zone: x.Zone})
	}
	s := &w.in.Slots[i]
	s.Until, s.Reserved = max(s.Until, until), s.Reserved || m.Reserve
	parts := slices.Clone(s.Partitions) // the input's own are only read
	if at, known := slices.BinarySearch(parts, m.Partition); !known {
		parts = slices.Insert(parts, at, m.Partition)
	}
	s.Partitions = parts
}

// lose takes a partition from its owner.
func (w *simulation) lose(p uint32, cause state.Cause) {
	if o := w.in.Owners[p]; o >= 0 {
		w.from[p] = w.in.Workers[o].ID
		w.in.Workers[o].Here--
	}
	w.in.Owners[p], w.in.Lost[p] = nobody, cause
	if i, ok := w.in.suspect(p); ok {
		w.in.Suspects[i].Held = false
	}
}

// give writes a move down when somebody has the partition.
func (w *simulation) give(p uint32, to int32, cause state.Cause) {
	w.log = append(w.log, SimulatedMove{p, w.from[p], w.in.Workers[to].ID, cause})
	w.token++
	w.in.Owners[p], w.in.Tokens[p], w.in.Lost[p], w.from[p] = to, w.token, state.CauseNone, ""
	w.in.Workers[to].Here++
	if i, ok := w.in.suspect(p); ok {
		s := &w.in.Suspects[i]
		s.Held, s.Since = true, w.in.Now
	}
}

// noteLeft writes down what has lost its owner and found none.
func (w *simulation) noteLeft() {
	for p, id := range w.from {
		if id != "" {
			w.log = append(w.log, SimulatedMove{uint32(p), id, "", w.in.Lost[p]})
		}
	}
}

// endBarred lets the sessions run out that hold strict leases and are known to
// be nobody's; without them nothing else is waited for.
func (w *simulation) endBarred() (any bool) {
	for p, o := range w.in.Owners {
		if o < 0 {
			continue
		}
		if s := w.in.Workers[o].Standing; s == Barred || s == Gone {
			w.lose(uint32(p), state.CauseExpired)
			any = true
		}
	}
	return any
}
