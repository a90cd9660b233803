package workertest

import (
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// wait blocks until ok holds, which is called with the lock held, or for most.
func (s *Server) wait(most time.Duration, ok func() bool) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		s.mu.Lock()
		done, changed := ok(), s.changed
		s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		}
	}
}

// await waits for something to become true of one lease, for as long as the
// server's patience and a drain in progress last.
func (s *Server) await(what string, token fence.Token, ok func(*lease) bool, hint string) *lease {
	s.t.Helper()
	s.mu.Lock()
	l := s.leases[token]
	most := s.patience
	if l != nil && !l.drainBy.IsZero() {
		most += max(0, time.Until(l.drainBy))
	}
	s.mu.Unlock()
	if l == nil {
		s.fatalf("await %s %d: no lease had that token: use what Grant returned", what, token)
	}
	if !s.wait(most, func() bool { return ok(l) }) {
		s.fatalf("lease of %s/%d, token %d: not %s after %v: %s", l.space.name, l.partition, token, what, most, hint)
	}
	return l
}

// AwaitRunning waits until the handler of a lease has been called.
func (s *Server) AwaitRunning(token fence.Token) {
	s.t.Helper()
	l := s.await("running", token, func(l *lease) bool { return l.running || l.over != nil },
		"a guard that does not answer the claim holds it up, and so does a handler of the partition's old lease that has not returned; and the Observer of Config must be kept, or wrapped")
	s.mu.Lock()
	running, over := l.running, l.over
	s.mu.Unlock()
	if !running {
		s.fatalf("lease of %s/%d, token %d: its handler will never run: %v", l.space.name, l.partition, token, over)
	}
}

// AwaitReturned waits until the handler of a lease has returned, and returns
// what it returned: a *worker.PanicError if it panicked.
func (s *Server) AwaitReturned(token fence.Token) error {
	s.t.Helper()
	l := s.await("returned", token, func(l *lease) bool { return l.returned },
		"the handler must return after Draining and once its context is done")
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.err
}

// AwaitContextEnd waits until the context of a lease has ended and returns its
// cause: worker.ErrExpired, ErrRevoked and so on, or worker.ErrReturned.
func (s *Server) AwaitContextEnd(token fence.Token) error {
	s.t.Helper()
	l := s.await("ended", token, func(l *lease) bool { return l.end != nil },
		"contexts end by Drain's budget, Expire, LoseConnection, Revoke, Evict, or when the handler returns; not while the worker is paused")
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.end
}

// AwaitReleased waits until a lease is over at the server, and the partition
// free for the next Grant. The event says how: KindRelease with the worker's
// cause, KindRevoke or KindExpire.
func (s *Server) AwaitReleased(token fence.Token) Event {
	s.t.Helper()
	l := s.await("released", token, func(l *lease) bool { return l.over != nil },
		"a strict lease is over when its handler has returned or its session has expired")
	s.mu.Lock()
	defer s.mu.Unlock()
	return *l.over
}

// AwaitExpired waits until the present session of a worker is over.
func (s *Server) AwaitExpired(worker string) {
	s.t.Helper()
	s.mu.Lock()
	x := s.workers[worker]
	s.mu.Unlock()
	if x == nil {
		s.fatalf("await the end of the session of %s: it has never had one", worker)
	}
	if !s.wait(s.patience+s.ttl, func() bool { return x.over != "" }) {
		s.fatalf("session of %s: not over after %v: it renews; Expire, LoseConnection and Pause keep it from that", worker, s.patience+s.ttl)
	}
}
