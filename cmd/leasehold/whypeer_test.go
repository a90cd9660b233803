package main

import (
	"context"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func (p *peer) ExplainPartition(_ context.Context, r *leaseholdv1.ExplainPartitionRequest) (*leaseholdv1.Explanation, error) {
	x := &leaseholdv1.Explanation{
		Partition: partitions()[0],
		Reasons: []*leaseholdv1.Reason{
			{Code: "owner_kept", Text: "w2 keeps it because it is alive\x1b[2J (choice 2 of 2)", Next: "if it must be there: leasehold partitions move orders/0 --to w4"},
			{Code: "moved", Text: "it went from w4 to w2 at 2026-03-01T12:00:03Z: the session of w4 ran out (token 49387577294863, index 103)"},
		},
		Candidates: []*leaseholdv1.Candidate{
			{Worker: "w4", Rank: 1, Held: 1, Most: 3, Verdict: "eligible", Note: "the ring places it here"},
			{Worker: "w2", Rank: 2, Held: 2, Most: 3, Verdict: "owner"},
			{Worker: "w1", Verdict: "drained", Note: "by an operator"},
		},
		History:    []*leaseholdv1.Event{event(2, "expire", "orders", 0, "expired"), event(3, "grant", "orders", 0, "expired")},
		HistoryCut: true,
	}
	return x, p.ask(r)
}

func ringMembers() []*leaseholdv1.RingMember {
	return []*leaseholdv1.RingMember{
		{Worker: "w1", State: "live", Draining: true},
		{Worker: "w2", State: "live", Placed: 2, Held: 3, Fair: 1.5, Most: 3, Capacity: 8},
		{Worker: "w4", State: "live", Placed: 2, Held: 1, Fair: 2.5, Most: 3},
	}
}

func (p *peer) GetRing(_ context.Context, r *leaseholdv1.GetRingRequest) (*leaseholdv1.Ring, error) {
	m := &leaseholdv1.Ring{Keyspace: r.GetKeyspace(), Version: "00c0ffee00c0ffee", Members: ringMembers(), Index: 120}
	if r.GetPoints() {
		m.Points = []*leaseholdv1.RingPoint{{Position: "0123456789abcdef", Member: 1}, {Position: "fedcba9876543210", Member: 2}}
		m.Placement = []uint32{1, 2, 1, 2}
	}
	return m, p.ask(r)
}

func (p *peer) SimulateRing(_ context.Context, r *leaseholdv1.SimulateRingRequest) (*leaseholdv1.Simulation, error) {
	return &leaseholdv1.Simulation{
		Moves: []*leaseholdv1.SimulatedMove{{Partition: 2, To: "w4", Cause: "expired"}, {Partition: 0, From: "w2", To: "w9", Cause: "leave"}, {Partition: 1, From: "w2", Cause: "leave"}},
		Kept:  1, Before: ringMembers()[1:],
		After: []*leaseholdv1.RingMember{{Worker: "w4", State: "live", Held: 2, Fair: 2, Most: 2, Placed: 2}, {Worker: "w9", State: "live", Held: 1, Fair: 1, Most: 1, Capacity: 1, Placed: 2}},
	}, p.ask(r)
}
