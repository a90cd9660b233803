package server

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// owned reports whether every partition has a living owner whose handler runs.
func (s *sim) owned() (ok bool, why string) {
	s.noteSessions()
	l := s.leader()
	if l == nil {
		return false, "no leader"
	}
	srv := l.running()
	if srv == nil {
		return false, "no leader"
	}
	srv.store.View(func(st *state.State) {
		for k := range st.Keyspaces() {
			for p := range k.Partitions {
				lease := k.Lease(p)
				x, held := st.Session(lease.Session)
				at := fmt.Sprintf("%s/%d", k.Name, p)
				if !held {
					why = at + " has no owner"
					if q, ok := k.Suspect(p); ok {
						why += fmt.Sprintf(": %+v", q)
					}
					return
				}
				w := s.workers[x.Worker]
				if w == nil || w.tag() != x.Endpoint || !w.alive() {
					why = fmt.Sprintf("%s is owned by %s of %s, which is gone", at, x.Endpoint, x.Worker)
					return
				}
				if !s.history.holds(place{k.Name, p}, w.number, uint64(lease.Token)) {
					why = fmt.Sprintf("%s: %s has no context under token %d", at, x.Endpoint, lease.Token)
					return
				}
			}
		}
		ok = true
	})
	return ok, why
}

// replaceEvicted starts workers again whose process ended by itself.
func (s *sim) replaceEvicted() {
	for _, id := range s.ids {
		p := s.workers[id]
		select {
		case <-p.done:
			if !p.gone {
				p.gone = true
				s.evicted++
				p.host.kill()
				s.spawn(id)
			}
		default:
		}
	}
}

// heal ends all trouble, and wants everything owned within 10 s of that, and
// lost servers replaced in time: they are given up after ten election timeouts,
// and their successors vote after twenty in which they have kept up.
func (s *sim) heal() {
	s.net.healAll()
	for _, x := range s.servers {
		x.disk.heal()
	}
	for _, x := range s.servers {
		x.start()
	}
	s.newTool()
	for _, id := range s.ids {
		p := s.workers[id]
		p.resume()
		if p.gone {
			s.spawn(id)
		}
		s.undrain(id)
	}
	began := time.Now()
	s.waitFor(s.pace.of(10*time.Second), "after the last fault all is owned by living workers", func() (bool, string) {
		s.replaceEvicted()
		s.retrySuspects()
		return s.owned()
	})
	s.slowest = max(s.slowest, time.Since(began))
	s.healed++
	began = time.Now()
	s.waitFor(s.pace.of(40*time.Second), "after the last fault all servers are voters at their addresses", s.formed)
	s.longest = max(s.longest, time.Since(began))
}

// retryQuarantined does what an operator does after having killed one worker
// after the other: what was always there is no poison. Partitions that two
// deaths have made suspect are otherwise tried one at a time, TTL + 2 s each. It
// looks once a second.
func (s *sim) retrySuspects() {
	l := s.leader()
	if l == nil || l.running() == nil || time.Since(s.retried) < time.Second {
		return
	}
	s.retried = time.Now()
	l.running().store.View(func(st *state.State) {
		for k := range st.Keyspaces() {
			for q := range k.Suspects() {
				if k.Lease(q.Partition).Session != 0 {
					continue
				}
				s.retries++
				s.operate(func(ctx context.Context) error {
					_, err := s.operator().Partitions().RetryPartition(ctx, &leaseholdv1.RetryPartitionRequest{Keyspace: k.Name, Partition: q.Partition})
					return err
				})
			}
		}
	})
}

// simQuiet is longer than what the controller remembers of moves and deaths:
// probation and cool-down.
const simQuiet = 2*time.Minute + 5*time.Second

// rest is ordinary life between two storms: all that happens is work.
func (s *sim) rest() {
	for end := time.Now().Add(s.pace.rest); time.Now().Before(end); {
		time.Sleep(s.pace.of(time.Second))
		s.replaceEvicted()
	}
}

// settle waits until nothing has moved for so long that nothing is held back
// any more: what moves from then on has a cause of its own.
func (s *sim) settle(quiet time.Duration) {
	last, since := uint64(0), time.Now()
	s.waitFor(s.pace.of(15*time.Minute), "moves come to an end", func() (bool, string) {
		s.replaceEvicted()
		s.retrySuspects()
		ok, why := s.owned()
		if !ok {
			since = time.Now()
			return false, why
		}
		l := s.leader()
		if l == nil || l.running() == nil { // it was lost since
			return false, "no leader"
		}
		var now uint64
		l.running().store.View(func(st *state.State) { now = st.Revision() })
		if now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > quiet, fmt.Sprintf("last move %v ago", time.Since(since))
	})
}

// calm measures one thing with nothing else going on.
func (s *sim) calm(do func() (undo func())) {
	s.history.add(note{kind: noteCalm, what: "begin"})
	undo := do()
	s.history.add(note{kind: noteCalm, what: "end"})
	undo()
	s.helpers.Wait()
	s.waitFor(s.pace.of(15*time.Second), "after a calm all is owned", s.owned)
}

func (s *sim) killLeaderCalmly() (undo func()) {
	undo = s.killServer(s.leader())
	time.Sleep(s.pace.ttl + 2*time.Second)
	return undo
}

func (s *sim) killWorkerCalmly() (undo func()) {
	p := s.process(s.rng.IntN(60))
	p.kill()
	time.Sleep(s.pace.ttl + 2*time.Second)
	return s.revive(p)
}

// killBothCalmly kills a worker and, before its session has run out, the leader.
func (s *sim) killBothCalmly() (undo func()) {
	p := s.process(s.rng.IntN(60))
	p.kill()
	time.Sleep(simDuration(s.rng, s.pace.ttl))
	server := s.killServer(s.leader())
	time.Sleep(s.pace.ttl + s.pace.elected + 2*time.Second)
	return func() { s.revive(p)(); server() }
}
