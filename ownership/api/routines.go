package api

import (
	"sync"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// routines counts goroutines that outlive the call that started them by a
// moment. Unlike a WaitGroup it may be asked for more while somebody waits.
type routines struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // made by wait, closed when n is 0
}

// start runs fn, unless wait was called before.
func (r *routines) start(fn func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.n++
	go func() {
		defer r.done()
		fn()
	}()
	return true
}

func (r *routines) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n--
	if r.closed && r.n == 0 {
		close(r.idle)
	}
}

// close refuses new ones; the channel is closed when the last has returned.
func (r *routines) close() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.idle = make(chan struct{})
	if r.n == 0 {
		close(r.idle)
	}
	return r.idle
}

func errShuttingDown() error {
	return failf(pb.ReasonShuttingDown, "this server is stopping")
}
