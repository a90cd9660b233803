package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// why prints what Explain makes of a partition.
func (s *story) why(partition uint32) {
	in := s.input()
	plan := &Planned{Input: in, Output: Plan(in), Ring: s.w.made}
	var owner state.SessionID
	if o := in.Owners[partition]; o >= 0 {
		owner = in.Workers[o].Session
	}
	x := Explain(plan, partition, owner, s.w.now)
	left := func(until state.Clock) string {
		if until == 0 {
			return ""
		}
		return fmt.Sprintf(", %v more", until-s.w.now)
	}
	for i, c := range x.Candidates {
		rank := "off the ring"
		if c.Rank > 0 {
			rank = fmt.Sprintf("choice %d", c.Rank)
		}
		wish := ""
		if i == x.Wish {
			wish = ", placed here"
		}
		if c.Chance == ChanceOwner && !c.Settled {
			wish += ", but " + string(c.Without)
		}
		fmt.Fprintf(&s.out, "%s: %s (%s, %d of %d%s%s)\n", c.Worker.ID, c.Chance, rank, c.Load, c.Most, wish, left(c.Until))
	}
	if x.Gives {
		fmt.Fprintf(&s.out, "may go to even out, now: %s%s\n", strings.TrimSpace("yes "+string(x.Stay)), left(x.Until))
	}
}

// simulate prints what a change would move.
func (s *story) simulate(f []string) error {
	var ch Change
	for _, w := range f {
		id, capacity, _ := strings.Cut(w[1:], ":")
		if w[0] == '-' {
			ch.Remove = append(ch.Remove, id)
			continue
		}
		n, _ := strconv.Atoi(capacity)
		ch.Add = append(ch.Add, Worker{ID: id, Capacity: uint32(n)})
	}
	res, err := Simulate(context.Background(), s.input(), ch)
	if err != nil {
		return err
	}
	lines := map[string][]uint32{}
	var order []string
	for _, m := range res.Moves {
		key := fmt.Sprintf("%s to %s (%v):", or(m.From, "nobody"), or(m.To, "nobody"), m.Cause)
		if lines[key] == nil {
			order = append(order, key)
		}
		lines[key] = append(lines[key], m.Partition)
	}
	for _, key := range order {
		fmt.Fprintf(&s.out, "%s%s\n", key, ranges(slices.Sorted(slices.Values(lines[key]))))
	}
	fmt.Fprintf(&s.out, "%d stay\n", res.Kept)
	for _, w := range res.After {
		fmt.Fprintf(&s.out, "%s holds %d of %d\n", w.ID, w.Here, w.Most)
	}
	return nil
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// randomInput is a keyspace in some disorder.
func randomInput(t *rapid.T) Input {
	w := newWorld(rapid.IntRange(1, 40).Draw(t, "partitions"), rapid.IntRange(0, 5).Draw(t, "workers"))
	w.settings.Takeover = rapid.SampledFrom([]state.Takeover{state.Strict, state.Fenced}).Draw(t, "takeover")
	w.reRing()
	for p := range w.owners {
		w.owners[p] = int32(rapid.IntRange(-1, len(w.workers)-1).Draw(t, "owner"))
		w.last++
		w.tokens[p] = w.last
	}
	for i := range w.workers {
		x := &w.workers[i]
		x.Capacity = uint32(rapid.SampledFrom([]int{0, 0, 3, 10}).Draw(t, "capacity"))
		x.Standing = rapid.SampledFrom([]Standing{Live, Live, Live, Leaving, Barred, Gone}).Draw(t, "standing")
		x.Drained = rapid.IntRange(0, 5).Draw(t, "drained") == 0
		x.Gossip = rapid.SampledFrom([]Verdict{Unknown, Alive, Suspected, Dead}).Draw(t, "gossip")
		x.GossipUntil = w.now + 5*time.Second
	}
	in := w.input()
	in.Cool, in.Hold, in.Lost = map[uint32]state.Clock{}, map[uint32]state.Clock{}, make([]state.Cause, len(in.Owners))
	for p := range in.Owners {
		part := uint32(p)
		switch rapid.IntRange(0, 9).Draw(t, "what") {
		case 0:
			in.Cool[part] = w.now + time.Minute
		case 1:
			in.Hold[part] = w.now + time.Second
		case 2:
			in.Suspects = append(in.Suspects, Suspect{
				Suspect: state.Suspect{Partition: part, Workers: []string{"w0000", "w0001"}, Failures: 2, RetryAt: w.now + time.Second},
				Held:    in.Owners[p] >= 0, Since: w.now,
			})
		case 3:
			in.Slots = append(in.Slots, state.Slot{Worker: fmt.Sprintf("x%02d", p), Partitions: []uint32{part}, Until: w.now + 20*time.Second})
		case 4:
			if in.Owners[p] >= 0 {
				in.Moves = append(in.Moves, state.Move{Partition: part, Token: in.Tokens[p], Cause: state.CauseBalance, Deadline: w.now + time.Minute})
			}
		}
	}
	return in
}

// A simulation only reads what it is given, comes to rest, and its figures agree
// with each other: who has what in the end, what moved and what did not.
func TestSimulationsOnlyReadAndAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := randomInput(t)
		same := copied(in)
		var ch Change
		for i := range rapid.IntRange(0, 3).Draw(t, "come") {
			ch.Add = append(ch.Add, Worker{ID: fmt.Sprintf("n%d", i), Capacity: uint32(rapid.IntRange(0, 3).Draw(t, "room"))})
		}
		for i := range in.Workers {
			if in.Workers[i].Standing == Live && in.Workers[i].Gossip != Dead && rapid.IntRange(0, 3).Draw(t, "goes") == 0 {
				ch.Remove = append(ch.Remove, in.Workers[i].ID)
			}
		}
		res, err := Simulate(context.Background(), in, ch)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(in, same) {
			t.Fatal("the input has changed")
		}
		owner := map[uint32]string{}
		for p, o := range in.Owners {
			if o >= 0 {
				owner[uint32(p)] = in.Workers[o].ID
			}
		}
		first := maps.Clone(owner)
		for _, m := range res.Moves {
			if m.From != "" && owner[m.Partition] != m.From {
				t.Fatalf("partition %d moves from %s, is with %q", m.Partition, m.From, owner[m.Partition])
			}
			owner[m.Partition] = m.To
		}
		held, kept := map[string]int{}, 0
		for p := range in.Owners {
			if owner[uint32(p)] == first[uint32(p)] {
				kept++
			}
			if id := owner[uint32(p)]; id != "" {
				held[id]++
			}
		}
		if kept != res.Kept {
			t.Errorf("kept %d, by the moves %d", res.Kept, kept)
		}
		for _, w := range res.After {
			if held[w.ID] < int(w.Here) || w.Standing == Live && held[w.ID] != int(w.Here) {
				t.Errorf("%s holds %d, by the moves %d", w.ID, w.Here, held[w.ID])
			}
			if slices.ContainsFunc(ch.Add, func(a Worker) bool { return a.ID == w.ID }) && w.Capacity > 0 && w.Here > w.Capacity {
				t.Errorf("%s holds %d, capacity %d", w.ID, w.Here, w.Capacity)
			}
		}
		for _, id := range ch.Remove {
			if held[id] > 0 {
				t.Errorf("%s has gone and holds %d", id, held[id])
			}
		}
	})
}

