package server

import (
	"fmt"
	"os"
	"slices"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/raftstore"
)

// Troubles after which a server is not what or where it was, and what the
// cluster has to make of them.

// What the cluster cannot bear at the moment is not done, and not counted.
const (
	simLoseDisk = "a server loses its disk"
	simAllMove  = "all servers come back elsewhere"
)

// spare takes a fault back that was planned and would be too much.
func (s *sim) spare(name, why string) (undo func()) {
	s.history.add(note{kind: noteFault, what: "not done: " + why})
	if s.faults[name]--; s.faults[name] == 0 {
		delete(s.faults, name)
	}
	return nil
}

// joins is what a server is started with.
func (s *sim) joins() []string {
	s.joinMu.Lock()
	defer s.joinMu.Unlock()
	return s.join
}

// writeDownAddrs is an operator who updates everybody's configuration but the
// workers', and starts to use the new addresses.
func (s *sim) writeDownAddrs() {
	var join []string
	for _, x := range s.servers {
		join = append(join, x.gossipAddr())
	}
	s.joinMu.Lock()
	s.join = join
	s.joinMu.Unlock()
	s.newTool()
}

// newTool gives the operator a client that knows where the servers are.
func (s *sim) newTool() {
	c, err := client.New(client.Config{Servers: s.addrs(), Dialer: s.net.host("10.9.0.1").dial})
	if err != nil {
		s.fatalf("make the operator's client: %v", err)
	}
	if old := s.tool.Swap(c); old != nil {
		_ = old.Close() // connections only
	}
}

func (s *sim) operator() *client.Client { return s.tool.Load() }

// loseDisk ends a server and empties its data directory, if the cluster can
// bear that by design: two others must have all that was promised.
func (s *sim) loseDisk(x *simServer) (undo func()) {
	if ok, why := s.whole(); !ok {
		return s.spare(simLoseDisk, why)
	}
	if x == s.leader() {
		s.history.add(note{kind: noteKilled, what: x.id})
	}
	if err := x.wipe(); err != nil {
		s.t.Errorf("empty the disk of server %s: %v", x.id, err)
	}
	return func() { s.helpers.Go(x.start) }
}

// wipe kills the process and empties its disk before anybody can start it again.
func (s *simServer) wipe() error {
	s.take()
	defer s.release()
	if s.srv.Swap(nil) != nil {
		s.host.kill()
		s.stop()
	}
	<-s.done
	return os.RemoveAll(s.dir())
}

// whole reports whether each server runs, and knows a configuration of just the
// servers that run, all with a vote. One that only the leader's view showed
// might be replaced by an older one, in which somebody is lost already.
func (s *sim) whole() (ok bool, why string) {
	for _, x := range s.servers {
		srv := x.running()
		if srv == nil {
			return false, x.id + " does not run"
		}
		if ok, why := s.votersIn(srv.store.Status().Peers); !ok {
			return false, x.id + ": " + why
		}
	}
	return true, ""
}

// formed is whole, and everybody's address is written down.
func (s *sim) formed() (ok bool, why string) {
	if ok, why := s.whole(); !ok {
		return false, why
	}
	l := s.leader()
	if l == nil || l.running() == nil {
		return false, "no leader"
	}
	for _, p := range l.running().store.Status().Peers {
		i := slices.IndexFunc(s.servers, func(x *simServer) bool { return x.id == p.ID })
		if want := s.servers[i].raftAddr(); p.RaftAddr != want {
			return false, fmt.Sprintf("%s is taken to be at %s, and is at %s", p.ID, p.RaftAddr, want)
		}
	}
	return true, ""
}

func (s *sim) votersIn(peers []raftstore.PeerStatus) (ok bool, why string) {
	for _, x := range s.servers {
		srv := x.running()
		if srv == nil {
			return false, x.id + " does not run"
		}
		self := srv.store.Self()
		if !slices.ContainsFunc(peers, func(p raftstore.PeerStatus) bool { return p.ID == self.ID && p.Store == self.Store && p.Voter }) {
			return false, fmt.Sprintf("%s with store %s has no vote in %v", x.id, self.Store, peers)
		}
	}
	if len(peers) != len(s.servers) {
		return false, fmt.Sprintf("%d servers in the configuration: %v", len(peers), peers)
	}
	return true, ""
}

// elsewhere ends servers that will come back on other machines with their disks.
// Of one of them nobody is told; when all have moved, the operator writes down
// where to. At the old addresses somebody else says no, or nobody says anything.
func (s *sim) elsewhere(silent bool, moving ...*simServer) (undo func()) {
	for _, x := range moving {
		s.killServer(x)
	}
	return func() {
		for _, x := range moving {
			x.move(silent)
		}
		if len(moving) == len(s.servers) {
			s.writeDownAddrs()
		}
		for _, x := range moving {
			s.helpers.Go(x.start)
		}
	}
}

// move takes the server, which may have been started meanwhile, elsewhere.
func (s *simServer) move(silent bool) {
	s.take()
	defer s.release()
	if s.srv.Swap(nil) != nil {
		s.stop()
	}
	s.host.kill()
	if silent {
		s.sim.net.forget(s.ip())
	}
	s.moves.Add(1)
}
