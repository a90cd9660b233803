package etcdapi

import "sync"

// routines counts the goroutines that calls start, so that Run can wait for
// them.
type routines struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // made by wait; closed when n is 0
}

// start runs f in a goroutine, or reports false when Run is about to return.
func (r *routines) start(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.n++
	go func() {
		defer r.done()
		f()
	}()
	return true
}

func (r *routines) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 && r.idle != nil {
		close(r.idle)
	}
}

// wait refuses new ones and returns when all have ended.
func (r *routines) wait() {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.closed, r.idle = true, make(chan struct{})
	if r.n == 0 {
		close(r.idle)
	}
	r.mu.Unlock()
	<-r.idle
}
