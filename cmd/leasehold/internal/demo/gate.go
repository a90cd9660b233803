package demo

import "sync"

// gate is where the driver holds one handler, between the look at its lease
// and its write, as a long pause of the garbage collector or a slow system
// call would. It knows nothing of leases and contexts, as those do not.
type gate struct {
	reached func(partition uint32, token uint64)

	mu    sync.Mutex
	armed map[uint32]chan struct{}
}

func newGate(reached func(uint32, uint64)) *gate {
	return &gate{reached: reached, armed: map[uint32]chan struct{}{}}
}

// arm closes the gate of a partition for the next handler that comes by.
func (g *gate) arm(partition uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.armed[partition] == nil {
		g.armed[partition] = make(chan struct{})
	}
}

// open lets whoever waits go on, and all that come after.
func (g *gate) open(partition uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.armed[partition]; ch != nil {
		close(ch)
		delete(g.armed, partition)
	}
}

// pass returns at once unless the gate is armed; then it reports and waits.
func (g *gate) pass(partition uint32, token uint64) {
	g.mu.Lock()
	ch := g.armed[partition]
	g.mu.Unlock()
	if ch != nil {
		g.reached(partition, token)
		<-ch
	}
}
