package server

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The checks between storms must find what they are there for, in a cluster
// that is well but for one thing.
func TestChecksBetweenStormsFindWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, simQuick, 1, dir)
		defer s.end()
		s.form()
		s.checkStatesAreCompared()
		s.checkOwnersAreSought()
		s.checkServersAreSought()
		s.checkDisksHang()
	})
}

// want makes a check that has to fail, with words of its complaint.
func (s *sim) want(words string, ok bool, complaint string) {
	s.t.Helper()
	if ok || !strings.Contains(complaint, words) {
		s.t.Errorf("the check says %t, %q; want a complaint with %q", ok, complaint, words)
	}
}

func (s *sim) wantErr(words string, err error) {
	s.t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		s.t.Errorf("the check says %v; want a complaint with %q", err, words)
	}
}

func (s *sim) checkStatesAreCompared() {
	seen := sightings{}
	if err := s.compareStates(seen); err != nil {
		s.t.Fatal(err)
	}
	for index, of := range seen {
		if len(of) == len(s.servers) {
			other := bytes.Clone(of["s2"])
			other[len(other)/2] ^= 1
			s.wantErr("s2 and s1 differ", s.compareStates(sightings{index: {"s1": other}}))
		}
	}
	heal := s.cut(s.others(s.servers[2])...)
	time.Sleep(s.pace.ttl) // the others go on
	s.wantErr("not within", s.compareStates(sightings{}))
	heal()
	s.waitFor(15*time.Second, "all is owned again", s.owned)
}

func (s *sim) checkOwnersAreSought() {
	h, at := s.history, place{simKeyspaces[0].name, 0}
	doctor := func(live map[int]uint64) (had map[int]uint64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		had, h.live[at] = h.live[at], live
		return had
	}
	had := doctor(map[int]uint64{})
	ok, why := s.owned()
	s.want("has no context", ok, why)
	doctor(had)

	p := s.workers["w1"]
	p.kill()
	ok, why = s.owned()
	s.want("which is gone", ok, why)
	s.wantErr("is gone", s.within(s.pace.ttl/2, "all is owned", s.owned))
	s.revive(p)()
	s.waitFor(15*time.Second, "all is owned again", s.owned)

	for _, p := range s.workers {
		p.leave()
	}
	for _, p := range s.workers {
		<-p.done
	}
	ok, why = s.owned()
	s.want("has no owner", ok, why)
	for _, id := range s.ids {
		s.spawn(id)
	}
	s.waitFor(15*time.Second, "all is owned again", s.owned)

	for _, x := range s.servers {
		x.shutdown()
	}
	ok, why = s.owned()
	s.want("no leader", ok, why)
	for _, x := range s.servers {
		x.start()
	}
	s.waitFor(15*time.Second, "all is owned again", s.owned)
}

func (s *sim) checkServersAreSought() {
	again := func() { s.waitFor(40*time.Second, "three servers are voters again", s.formed) }
	again()
	x := s.another(s.leader(), 0)
	start := s.loseDisk(x)
	if start == nil {
		s.t.Fatal("a whole cluster may not lose a disk")
	}
	ok, why := s.formed()
	s.want("does not run", ok, why)
	if s.loseDisk(s.another(x, 0)) != nil {
		s.t.Error("two of three disks were lost at once")
	}
	start()
	s.helpers.Wait()
	s.wantErr("has no vote", s.within(5*time.Second, "three servers are voters", s.formed))
	if s.loseDisk(s.another(x, 0)) != nil {
		s.t.Error("a second disk was lost before the first server had its vote again")
	}
	again()

	x.shutdown()
	x.move(true)
	cut := s.cut(s.others(x)...)
	x.start()
	s.wantErr("is taken to be at", s.within(5*time.Second, "three servers are where they should be", s.formed))
	cut()
	again()
}

// A disk that hangs must be noticed by the server that has it.
func (s *sim) checkDisksHang() {
	was := s.leader()
	was.disk.hang(12 * time.Second)
	s.waitFor(10*time.Second, "another leads", func() (bool, string) {
		l := s.leader()
		return l != nil && l != was, "the same server leads"
	})
	s.waitFor(15*time.Second, "all is owned again", s.owned)
}
