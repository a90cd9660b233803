package server

import (
	"testing"
	"testing/synctest"
	"time"
)

// Workers whose configuration names machines that are switched off must not
// wait for them while a new leader is waiting: no lease may end.
func TestWorkersFindANewLeaderBesideSilentAddresses(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, simQuick, 6, dir)
		defer s.end()
		s.form()
		s.elsewhere(true, s.servers...)()
		s.helpers.Wait()
		s.waitFor(time.Minute, "all is owned by workers that found the servers through gossip", s.owned)
		s.waitFor(40*time.Second, "all servers are voters where they are", s.formed)
		for range 3 {
			s.settle(10 * time.Second)
			s.calm(s.killLeaderCalmly)
		}
	})
}

// The same with a leader whose machine has lost power: its connections are not
// even reset.
func TestWorkersFindANewLeaderWhenTheOldOneLosesPower(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, simQuick, 6, dir)
		defer s.end()
		s.form()
		for range 3 {
			s.settle(10 * time.Second)
			s.calm(s.switchLeaderOffCalmly)
		}
	})
}

func (s *sim) switchLeaderOffCalmly() (undo func()) {
	l := s.leader()
	heal := s.cut(s.others(l)...)
	s.history.add(note{kind: noteKilled, what: l.id})
	time.Sleep(s.pace.ttl + 2*time.Second)
	return func() {
		l.kill()
		heal()
		s.helpers.Go(l.start)
	}
}
