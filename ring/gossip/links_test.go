package gossip

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// startCrew starts servers and workers that all see each other.
func (h *harness) startCrew(servers, workers int) []*testMember {
	h.t.Helper()
	all := h.startServers(servers)
	for i := range workers {
		all = append(all, h.start(RoleWorker, fmt.Sprintf("w%d", i+1)))
	}
	h.waitAllAlive(20*time.Second, all...)
	return all
}

// deaths is how often memberlist declared a member dead, on whatever side.
func deaths(members []*testMember) (n int) {
	for _, m := range members {
		n += strings.Count(m.log.String(), "Marking ")
	}
	return n
}

// O-35: a firewall drops UDP between two of three servers, one way, then both
// ways, and leaves TCP. Nobody is dead, and both ends say what is the matter,
// once, with both names.
func TestBlockedPacketsKillNobodyAndAreReported(t *testing.T) {
	for name, bothWays := range map[string]bool{"one way": false, "both ways": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				all := h.startCrew(3, 0)
				a, b := all[0].LocalAddr(), all[1].LocalAddr()
				h.net.blockPackets(func(from, to string) bool {
					return from == a && to == b || bothWays && from == b && to == a
				})
				for range 120 {
					<-time.After(time.Second)
					if !only(all) {
						t.Fatalf("somebody is missing: %s / %s", describe(all[0]), describe(all[1]))
					}
				}
				if n := deaths(all); n > 0 {
					t.Errorf("%d deaths", n)
				}
				for i, m := range all[:2] {
					other := all[1-i]
					n := m.Stats().UDPFailures
					if n < 5 || n > 300 || int(n) != m.counts.get(func(c *counting) int { return c.udpFailed }) {
						t.Errorf("%s counts %d UDP failures in two minutes", m.cfg.Name, n)
					}
					line := fmt.Sprintf("from=%s to=%s", m.cfg.Name, other.cfg.Name)
					if log := m.log.String(); strings.Count(log, "UDP probe failed, TCP ok") != 1 || !strings.Contains(log, line) {
						t.Errorf("%s does not say once that %s:\n%s", m.cfg.Name, line, log)
					}
				}
				if n := all[2].Stats().UDPFailures; n != 0 {
					t.Errorf("the third counts %d UDP failures", n)
				}
				h.net.blockPackets(nil)
				<-time.After(packetRetry)
				healed := all[0].Stats().UDPFailures
				<-time.After(time.Minute)
				if n := all[0].Stats().UDPFailures; n != healed {
					t.Errorf("%d UDP failures after the firewall was opened", n-healed)
				}
			})
		})
	}
}

// O-35: no UDP at all, anywhere. memberlist sees this one by itself.
func TestNoPacketsAtAllKillNobody(t *testing.T) {
	inBubble(t, func(h *harness) {
		all := h.startCrew(3, 2)
		h.net.blockPackets(func(string, string) bool { return true })
		<-time.After(time.Minute)
		if !only(all) || deaths(all) > 0 {
			t.Fatalf("%d deaths; %s", deaths(all), describe(all[0]))
		}
		for _, m := range all {
			if n := m.Stats().UDPFailures; n < 5 {
				t.Errorf("%s counts %d UDP failures", m.cfg.Name, n)
			}
			if n := strings.Count(m.log.String(), "UDP probe failed, TCP ok"); n < 1 || n > len(all)-1 {
				t.Errorf("%s says it %d times", m.cfg.Name, n)
			}
		}
	})
}

// A member that dies answers neither, and is no matter of firewalls.
func TestDeathIsNoUDPFailure(t *testing.T) {
	inBubble(t, func(h *harness) {
		all := h.startCrew(3, 3)
		for _, m := range all[3:] {
			m.crash()
		}
		<-time.After(ForgetAfter)
		for _, m := range all[:3] {
			if n := m.Stats().UDPFailures; n != 0 {
				t.Errorf("%s counts %d UDP failures", m.cfg.Name, n)
			}
		}
	})
}

// O-39: every third packet is lost, and every third part of a stream has to be
// sent again, for five minutes.
func TestLossyLinksKillNobody(t *testing.T) {
	inBubble(t, func(h *harness) {
		all := h.startCrew(3, 4)
		h.net.lose(0.3)
		missing := 0
		for range 5 * 60 {
			<-time.After(time.Second)
			if !allAlive(all) {
				missing++
			}
		}
		t.Logf("memberlist alone would have declared %d deaths", deaths(all))
		for _, m := range all {
			if n := m.counts.get(func(c *counting) int { return c.worst }); n > 0 {
				t.Errorf("%s took %d for dead at once", m.cfg.Name, n)
			}
		}
		if missing > 0 {
			t.Errorf("somebody was missing in %d of 300 s", missing)
		}
	})
}

