package workertest

import (
	"context"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// Start joins a worker and runs one keyspace until stop is called, as SIGTERM
// would: what is held is drained. stop returns what Run returned, at every
// call. At the end of the test a worker that is still running is stopped; an
// error that nobody has asked for by calling stop fails the test.
//
// Call worker.Join yourself for several keyspaces in one worker, or for Hold.
func (s *Server) Start(cfg worker.Config, keyspace string, h worker.Handler, opts ...worker.Option) (stop func() error) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w, err := worker.Join(ctx, cfg)
	if err != nil {
		cancel()
		s.fatalf("start worker %s: %v", cfg.ID, err)
	}
	s.mu.Lock()
	s.started[w.ID()]++
	s.mu.Unlock()
	done := make(chan struct{})
	var result error
	go func() {
		defer close(done)
		result = w.Run(ctx, keyspace, h, opts...)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.started[w.ID()]--; s.started[w.ID()] == 0 {
			s.ended[w.ID()] = result
		}
		s.changedLocked()
	}()
	asked := false
	s.t.Cleanup(func() {
		if l, ok := cfg.Clock.(*link); ok {
			l.resume()
			l.restore()
		}
		cancel()
		<-done
		if result != nil && !asked {
			s.t.Errorf("workertest: Run of worker %s ended with: %v\nif the test wants that, let it call stop and look at the error", w.ID(), result)
		}
	})
	return func() error {
		asked = true
		cancel()
		<-done
		return result
	}
}

// Grant gives a partition to a worker and returns the token of the lease. It
// waits until the worker has a session that has joined the keyspace.
func (s *Server) Grant(worker, keyspace string, partition uint32) fence.Token {
	s.t.Helper()
	s.mu.Lock()
	sp := s.spaceLocked(keyspace)
	s.mu.Unlock()
	s.checkPartition(sp, keyspace, partition)
	var x *session
	var failed error
	ok := s.wait(s.patience, func() bool {
		x, failed = s.workers[worker], nil
		if x != nil && x.over == "" && (x.barred != "" || x.leaving || x.joined(sp)) {
			return true
		}
		if s.started[worker] == 0 {
			failed = s.ended[worker]
		}
		return failed != nil
	})
	switch {
	case failed != nil:
		s.fatalf("grant %s/%d to %s: its Run has ended with: %v", keyspace, partition, worker, failed)
	case !ok:
		s.fatalf("grant %s/%d to %s: no session of that worker has joined the keyspace within %v: run it with Start, or with worker.Join and srv.Config(%q)",
			keyspace, partition, worker, s.patience, worker)
	}
	s.mu.Lock()
	cur := sp.owners[partition]
	var l *lease
	barred, leaving := x.barred, x.leaving
	if cur == nil && barred == "" && !leaving && x.over == "" {
		l = s.grantLocked(x, sp, partition)
	}
	s.mu.Unlock()
	switch {
	case l != nil:
		return l.token
	case barred != "":
		s.fatalf("grant %s/%d to %s: its session is %s: start a worker with that id anew", keyspace, partition, worker, barred)
	case leaving:
		s.fatalf("grant %s/%d to %s: it is leaving, and a server grants it nothing any more", keyspace, partition, worker)
	case cur != nil:
		s.fatalf("grant %s/%d to %s: %s holds it under token %d, and a partition has one owner: Drain or Expire it, and AwaitReleased(%d), first",
			keyspace, partition, worker, cur.session.worker, cur.token, cur.token)
	}
	s.fatalf("grant %s/%d to %s: its session has just expired", keyspace, partition, worker)
	return 0
}

// Drain begins a planned move of a lease: its owner is asked to finish within
// the budget. AwaitReleased tells what came of it, and then Grant gives the
// partition to the next owner. When the budget is over the library ends the
// context with worker.ErrDrainTimeout; a fenced lease is taken back then, a
// strict one lasts until its handler has returned or its session expires.
func (s *Server) Drain(token fence.Token, budget time.Duration) {
	s.t.Helper()
	if budget <= 0 {
		s.fatalf("drain %d within %v: the budget must be above 0: a real server gives 30s, or what the keyspace says", token, budget)
	}
	l := s.held("drain", token)
	s.mu.Lock()
	again := !l.drainBy.IsZero()
	if !again {
		s.drainLocked(l, budget, CauseOperator)
	}
	s.mu.Unlock()
	if again {
		s.fatalf("drain %d: it is draining already: AwaitReleased(%d) waits for its end", token, token)
	}
}