// copied shares no memory with in.
func copied(in Input) Input {
	c := in
	c.Workers, c.Owners, c.Tokens = slices.Clone(in.Workers), slices.Clone(in.Owners), slices.Clone(in.Tokens)
	c.Lost, c.Moves, c.Suspects = slices.Clone(in.Lost), slices.Clone(in.Moves), slices.Clone(in.Suspects)
	c.Slots = slices.Clone(in.Slots)
	for i := range c.Slots {
		c.Slots[i].Partitions = slices.Clone(c.Slots[i].Partitions)
	}
	c.Cool, c.Hold = maps.Clone(in.Cool), maps.Clone(in.Hold)
	return c
}

func TestSimulationRefusesAndEnds(t *testing.T) {
	w := newWorld(8, 2)
	if _, err := Simulate(t.Context(), w.input(), Change{Remove: []string{"nobody"}}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("removed an unknown worker: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Simulate(ctx, w.input(), Change{}); !errors.Is(err, context.Canceled) {
		t.Errorf("went on without its caller: %v", err)
	}
}

// Whoever would be given an unowned partition at once was called eligible, and
// whoever was not called so is given it only if nobody else has room.
func TestEligibleIsWhoIsGranted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := randomInput(t)
		in.Actions, _ = Step(Handoffs{Now: in.Now, Takeover: in.Settings.Takeover, Moves: in.Moves, Workers: in.Workers})
		out := Plan(in)
		for _, g := range out.Grants {
			// As the plan was about to grant it: without this one grant.
			before := out
			before.Shares = slices.Clone(out.Shares)
			i := slices.IndexFunc(in.Workers, func(w Worker) bool { return w.Session == g.Session })
			before.Shares[i].Load--
			x := Explain(&Planned{Input: in, Output: before}, g.Partition, 0, in.Now)
			for _, c := range x.Candidates {
				if c.Worker.Session != g.Session {
					continue
				}
				switch c.Chance {
				case ChanceEligible, ChanceFailed, ChanceUnsettled:
				case ChanceFull: // by its share, which was another before all had been placed
					if c.Load < c.Limit {
						continue
					}
					fallthrough
				default:
					t.Fatalf("partition %d is granted to %s, which is %s", g.Partition, c.Worker.ID, c.Chance)
				}
			}
		}
	})
}
