package gossip

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func ofCluster(id string) func(*Config) { return func(c *Config) { c.Meta.ClusterID = id } }

func seeds(of ...*testMember) func(*Config) {
	return func(c *Config) {
		c.Seeds = nil
		for _, m := range of {
			c.Seeds = append(c.Seeds, m.LocalAddr())
		}
	}
}

// startCluster starts three servers s1 to s3, which all clusters here have, and
// two workers.
func (h *harness) startCluster(id string) []*testMember {
	h.t.Helper()
	first := h.start(RoleServer, "s1", ofCluster(id), seeds())
	members := []*testMember{first}
	for i := range 2 {
		members = append(members, h.start(RoleServer, fmt.Sprintf("s%d", i+2), ofCluster(id), seeds(first)))
	}
	for i := range 2 {
		members = append(members, h.start(RoleWorker, fmt.Sprintf("w%d-of-%s", i+1, id), ofCluster(id), seeds(first)))
	}
	h.waitAllAlive(20*time.Second, members...)
	return members
}

// only tells whether the members see each other alive and nobody else.
func only(members []*testMember) bool {
	for _, m := range members {
		if len(m.Members()) != len(members) {
			return false
		}
	}
	return allAlive(members)
}

// O-30: label, key and server names are the same, only the cluster ids differ,
// and a server of B is started again with an address of A among its seeds.
func TestWrongSeedDoesNotMergeTwoClusters(t *testing.T) {
	inBubble(t, func(h *harness) {
		a, b := h.startCluster("aaaa"), h.startCluster("bbbb")
		b[1].crash()
		b[1] = h.start(RoleServer, "s2", ofCluster("bbbb"), seeds(b[0], a[0], a[3]))
		h.waitFor(20*time.Second, "B is whole again", func() bool { return only(b) })
		changed := 0
		for range 3 * 60 {
			<-time.After(time.Second)
			if !only(a) || !only(b) {
				changed++
			}
		}
		if changed > 0 {
			t.Errorf("for %d of 180 s somebody was missing or too many", changed)
		}
		for _, end := range []*testMember{b[1], a[0]} {
			log := end.log.String()
			if !strings.Contains(log, "its_cluster=") || !strings.Contains(log, "aaaa") || !strings.Contains(log, "bbbb") {
				t.Errorf("%s of %s does not name both clusters:\n%s", end.cfg.Name, end.cfg.Meta.ClusterID, log)
			}
			if end.Stats().Strangers == 0 || end.counts.rejectedFor(rejectedStranger) == 0 {
				t.Errorf("%s of %s counts no stranger", end.cfg.Name, end.cfg.Meta.ClusterID)
			}
			if n := strings.Count(log, "\n"); n > 40 {
				t.Errorf("%s of %s wrote %d lines in three minutes:\n%s", end.cfg.Name, end.cfg.Meta.ClusterID, n, log)
			}
		}
		for _, m := range a {
			if n := m.Stats().Conflicts; n > 0 {
				t.Errorf("%s of A saw %d conflicts with servers of B", m.cfg.Name, n)
			}
		}
	})
}

// O-30: what others tell of strangers is refused as well. A server without a
// cluster yet, seeded with both, hears of all; the clusters do not hear of each
// other through it.
func TestNewcomerBetweenTwoClustersIsNoBridge(t *testing.T) {
	inBubble(t, func(h *harness) {
		a, b := h.startCluster("aaaa"), h.startCluster("bbbb")
		newcomer := h.start(RoleServer, "s4", seeds(a[0], b[0]))
		h.waitFor(20*time.Second, "both see the newcomer", func() bool { return a[2].sees(newcomer, Alive) && b[2].sees(newcomer, Alive) })
		for range 60 {
			<-time.After(time.Second)
			for _, side := range [][]*testMember{a, b} {
				if !countsAre(side, len(side)+1) || !allAlive(side) {
					t.Fatalf("%s sees %s", side[0].cfg.Name, describe(side[0]))
				}
			}
		}
		// It becomes a member of B: A is dropped, and lets it go.
		if err := newcomer.UpdateMeta(func(m *Meta) { m.ClusterID = "bbbb" }); err != nil {
			t.Fatal(err)
		}
		took := h.waitFor(20*time.Second, "A and B are apart, the newcomer in B", func() bool {
			return only(append(slices.Clone(b), newcomer)) && !newcomer.upIn(a)
		})
		t.Logf("apart after %v", took)
		<-time.After(time.Minute)
		if !only(append(slices.Clone(b), newcomer)) || newcomer.upIn(a) {
			t.Fatalf("a minute later: newcomer sees %s; s1 of A sees %s", describe(newcomer), describe(a[0]))
		}
		if n := newcomer.ml.Load().NumMembers(); n != len(b)+1 {
			t.Errorf("memberlist of the newcomer has %d members, want %d", n, len(b)+1)
		}
	})
}

func countsAre(members []*testMember, n int) bool {
	return !slices.ContainsFunc(members, func(m *testMember) bool { return len(m.Members()) != n })
}

// upIn tells whether any of them believes that m is there.
func (m *testMember) upIn(others []*testMember) bool {
	return slices.ContainsFunc(others, func(o *testMember) bool { x, _ := o.Member(m.cfg.Name); return x.Up() })
}

// Workers of a cluster that was restored from a backup still speak of the old
// one. They are refused until their session has told them, and then found.
func TestWorkerFollowsItsClusterToANewID(t *testing.T) {
	inBubble(t, func(h *harness) {
		old := h.startCluster("old")
		servers, workers := old[:3], old[3:]
		var restored []*testMember
		for _, s := range servers {
			s.crash()
		}
		for i := range servers {
			h.next = i + 1 // at the old addresses
			restored = append(restored, h.start(RoleServer, fmt.Sprintf("s%d", i+1), ofCluster("new"), seeds(servers...), bootAt(1000)))
		}
		<-time.After(30 * time.Second)
		for _, w := range workers {
			if w.upIn(restored) {
				t.Fatal("a worker of the old cluster is a member of the new one")
			}
			if err := w.UpdateMeta(func(m *Meta) { m.ClusterID, m.Session = "new", 9 }); err != nil {
				t.Fatal(err)
			}
		}
		took := h.waitAllAlive(10*time.Second, append(restored, workers...)...)
		t.Logf("together after %v", took)
	})
}

func bootAt(boot uint64) func(*Config) { return func(c *Config) { c.Meta.Boot = boot } }

// A server that forms a cluster among others that do not know theirs either is
// not to start over: nobody is a stranger.
func TestLearningTheClusterDisturbsNobody(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(3)
		w := h.start(RoleWorker, "w1", ofCluster("aaaa"))
		all := append(slices.Clone(servers), w)
		h.waitAllAlive(20*time.Second, all...)
		for _, s := range servers {
			if err := s.UpdateMeta(func(m *Meta) { m.ClusterID = "aaaa" }); err != nil {
				t.Fatal(err)
			}
			for range 50 {
				<-time.After(20 * time.Millisecond)
				if !only(all) {
					t.Fatalf("%s learned its cluster: %s", s.cfg.Name, describe(s))
				}
			}
		}
		for _, s := range servers {
			if log := s.log.String(); strings.Contains(log, "starts over") {
				t.Errorf("%s started over:\n%s", s.cfg.Name, log)
			}
			if m, _ := w.Member(s.cfg.Name); m.Meta.ClusterID != "aaaa" {
				t.Errorf("%s is told to be of cluster %q", s.cfg.Name, m.Meta.ClusterID)
			}
		}
	})
}