// O-39: a member is cut off until memberlist declares it dead, and answers a
// moment later. Nobody is told of a death that is none.
func TestDeclaredDeadButAnswers(t *testing.T) {
	inBubble(t, func(h *harness) {
		all := h.startCrew(3, 2)
		lost := all[3].LocalAddr()
		h.net.split(func(addr string) bool { return addr == lost })
		h.waitFor(5*time.Second, "somebody is declared dead", func() bool { return deaths(all) > 0 })
		h.net.heal()
		for range 100 {
			<-time.After(100 * time.Millisecond)
			if !allAlive(all) {
				t.Fatalf("somebody is missing: %s", describe(all[0]))
			}
		}
		for _, m := range all {
			if n := m.counts.get(func(c *counting) int { return c.worst }); n > 0 {
				t.Errorf("%s took %d for dead", m.cfg.Name, n)
			}
			if n := m.ml.Load().NumMembers(); n != len(all) {
				t.Errorf("memberlist of %s has %d members, want %d", m.cfg.Name, n, len(all))
			}
		}
	})
}

// O-39: the links of one server, then of one worker, take five seconds. It is
// dead for the others but for moments, when its protest comes through; they
// keep each other, and have it back soon after.
func TestSlowLinksConcernOneMember(t *testing.T) {
	for _, slow := range []int{1, 4} {
		t.Run(fmt.Sprint("member ", slow), func(t *testing.T) {
			inBubble(t, func(h *harness) {
				all := h.startCrew(3, 3)
				rest := slices.Delete(slices.Clone(all), slow, slow+1)
				h.net.slow(func(from, to string) time.Duration {
					if at := all[slow].LocalAddr(); from == at || to == at {
						return 5 * time.Second
					}
					return 0
				})
				<-time.After(5 * time.Second)
				missing, dead := 0, 0
				for range 60 {
					<-time.After(time.Second)
					if !allAlive(rest) {
						missing++
					}
					if rest[0].sees(all[slow], Dead) {
						dead++
					}
				}
				h.net.slow(nil)
				took := h.waitAllAlive(15*time.Second, all...)
				t.Logf("dead in %d of 60 s; whole again after %v", dead, took)
				if dead == 0 {
					t.Error("the slow one was never dead: the links are not slow")
				}
				if missing > 0 {
					t.Errorf("somebody other than the slow one was missing in %d of 60 s", missing)
				}
			})
		})
	}
}

// O-38: five servers are split 3/2 for twice as long as the dead are
// remembered, with their workers; meanwhile one of each side comes back at
// another address, and a worker is replaced. Then there is one cluster again.
func TestHalvesReuniteAfterALongSplit(t *testing.T) {
	for _, length := range []time.Duration{2 * deadNodeReclaimTime, 2 * ForgetAfter} {
		t.Run(length.String(), func(t *testing.T) {
			inBubble(t, func(h *harness) {
				id := ofCluster("aaaa")
				var all []*testMember
				for i := range 5 {
					all = append(all, h.start(RoleServer, fmt.Sprintf("s%d", i+1), id))
				}
				for i := range 4 {
					all = append(all, h.start(RoleWorker, fmt.Sprintf("w%d", i+1), id))
				}
				h.waitAllAlive(20*time.Second, all...)
				minority := map[string]bool{}
				for _, i := range []int{3, 4, 7, 8} {
					minority[all[i].LocalAddr()] = true
				}
				for i := range 2 { // the second and third that come anew
					minority[fmt.Sprintf("10.0.0.%d:%d", h.next+1+i, memnetPort)] = true
				}
				h.net.split(func(addr string) bool { return minority[addr] })
				<-time.After(length / 2)
				for _, i := range []int{1, 4, 7} { // s2, s5, w3
					all[i].crash()
					side := all[0]
					if i != 1 {
						side = all[3]
					}
					all[i] = h.start(all[i].cfg.Meta.Role, all[i].cfg.Meta.ID, id, seeds(side))
				}
				<-time.After(length / 2)
				h.net.heal()
				took := h.waitFor(15*time.Second, "one cluster", func() bool { return only(all) })
				<-time.After(time.Minute)
				if !only(all) {
					t.Fatalf("a minute later: %s", describe(all[0]))
				}
				for _, m := range all {
					if n := m.ml.Load().NumMembers(); n != len(all) {
						t.Errorf("memberlist of %s has %d members, want %d", m.cfg.Name, n, len(all))
					}
				}
				t.Logf("one cluster after %v", took)
			})
		})
	}
}
