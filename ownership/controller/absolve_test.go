package controller

import (
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// A partition under suspicion is not moved to even out. That it has been
// cleared is no event, so the plan itself must ask to be made again; else the
// move waits for the next event, such as a change of leader.
func TestPlanLooksAgainWhenASuspectMayBeCleared(t *testing.T) {
	w := newWorld(4, 1)
	for p := range w.owners {
		w.owners[p], w.tokens[p] = 0, state.Token(p+1)
	}
	w.join("w0001", 0)
	w.now += 10 * time.Minute
	w.reRing()
	in := w.input()
	since := w.now - 10*time.Second
	for p := range uint32(4) {
		in.Suspects = append(in.Suspects, Suspect{Suspect: state.Suspect{Partition: p, Failures: 1}, Held: true, Since: since})
	}
	out := Plan(in)
	if len(out.Drains) != 0 || out.Wanted == 0 {
		t.Fatalf("%d drains of suspects, %d wanted", len(out.Drains), out.Wanted)
	}
	if want := since + state.ProbationTime + absolvedWithin; out.Wake != want {
		t.Errorf("wakes at %v, the suspects may be cleared by %v", out.Wake, want)
	}
	in.Suspects, in.Now = nil, out.Wake
	if out := Plan(in); len(out.Drains) == 0 {
		t.Error("once they are cleared nothing is moved either")
	}
}

// Nobody is short, but one has too many, and all who could take some have come
// and gone too often to be given any yet, or gossip doubts them.
func TestPlanLooksAgainWhenReceiversMayHaveSettled(t *testing.T) {
	w := newWorld(200, 5)
	p := 0
	for i, n := range []int{46, 39, 39, 38, 38} {
		for range n {
			w.owners[p], w.tokens[p] = int32(i), state.Token(p+1)
			p++
		}
	}
	w.now += 10 * time.Minute
	opened := w.now - 20*time.Second
	for i := range w.workers[1:4] {
		x := &w.workers[1+i]
		x.Opened, x.Opens = opened, []state.Clock{opened - 40*time.Second, opened - 20*time.Second, opened}
	}
	w.reRing()
	in := w.input()
	in.Workers[4].Gossip, in.Workers[4].GossipUntil = Suspected, opened+stableFor+time.Second
	out := Plan(in)
	if len(out.Drains) != 0 {
		t.Fatalf("%d drains towards workers that may get none", len(out.Drains))
	}
	if want := opened + stableFor; out.Wake != want {
		t.Errorf("wakes at %v, the first may get some at %v", out.Wake, want)
	}
	in.Now = opened + stableFor
	if out := Plan(in); len(out.Drains) == 0 {
		t.Error("once they have settled nothing is moved either")
	}
}
