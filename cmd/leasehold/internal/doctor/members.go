package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// servers finds those of the configuration that give no answer, and tells the
// dead ones from those that only we cannot reach.
func (e *exam) servers() {
	for _, p := range e.peers() {
		s := e.byID(p.GetServerId())
		if s != nil && s.Up() {
			continue
		}
		evidence := []string{"gossip says " + cmpText(p.GetGossip(), "nothing")}
		if since := e.gossipSince(p.GetServerId()); since > 0 {
			evidence[0] += fmt.Sprintf(" for %v", since)
		}
		if ago, ok := contact(p); ok && e.leader() != nil {
			evidence = append(evidence, fmt.Sprintf("the leader heard it %v ago", ago))
		}
		if s != nil && s.Second.Err != nil {
			evidence = append(evidence, s.Addr+": "+errText(s.Second.Err))
		}
		f := &pb.Finding{
			Severity: Warning, Code: "server_unreachable", Subject: "server " + p.GetServerId(),
			What:     fmt.Sprintf("server %s gives no answer here", p.GetServerId()),
			Evidence: strings.Join(evidence, "; "),
			Why:      "workers and clients beside this machine may not reach it either",
			Next:     "check the way to " + cmpText(p.GetGrpcAddr(), "its gRPC address") + " from here",
		}
		if !e.heardByLeader(p) && p.GetGossip() != "alive" {
			f.Code = "server_dead"
			f.What = fmt.Sprintf("server %s is in the configuration and does not answer anybody", p.GetServerId())
			f.Why = "it counts for the quorum and does not vote"
			if !p.GetVoter() {
				f.Why = "it has no vote yet, and is sent everything for as long as it is there"
			}
			f.Next = fmt.Sprintf("start it again; if it is gone for good: leasehold raft remove %s, then add another: leasehold raft add ID", p.GetServerId())
		} else if !e.heardByLeader(p) && e.leader() != nil {
			f.Code = "server_silent"
			f.What = fmt.Sprintf("server %s answers neither here nor the leader", p.GetServerId())
			f.Why = "a stopped process or a cut network: it does not vote, and it counts for the quorum"
			if !p.GetVoter() {
				f.Why = "a stopped process or a cut network: it does not catch up, and gets no vote"
			}
			f.Next = fmt.Sprintf("look whether the process runs on its machine; if it is gone for good: leasehold raft remove %s", p.GetServerId())
		}
		e.find(f)
	}
	for _, s := range e.Servers {
		if !s.Up() && (s.ID == "" || !slices.ContainsFunc(e.peers(), func(p *pb.Peer) bool { return p.GetServerId() == s.ID })) {
			e.find(&pb.Finding{
				Severity: Warning, Code: "server_unreachable", Subject: "server " + s.name(),
				What: "no answer from " + s.Addr, Evidence: errText(s.Second.Err),
				Why:  "it was named with --server, and no server of the cluster that answers has this address",
				Next: "leasehold raft peers",
			})
		}
	}
	for _, s := range e.up() {
		// Without a leader none is ready. With one, it may be that this server was
		// removed, or has the data of another cluster: its reason says so.
		led := s.Second.Status.GetLeaderId() != "" || e.leader() != nil
		if st := s.Second.Status; !st.GetReady() && led && !s.First.Status.GetReady() && s.First.Status != nil {
			e.find(&pb.Finding{
				Severity: Warning, Code: "server_not_ready", Subject: "server " + s.name(),
				What: "the server is not ready", Evidence: st.GetNotReadyReason(),
				Why:  "it sends clients away, and its view of the cluster may be old",
				Next: "leasehold raft peers -o wide",
			})
		}
	}
}

// gossipSince is for how long others have a server in its present status.
func (e *exam) gossipSince(id string) time.Duration {
	if w := e.witness(); w != nil {
		for _, g := range w.health().GetGossip() {
			if g.GetRole() == "server" && g.GetId() == id {
				return ms(g.GetSinceMs())
			}
		}
	}
	return 0
}

// quorumAtRisk finds a cluster that the next failure would stop.
func (e *exam) quorumAtRisk() {
	need, voters, alive := e.quorum()
	if voters == 0 {
		return
	}
	evidence := fmt.Sprintf("%d of %d voters are up, %d are needed", alive, voters, need)
	switch {
	case alive < need:
		e.find(&pb.Finding{
			Severity: Critical, Code: "quorum_lost", Subject: "cluster",
			What: "there is no quorum", Evidence: evidence,
			Why:  "nothing can be granted or renewed: owners stop at their deadlines",
			Next: "start the servers that are down; if they are gone for good: deploy/OPERATIONS.md, recover",
		})
	case voters == 1:
		e.find(&pb.Finding{
			Severity: Notice, Code: "single_server", Subject: "cluster",
			What: "the cluster has a single server", Evidence: evidence,
			Why:  "while it is down nothing is granted, and with its disk everything is lost",
			Next: "start two more with --join and: leasehold raft add ID",
		})
	case alive == need:
		e.find(&pb.Finding{
			Severity: Warning, Code: "quorum_at_risk", Subject: "cluster",
			What: "the next server that fails stops the cluster", Evidence: evidence,
			Why:  "no server more may fail or be restarted",
			Next: "bring the missing servers back, or add one: leasehold raft add ID",
		})
	case voters%2 == 0:
		e.find(&pb.Finding{
			Severity: Notice, Code: "even_voters", Subject: "cluster",
			What: "the number of voters is even", Evidence: evidence,
			Why:  "one voter less survives as many failures",
			Next: "leasehold raft add ID",
		})
	}
}

