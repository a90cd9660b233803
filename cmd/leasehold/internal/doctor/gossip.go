package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// freshGossip is how long a server runs before others must have it in gossip.
const freshGossip = 15 * time.Second

// gossip finds ways that are blocked: a server that answers and that another
// does not see.
func (e *exam) gossip() {
	for _, target := range e.up() {
		if time.Duration(target.health().GetUptimeMs())*time.Millisecond < freshGossip && target.health() != nil {
			continue
		}
		var blind []string
		for _, viewer := range e.up() {
			if viewer == target || viewer.First.Health == nil || viewer.Second.Health == nil {
				continue
			}
			first, second := views(viewer.First.Health, target.ID), views(viewer.Second.Health, target.ID)
			if !seesUp(first) && !seesUp(second) {
				blind = append(blind, fmt.Sprintf("%s sees it %s", viewer.name(), cmpText(second, "not at all")))
			}
		}
		if len(blind) == 0 {
			continue
		}
		e.find(&pb.Finding{
			Severity: Warning, Code: "gossip_blocked", Subject: "server " + target.name(),
			What:     fmt.Sprintf("server %s answers, and others do not see it in gossip", target.name()),
			Evidence: strings.Join(blind, "; "),
			Why:      "fenced takeover then waits for the TTL, and new addresses do not get about",
			Next:     "open TCP and UDP of the gossip port between the servers, both ways: " + cmpText(e.gossipAddr(target.ID), "see raft peers -o wide"),
		})
	}
	e.gossipCounters()
}

func views(h *pb.ServerHealth, id string) string {
	for _, g := range h.GetGossip() {
		if g.GetRole() == "server" && g.GetId() == id {
			return g.GetStatus()
		}
	}
	return ""
}

func seesUp(status string) bool { return status == "alive" || status == "leaving" }

func (e *exam) gossipAddr(id string) string {
	for _, p := range e.peers() {
		if p.GetServerId() == id {
			return p.GetGossipAddr()
		}
	}
	return ""
}

// gossipCounters finds what has grown between the two looks.
func (e *exam) gossipCounters() {
	var udp, conflicts, strangers []string
	for _, s := range e.up() {
		a, b := s.First.Health, s.Second.Health
		if a == nil || b == nil || a.GetBoot() != b.GetBoot() {
			continue
		}
		grown := func(to *[]string, before, now uint64) {
			if now > before {
				*to = append(*to, fmt.Sprintf("%s: %d in %v, %d in all", s.name(), now-before, e.Apart.Round(time.Millisecond), now))
			}
		}
		grown(&udp, a.GetGossipUdpFailures(), b.GetGossipUdpFailures())
		grown(&conflicts, a.GetGossipConflicts(), b.GetGossipConflicts())
		grown(&strangers, a.GetGossipStrangers(), b.GetGossipStrangers())
	}
	if len(udp) > 0 {
		e.find(&pb.Finding{
			Severity: Warning, Code: "udp_blocked", Subject: "gossip",
			What: "members answer over TCP and not over UDP", Evidence: strings.Join(udp, "; "),
			Why:  "deaths are noticed later, and false alarms are more likely",
			Next: "open UDP of the gossip port, both ways; a tunnel with a small MTU drops large packets",
		})
	}
	if len(conflicts) > 0 {
		e.find(&pb.Finding{
			Severity: Warning, Code: "gossip_conflict", Subject: "gossip",
			What: "two live members have the same id", Evidence: strings.Join(conflicts, "; "),
			Why:  "what gossip says of the one counts for the other",
			Next: "find the second: the servers' logs name both addresses",
		})
	}
	if len(strangers) > 0 {
		e.find(&pb.Finding{
			Severity: Notice, Code: "gossip_strangers", Subject: "gossip",
			What: "members of another cluster knock here", Evidence: strings.Join(strangers, "; "),
			Why:  "they are refused; somebody's --join names the wrong servers",
			Next: "the servers' logs name their addresses",
		})
	}
}

// workersGossip finds workers of fenced keyspaces that gossip does not see.
func (e *exam) workersGossip(k *pb.Keyspace) {
	if k.GetTakeover() != pb.Takeover_TAKEOVER_FENCED {
		return
	}
	var off, lost []string
	for _, w := range e.Workers {
		if w.GetState() != "live" || !slices.Contains(w.GetKeyspaces(), k.GetName()) {
			continue
		}
		switch {
		case w.GetGossip() == "off":
			off = append(off, w.GetId())
		case w.GetAttached() && !seesUp(w.GetGossip()):
			lost = append(lost, w.GetId())
		}
	}
	f := func(severity, what string, names []string, next string) {
		if len(names) == 0 {
			return
		}
		e.find(&pb.Finding{
			Severity: severity, Code: "worker_without_gossip", Subject: "keyspace " + k.GetName(),
			What: what, Evidence: plural(len(names), "worker") + ": " + some(names),
			Why:  fmt.Sprintf("the keyspace is fenced, but takeover from them waits for the TTL, %v", ms(k.GetTtlMs())),
			Next: next,
		})
	}
	f(Warning, "gossip does not see workers that keep their sessions", lost, "open TCP and UDP of the gossip port between workers and servers")
	f(Notice, "workers have gossip switched off", off, "leave Config.Gossip at auto")
}
