package server

import (
	"os"
	"testing"
	"time"
)

// simPace is how fast the simulated world turns. An hour of the quick one costs
// most of a minute, since hearts beat and members are probed many times a
// second; the long one has the same faults with all timers stretched, so that
// days pass, and with them what happens once in a long while.
type simPace struct {
	scale    int // of faults, waits and work
	ttl      time.Duration
	election time.Duration // the servers' election timeout
	// elected bounds an election on an idle network: one to three timeouts, or
	// as much again when the vote is split.
	elected time.Duration
	step    time.Duration // how often the simulation looks
	gossip  bool          // of the workers
	storms  int
	every   time.Duration // between the faults of a storm, about
	rest    time.Duration // after each storm
}

var (
	simQuick = simPace{
		scale: 1, ttl: 4 * time.Second, election: 500 * time.Millisecond, elected: 3 * time.Second,
		step: 20 * time.Millisecond, gossip: true, every: 1800 * time.Millisecond,
	}
	simLong = simPace{
		scale: 20, ttl: 80 * time.Second, election: 10 * time.Second, elected: time.Minute,
		step: time.Second, storms: 9, every: 2 * time.Minute, rest: 15 * time.Minute,
	}
)

// simLongEach is what a seed of the long simulation lasts at least.
const simLongEach = 6*time.Hour + 15*time.Minute

// of stretches a duration.
func (p *simPace) of(d time.Duration) time.Duration { return d * time.Duration(p.scale) }

// dir is where the servers' data goes. In the long simulation that is memory,
// where there is: a sync of the disk would take longer than all the rest, and
// what syncs are for is tested elsewhere.
func (p *simPace) dir(t *testing.T) string {
	const memory = "/dev/shm"
	if p.scale > 1 && roomy(memory) {
		if dir, err := os.MkdirTemp(memory, "leasehold-sim-"); err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}
