package gossip

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A hint that comes late is worth little: a second is what a fenced takeover
// has altogether.
func TestDeathIsSeenByAllWithinASecond(t *testing.T) {
	for _, n := range []int{3, 5, 20} {
		t.Run(fmt.Sprintf("members=%d", n), func(t *testing.T) {
			inBubble(t, func(h *harness) {
				members := h.startServers(3)
				for i := range n - 3 {
					members = append(members, h.start(RoleWorker, fmt.Sprintf("w%d", i)))
				}
				h.waitAllAlive(20*time.Second, members...)
				<-time.After(5 * time.Second)
				victim, rest := members[n-1], members[:n-1]
				victim.crash()
				took := h.waitFor(time.Second, "all see the victim dead", func() bool {
					return !slices.ContainsFunc(rest, func(m *testMember) bool { return !m.sees(victim, Dead) })
				})
				t.Logf("%d members: dead for all after %v", n, took)
			})
		})
	}
}

// memberlist alone never heals this one.
func TestSplitOfAMinuteHeals(t *testing.T) {
	inBubble(t, func(h *harness) {
		members := h.startServers(3)
		for i := range 4 {
			members = append(members, h.start(RoleWorker, fmt.Sprintf("w%d", i)))
		}
		h.waitAllAlive(20*time.Second, members...)
		// s1, w0, w1 on one side.
		here := map[string]bool{}
		for _, i := range []int{0, 3, 4} {
			here[members[i].LocalAddr()] = true
		}
		h.net.split(func(addr string) bool { return here[addr] })
		h.waitFor(5*time.Second, "the sides give each other up", func() bool {
			return members[0].sees(members[1], Dead) && members[1].sees(members[0], Dead) &&
				members[1].sees(members[3], Dead) && members[0].sees(members[5], Dead)
		})
		<-time.After(time.Minute)
		bounces := func() int { return members[0].counts.get(func(c *counting) int { return c.bounces }) }
		before := bounces()
		h.net.heal()
		took := h.waitAllAlive(10*time.Second, members...)
		t.Logf("healed after %v", took)
		if n := bounces() - before; n != 4 {
			t.Errorf("%d of the 4 members of the other side were noticed to have lived", n)
		}
	})
}

// While memberlist still remembers the dead it does not believe that they live
// unless they say something new.
func TestShortSplitHeals(t *testing.T) {
	for _, length := range []time.Duration{3 * time.Second, 20 * time.Second} {
		t.Run(length.String(), func(t *testing.T) {
			inBubble(t, func(h *harness) {
				members := h.startServers(3)
				for i := range 4 {
					members = append(members, h.start(RoleWorker, fmt.Sprintf("w%d", i)))
				}
				h.waitAllAlive(20*time.Second, members...)
				here := map[string]bool{}
				for _, i := range []int{0, 3, 4} {
					here[members[i].LocalAddr()] = true
				}
				h.net.split(func(addr string) bool { return here[addr] })
				<-time.After(length)
				h.net.heal()
				took := h.waitAllAlive(10*time.Second, members...)
				t.Logf("healed after %v", took)
			})
		})
	}
}

// A worker that was alone on its side must come back by itself: no server looks
// for it.
func TestWorkerThatWasCutOffComesBack(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(3)
		w := h.start(RoleWorker, "w1")
		all := append(servers, w)
		h.waitAllAlive(20*time.Second, all...)
		h.net.split(func(addr string) bool { return addr == w.LocalAddr() })
		h.waitFor(5*time.Second, "the worker is dead for the servers", func() bool { return servers[2].sees(w, Dead) })
		<-time.After(ForgetAfter + time.Minute) // memberlist and table have forgotten each other
		if _, known := servers[0].Member("w/w1"); known {
			t.Fatal("the worker is still listed after six minutes")
		}
		h.net.heal()
		h.waitAllAlive(10*time.Second, all...)
	})
}

func TestLeaveIsToldFromDeath(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(3)
		leaver, victim := h.start(RoleWorker, "leaver"), h.start(RoleWorker, "victim")
		h.waitAllAlive(20*time.Second, append(slices.Clone(servers), leaver, victim)...)
		start := time.Now()
		if err := leaver.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := <-leaver.finished; err != nil {
			t.Fatalf("Run returned %v after a clean leave", err)
		}
		t.Logf("leaving took %v", time.Since(start))
		victim.crash()
		h.waitFor(2*time.Second, "left and dead are told apart", func() bool {
			for _, s := range servers {
				if !s.sees(leaver, Left) || !s.sees(victim, Dead) {
					return false
				}
			}
			return true
		})
	})
}

