package etcdapi

import (
	"context"
	"sync"
	"time"
)

// relay keeps a stream to whoever leads, as long as that is another server.
type relay struct {
	a *API

	mu      sync.Mutex
	current *relayStream  // nil: none
	changed chan struct{} // closed, and made anew, whenever there is news of a leader
	streams sync.WaitGroup
}

func newRelay(a *API) *relay { return &relay{a: a, changed: make(chan struct{})} }

// changes returns a channel that is closed with the next news of a leader.
func (r *relay) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// stream to the leader, which may not have been opened yet; nil: there is none.
func (r *relay) stream() *relayStream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// Pauses between attempts to reach the same leader.
const (
	leastPause = 20 * time.Millisecond
	mostPause  = time.Second
)

// run follows the leadership until ctx ends, and returns when all streams have
// ended.
func (r *relay) run(ctx context.Context) {
	wake := make(chan struct{}, 1)
	stop := r.a.cfg.Store.NotifyLeader(wake)
	defer r.streams.Wait()
	defer r.replace(nil)
	defer stop()
	pause := leastPause
	for {
		var broken <-chan struct{}
		var again <-chan time.Time
		id, addr := r.target()
		now := r.stream()
		switch {
		case addr == "":
			r.replace(nil)
			if id != "" { // its address is on the way
				again = time.After(lookAgain)
			}
		case now == nil || now.id != id || now.addr != addr:
			now = newRelayStream(r.a, id, addr)
			r.replace(now)
			r.streams.Go(func() { now.run() })
			broken = now.broken
			pause = leastPause
		case now.isBroken():
			again = time.After(pause)
		default:
			broken = now.broken
		}
		select {
		case <-wake:
			r.news()
		case <-broken:
			r.news()
			if now.worked.Load() {
				pause = leastPause
			}
		case <-again:
			if now != nil && now.isBroken() {
				pause = min(2*pause, mostPause)
				r.replace(nil)
			}
		case <-ctx.Done():
			return
		}
	}
}

// target is whom to be connected to; addr is "" when that is nobody, or not
// known yet.
func (r *relay) target() (id, addr string) {
	id, ok := r.a.cfg.Store.LeaderID()
	if !ok || id == r.a.cfg.ServerID {
		return "", ""
	}
	return id, r.a.address(id)
}

// replace lets go of the stream that was used and uses another.
func (r *relay) replace(s *relayStream) {
	r.mu.Lock()
	old := r.current
	r.current = s
	r.mu.Unlock()
	if old != s {
		if old != nil {
			old.retire()
		}
		r.news()
	}
}

// news wakes all that wait for a leader.
func (r *relay) news() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}
