package gossip

import "sync/atomic"

// Stats counts since the start what somebody should look into.
type Stats struct {
	// UDPFailures is how often a member answered a stream (TCP) and not packets
	// (UDP): something drops them on the way.
	UDPFailures uint64
	// Conflicts is how often two addresses claimed one name. A few after each
	// restart at another address are normal.
	Conflicts uint64
	// Strangers is how often a member of another cluster was refused.
	Strangers uint64
}

type counters struct{ udpFailures, conflicts, strangers atomic.Uint64 }

// Stats returns the counts so far.
func (g *Gossip) Stats() Stats {
	return Stats{
		UDPFailures: g.stats.udpFailures.Load(),
		Conflicts:   g.stats.conflicts.Load(),
		Strangers:   g.stats.strangers.Load(),
	}
}