// Run's context ends: that is a leave too.
func TestEndOfContextLeaves(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(2)
		servers[1].cancel()
		if err := <-servers[1].finished; err != nil {
			t.Fatal(err)
		}
		h.waitFor(time.Second, "left", func() bool { return servers[0].sees(servers[1], Left) })
	})
}

// A pod that is started anew keeps its name and gets another address, and the
// others have not noticed yet that the old one is gone.
func TestRestartOnNewAddressIsBelieved(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(3)
		old := h.start(RoleWorker, "w1")
		others := []*testMember{h.start(RoleWorker, "w2"), h.start(RoleWorker, "w3")}
		h.waitAllAlive(20*time.Second, append(append(slices.Clone(servers), others...), old)...)
		old.crash()
		reborn := h.start(RoleWorker, "w1")
		boot := reborn.cfg.Meta.Boot
		took := h.waitFor(15*time.Second, "all believe the new address", func() bool {
			for _, m := range append(slices.Clone(servers), others...) {
				got, _ := m.Member("w/w1")
				if got.Status != Alive || got.Addr != reborn.LocalAddr() || got.Meta.Boot != boot {
					return false
				}
			}
			return true
		})
		t.Logf("new address believed by all after %v", took)
		got, _ := servers[0].Member("w/w1")
		if !got.Gone(old.cfg.Meta.Boot) || got.Gone(boot) {
			t.Fatalf("Gone(old)=%t Gone(new)=%t, want true and false", got.Gone(old.cfg.Meta.Boot), got.Gone(boot))
		}
	})
}

func TestRestartOnSameAddressShowsNewBoot(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(3)
		old := h.start(RoleWorker, "w1")
		h.waitAllAlive(20*time.Second, append(slices.Clone(servers), old)...)
		old.crash()
		h.next-- // the same address
		reborn := h.start(RoleWorker, "w1", func(c *Config) { c.Meta.Boot = 1000 })
		h.waitFor(5*time.Second, "all see the new boot alive", func() bool {
			for _, s := range servers {
				got, _ := s.Member("w/w1")
				if got.Status != Alive || got.Meta.Boot != 1000 {
					return false
				}
			}
			return true
		})
		_ = reborn
	})
}

// O-36: a ring elsewhere collected 3300 dead entries and started to time out.
// Here nobody has to press "forget".
func TestChurnLeavesNoEntriesBehind(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(3)
		seed := func(c *Config) { c.Seeds = []string{servers[0].LocalAddr()} }
		traffic := func() int {
			h.net.sent()
			<-time.After(time.Minute)
			return h.net.sent()
		}
		before := traffic()
		for batch := range 10 {
			var batchMembers []*testMember
			for i := range 20 {
				role := RoleWorker
				if batch == 9 {
					role = RoleServer
				}
				batchMembers = append(batchMembers, h.start(role, fmt.Sprintf("churn-%d-%d", batch, i), seed))
			}
			h.waitFor(10*time.Second, "a server sees the batch", func() bool {
				return !slices.ContainsFunc(batchMembers, func(m *testMember) bool { return !servers[0].sees(m, Alive) })
			})
			for _, m := range batchMembers {
				m.crash()
			}
		}
		// Three members that probe two hundred dead ones think that they are slow
		// themselves (Lifeguard) and take two minutes to be sure of all.
		<-time.After(ForgetAfter + 3*time.Minute)
		for _, s := range servers {
			if n := len(s.Members()); n != 3 {
				t.Errorf("%s lists %d members, want 3", s.cfg.Name, n)
			}
			if n := s.ml.Load().NumMembers(); n != 3 {
				t.Errorf("memberlist of %s has %d members, want 3", s.cfg.Name, n)
			}
			if alive, gone := s.counts.get(func(c *counting) int { return c.alive }), s.counts.get(func(c *counting) int { return c.gone }); alive != 3 || gone != 0 {
				t.Errorf("metrics of %s: %d alive and %d gone, want 3 and 0", s.cfg.Name, alive, gone)
			}
		}
		// The addresses of twenty dead servers are still tried.
		if after := traffic(); after > before*3/2 {
			t.Errorf("%d bytes a minute after the churn, %d before", after, before)
		}
		late := h.start(RoleWorker, "late", seed)
		h.waitFor(5*time.Second, "a newcomer is not held up by the dead", func() bool { return servers[2].sees(late, Alive) })
		for _, s := range servers {
			s.crash()
			<-s.finished // what belonged to its loops is ours now
			if n := len(s.seeker.targets); n > 2+20+maxWorkers {
				t.Errorf("%s remembers %d addresses", s.cfg.Name, n)
			}
			s.seeker.remember(time.Now().Add(rememberFor + time.Second))
			if n := len(s.seeker.targets); n > 1 { // the seed
				t.Errorf("%s still remembers %d addresses after an hour", s.cfg.Name, n)
			}
			if s.packets.due(time.Now(), func(string) bool { return false }); len(s.packets.paths) > 0 || len(s.table.doubts) > 0 {
				t.Errorf("%s is left with %d paths and %d doubts", s.cfg.Name, len(s.packets.paths), len(s.table.doubts))
			}
		}
	})
}