// nonVoters finds one that does not get nearer to the leader's log.
func (e *exam) nonVoters() {
	l := e.leader()
	if l == nil {
		return
	}
	before := map[string]uint64{}
	for _, p := range l.First.Peers.GetItems() {
		before[p.GetServerId()] = p.GetLastIndex()
	}
	end := l.Second.Status.GetCommitIndex()
	for _, p := range e.peers() {
		if p.GetVoter() || p.GetStoreId() == "" {
			continue // a leader that is too old to say how far it is
		}
		behind := end - min(p.GetLastIndex(), end)
		if behind == 0 || p.GetLastIndex() > before[p.GetServerId()] {
			continue
		}
		e.find(&pb.Finding{
			Severity: Warning, Code: "not_catching_up", Subject: "server " + p.GetServerId(),
			What:     fmt.Sprintf("non-voter %s does not catch up", p.GetServerId()),
			Evidence: fmt.Sprintf("%d entries behind, none more in %v; %s", behind, e.Apart.Round(time.Millisecond), cmpText(p.GetNote(), "no note")),
			Why:      "it is promoted to a voter only when it has what the leader has",
			Next:     "look at its log; leasehold raft peers -o wide",
		})
	}
}

// versions finds servers that are too old, mixed versions, and a feature level
// that has stayed behind.
func (e *exam) versions() {
	by := map[string][]string{}
	level, least := uint32(0), uint32(0)
	for _, s := range e.up() {
		st := s.Second.Status
		by[st.GetVersion()] = append(by[st.GetVersion()], s.name())
		level = max(level, st.GetFeatureLevel())
		if n := maxFeature(s); n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	for _, s := range e.up() {
		if n := maxFeature(s); n > 0 && n < level {
			e.find(&pb.Finding{
				Severity: Critical, Code: "server_too_old", Subject: "server " + s.name(),
				What:     fmt.Sprintf("server %s is too old for the cluster's feature level", s.name()),
				Evidence: fmt.Sprintf("version %s knows level %d, the cluster is at %d", s.Second.Status.GetVersion(), n, level),
				Why:      "it stops at the first entry that it does not know",
				Next:     "upgrade it: deploy/OPERATIONS.md, upgrade",
			})
		}
	}
	if len(by) > 1 {
		var parts []string
		for v, names := range by {
			parts = append(parts, cmpText(v, "unknown")+" on "+strings.Join(names, ", "))
		}
		slices.Sort(parts)
		e.find(&pb.Finding{
			Severity: Warning, Code: "version_mix", Subject: "cluster",
			What: "the servers run different versions", Evidence: strings.Join(parts, "; "),
			Why:  "fine during an upgrade, not for long: what the new version brings is off until all have it",
			Next: "upgrade the rest, followers first: deploy/OPERATIONS.md, upgrade",
		})
	}
	if everybody := len(e.up()) == len(e.peers()); everybody && level > 0 && least > level {
		e.find(&pb.Finding{
			Severity: Notice, Code: "feature_level", Subject: "cluster",
			What: "the feature level can be raised", Evidence: fmt.Sprintf("all servers know level %d, the cluster is at %d", least, level),
			Why:  "the leader does it by itself once it has seen all servers for a while; after that no older version can join",
			Next: "leasehold status",
		})
	}
}

func maxFeature(s *Server) uint32 {
	return max(s.Second.Status.GetMaxFeatureLevel(), s.health().GetMaxFeatureLevel())
}

// restored tells that the cluster has been restored and waits.
func (e *exam) restored() {
	hold := int64(0)
	for _, s := range e.up() {
		hold = max(hold, s.Second.Status.GetStrictHoldMs())
	}
	if hold > 0 {
		e.find(&pb.Finding{
			Severity: Notice, Code: "strict_hold", Subject: "cluster",
			What: "the cluster was restored from a backup and grants nothing in strict keyspaces yet", Evidence: fmt.Sprintf("for %v more", ms(hold)),
			Why:  "owners of the old cluster may be at work until their deadlines",
			Next: "leasehold status",
		})
	}
}

func cmpText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