// Revoke takes a lease of a fenced keyspace back at once: the worker hears
// worker.ErrRevoked. A real server does it when it knows that a worker is dead.
func (s *Server) Revoke(token fence.Token) {
	s.t.Helper()
	l := s.held("revoke", token)
	if !l.space.fenced {
		s.fatalf("revoke %d: keyspace %s is strict, and a strict lease ends by release or with its session only: use Drain, Expire or Evict, or make the keyspace with Fenced",
			token, l.space.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revokeLocked(l, CauseOperator)
}

// held finds a lease that has not ended.
func (s *Server) held(what string, token fence.Token) *lease {
	s.t.Helper()
	s.mu.Lock()
	l := s.leases[token]
	var over *Event
	if l != nil {
		over = l.over
	}
	s.mu.Unlock()
	switch {
	case l == nil:
		s.fatalf("%s %d: no lease had that token: use what Grant returned", what, token)
	case over != nil:
		s.fatalf("%s %d: the lease is over: %v", what, token, over)
	}
	return l
}

// Evict bars the worker's session, as `leasehold workers evict` does: it hears
// worker.ErrEvicted, and its Run returns that.
func (s *Server) Evict(worker string) {
	s.t.Helper()
	x := s.session("evict", worker)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barLocked(x, CauseEvicted)
}

// Expire loses the worker's keep-alives until its session has expired, and then
// restores the connection: contexts end with worker.ErrExpired, by the worker's
// own clock and before the server lets go. It takes up to the TTL. Grant finds
// the session that the worker opens next.
func (s *Server) Expire(worker string) {
	s.t.Helper()
	s.session("expire", worker)
	_, lost := s.linksOf("expire", worker, func(paused, _ bool) bool { return !paused },
		"it is paused, and keeps nothing alive: AwaitExpired waits for its session's end")
	s.LoseConnection(worker)
	s.AwaitExpired(worker)
	if !lost {
		s.RestoreConnection(worker)
	}
}

// LoseConnection cuts a worker off: what it sends reaches nobody, and it hears
// nothing. Its contexts end at its own deadline, and its session a little later.
func (s *Server) LoseConnection(worker string) {
	s.t.Helper()
	links, _ := s.linksOf("lose the connection of", worker, nil, "")
	for _, l := range links {
		l.lose()
	}
}

// RestoreConnection ends LoseConnection.
func (s *Server) RestoreConnection(worker string) {
	s.t.Helper()
	links, _ := s.linksOf("restore the connection of", worker, func(_, lost bool) bool { return lost }, "it was not lost: LoseConnection comes first")
	for _, l := range links {
		l.restore()
	}
}

// Pause stops the worker's process as it looks from inside the library: its
// clocks stand still, so that its leases seem to last, and nothing comes from
// the network. The server sees its keep-alives missing, and the session
// expires. Code of the handlers does run on: it stands for what a real process
// does between being woken and the library's next look at the clock.
//
// All processes of that id made by Config so far are paused, not later ones.
func (s *Server) Pause(worker string) {
	s.t.Helper()
	links, _ := s.linksOf("pause", worker, func(paused, _ bool) bool { return !paused }, "it is paused already: Resume ends that")
	for _, l := range links {
		l.pause()
	}
}

// Resume ends Pause: the clocks jump to the present. If the session is over by
// then, contexts end with worker.ErrExpired and the worker opens another.
func (s *Server) Resume(worker string) {
	s.t.Helper()
	links, _ := s.linksOf("resume", worker, func(paused, _ bool) bool { return paused }, "it is not paused: Pause comes first")
	for _, l := range links {
		l.resume()
	}
}

// linksOf finds the processes of a worker id of which ok holds, if given. lost
// reports whether one of them is cut off.
func (s *Server) linksOf(what, worker string, ok func(paused, lost bool) bool, otherwise string) (links []*link, lost bool) {
	s.t.Helper()
	s.mu.Lock()
	all := s.links
	s.mu.Unlock()
	known := false
	for _, l := range all {
		if l.worker != worker {
			continue
		}
		known = true
		p, x := l.state()
		lost = lost || x
		if ok == nil || ok(p, x) {
			links = append(links, l)
		}
	}
	switch {
	case !known:
		s.fatalf("%s %s: there is no such worker: srv.Config(%q) makes one", what, worker, worker)
	case len(links) == 0:
		s.fatalf("%s %s: %s", what, worker, otherwise)
	}
	return links, lost
}

// session finds the present session of a worker, which must be alive.
func (s *Server) session(what, worker string) *session {
	s.t.Helper()
	var x *session
	if !s.wait(s.patience, func() bool {
		x = s.workers[worker]
		return x != nil && x.over == ""
	}) {
		s.fatalf("%s %s: it has no session, and opened none within %v: run it with Start, or with worker.Join and srv.Config(%q)", what, worker, s.patience, worker)
	}
	s.mu.Lock()
	barred := x.barred
	s.mu.Unlock()
	if barred != "" && barred != leaseholdv1.ReasonSuperseded {
		s.fatalf("%s %s: its session is %s already", what, worker, barred)
	}
	return x
}

func (s *Server) checkPartition(sp *space, keyspace string, partition uint32) {
	s.t.Helper()
	switch {
	case sp == nil:
		s.fatalf("keyspace %q does not exist: give NewServer the option Strict(%q, partitions) or Fenced(%q, partitions)", keyspace, keyspace, keyspace)
	case partition >= sp.partitions:
		s.fatalf("partition %d of keyspace %s: it has %d, numbered from 0", partition, keyspace, sp.partitions)
	}
}