func TestUpdateMetaReachesAll(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(3)
		w := h.start(RoleWorker, "w1")
		h.waitAllAlive(20*time.Second, append(slices.Clone(servers), w)...)
		for i := range 50 {
			if err := w.UpdateMeta(func(m *Meta) { m.Session = uint64(i + 1) }); err != nil {
				t.Fatal(err)
			}
		}
		took := h.waitFor(3*time.Second, "the last of many changes arrives", func() bool {
			for _, s := range servers {
				if m, _ := s.Member("w/w1"); m.Meta.Session != 50 {
					return false
				}
			}
			return true
		})
		t.Logf("update seen after %v", took)
		err := w.UpdateMeta(func(m *Meta) { m.Version = strings.Repeat("v", 256) })
		if err == nil || !strings.Contains(err.Error(), "version has 256 bytes") {
			t.Fatalf("over-long version: %v", err)
		}
		if err := w.UpdateMeta(func(m *Meta) { m.ID = "other" }); err == nil {
			t.Fatal("the id could be changed")
		}
		if got, _ := w.Member("w/w1"); got.Meta.Version != "test" {
			t.Fatalf("a refused change was kept: %+v", got.Meta)
		}
	})
}

func TestChangedAndOnChangeFollowTheTable(t *testing.T) {
	inBubble(t, func(h *harness) {
		calls := make(chan int, 1000)
		a := h.start(RoleServer, "a", func(c *Config) { c.OnChange = func() { calls <- 1 } })
		<-time.After(time.Second)
		for len(calls) > 0 {
			<-calls
		}
		select {
		case <-a.Changed():
		default:
			t.Fatal("no signal for the member itself")
		}
		b := h.start(RoleServer, "b")
		h.waitFor(10*time.Second, "b is there", func() bool { return a.sees(b, Alive) })
		<-time.After(time.Millisecond)
		select {
		case <-a.Changed():
		default:
			t.Fatal("no signal for a join")
		}
		if len(calls) == 0 {
			t.Fatal("OnChange was not called for a join")
		}
	})
}

func TestMembersIsASortedCopy(t *testing.T) {
	inBubble(t, func(h *harness) {
		members := h.startServers(3)
		got := members[1].Members()
		names := make([]string, len(got))
		for i := range got {
			names[i] = got[i].Name
			got[i].Status = Dead
		}
		if !slices.Equal(names, []string{"s/s1", "s/s2", "s/s3"}) {
			t.Fatalf("members are %v", names)
		}
		if !allAlive(members) {
			t.Fatal("changing the copy changed the table")
		}
	})
}

func TestStopIsSafeAtAnyTime(t *testing.T) {
	inBubble(t, func(h *harness) {
		never, err := New(Config{Label: testLabel, Meta: Meta{Role: RoleServer, ID: "never"}, Transport: h.net.listen(200)})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := never.Shutdown(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if err := never.Run(context.Background()); err == nil {
			t.Fatal("Run after Shutdown returned nil")
		}
		a := h.start(RoleServer, "a")
		<-time.After(time.Second)
		if err := a.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := a.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := a.UpdateMeta(func(m *Meta) { m.Session = 7 }); err != nil {
			t.Fatal(err)
		}
		if !a.Probe(context.Background(), "s/b") {
			t.Fatal("a stopped member took silence for a proof")
		}
	})
}
