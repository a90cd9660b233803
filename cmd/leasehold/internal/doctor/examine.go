package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Severities of a finding.
const (
	Critical = "critical" // something does not work, or may be wrong
	Warning  = "warning"  // something will stop working, or works worse
	Notice   = "notice"   // good to know
)

var ranks = map[string]int{Critical: 0, Warning: 1, Notice: 2}

// exam collects findings.
type exam struct {
	*Facts
	found []*pb.Finding
}

func (e *exam) find(f *pb.Finding) { e.found = append(e.found, f) }

// Examine makes findings of facts, the worst first.
func Examine(f *Facts) []*pb.Finding {
	e := &exam{Facts: f}
	if !f.Answered() {
		e.nobody()
		return e.found
	}
	e.identity()
	e.leadership()
	e.servers()
	e.quorumAtRisk()
	e.nonVoters()
	e.versions()
	e.restored()
	e.clocks()
	for _, s := range f.up() {
		e.disk(s)
		e.fsync(s)
		e.log(s)
		e.process(s)
		e.certificates(s)
	}
	e.plaintext()
	e.unseen()
	e.backup()
	e.keys()
	e.gossip()
	e.keyspaces()
	e.workers()
	e.partitions()
	slices.SortStableFunc(e.found, func(a, b *pb.Finding) int {
		return cmp.Compare(ranks[a.GetSeverity()], ranks[b.GetSeverity()])
	})
	return e.found
}

// Worst is the severity of the worst finding; empty: there is none.
func Worst(all []*pb.Finding) string {
	worst := ""
	for _, f := range all {
		if worst == "" || ranks[f.GetSeverity()] < ranks[worst] {
			worst = f.GetSeverity()
		}
	}
	return worst
}

// nobody is said when no server answers at all.
func (e *exam) nobody() {
	for _, s := range e.Servers {
		if refused(s.Second.Err) {
			e.find(&pb.Finding{
				Severity: Critical, Code: "not_allowed", Subject: "server " + s.name(),
				What: "the server does not let this command in", Evidence: errText(s.Second.Err),
				Why:  "it answers, but nothing can be said about the cluster",
				Next: "call it as a reader or operator: --tls-cert-file and --tls-key-file, or --credential-file",
			})
			continue
		}
		e.find(&pb.Finding{
			Severity: Critical, Code: "server_unreachable", Subject: "server " + s.name(),
			What: "no answer from " + s.Addr, Evidence: errText(s.Second.Err),
			Why:  "without an answer nothing can be said about the cluster",
			Next: "is it running? look at its log; or name another server with --server host:7400",
		})
	}
}

// identity finds servers of different clusters, and two under one id.
func (e *exam) identity() {
	clusters := map[string][]string{}
	for _, s := range e.up() {
		if id := cmp.Or(s.Second.Status.GetClusterId(), s.health().GetClusterId()); id != "" {
			clusters[id] = append(clusters[id], s.name())
		}
	}
	for i, s := range e.up() {
		if i > 0 && s.ID == e.up()[i-1].ID {
			e.find(&pb.Finding{
				Severity: Critical, Code: "same_id", Subject: "server " + s.ID,
				What: "two live servers call themselves " + s.ID, Evidence: e.up()[i-1].Addr + " and " + s.Addr,
				Why:  "each takes the other's place in gossip and in lists",
				Next: "stop the one that is not in: leasehold raft peers; give it an --id and a data directory of its own",
			})
		}
	}
	if len(clusters) > 1 {
		var parts []string
		for id, names := range clusters {
			parts = append(parts, id+": "+strings.Join(names, ", "))
		}
		slices.Sort(parts)
		e.find(&pb.Finding{
			Severity: Critical, Code: "two_clusters", Subject: "cluster",
			What: fmt.Sprintf("the servers that were asked belong to %d clusters", len(clusters)), Evidence: strings.Join(parts, "; "),
			Why:  "each grants on its own: workers of the two do not exclude one another",
			Next: "name the servers of one cluster with --server; a server with another's data directory needs an empty one",
		})
	}
}

// leadership finds that nobody leads, or that it changes all the time.
func (e *exam) leadership() {
	var states []string
	formed, leads := false, 0
	for _, s := range e.up() {
		st := s.Second.Status
		formed = formed || st.GetHasState() || st.GetClusterId() != ""
		if st.GetLeaderId() != "" {
			leads++
		}
		states = append(states, fmt.Sprintf("%s: %s in term %d", s.name(), st.GetRaftState(), st.GetTerm()))
	}
	switch {
	case !formed:
		first := e.up()[0].Second.Status
		e.find(&pb.Finding{
			Severity: Critical, Code: "not_formed", Subject: "cluster",
			What: "no cluster has been formed yet", Evidence: first.GetNotReadyReason(),
			Why:  "nothing can be granted before the servers have agreed to form one",
			Next: "start all servers with the same --bootstrap-expect and --join, or: leasehold cluster init --expect 3",
		})
	case leads == 0:
		need, voters, alive := e.quorum()
		f := &pb.Finding{
			Severity: Critical, Code: "no_leader", Subject: "cluster",
			What: "there is no leader", Evidence: strings.Join(states, "; "),
			Why:  "nothing is granted, and owners stop at their deadlines",
			Next: "leasehold status --wait",
		}
		if voters > 0 && alive < need {
			f.Next = fmt.Sprintf("start servers until %d of %d voters are up; if they are gone for good: deploy/OPERATIONS.md, recover", need, voters)
		}
		e.find(f)
	case e.leader() == nil:
		var named []string
		for _, s := range e.up() {
			if id := s.Second.Status.GetLeaderId(); id != "" && !slices.Contains(named, id) {
				named = append(named, id)
			}
		}
		e.find(&pb.Finding{
			Severity: Warning, Code: "leader_silent", Subject: "server " + strings.Join(named, ", "),
			What: "the leader gives no answer here", Evidence: strings.Join(states, "; "),
			Why:  "what only the leader knows (workers, reasons) is missing below; workers may have the same trouble",
			Next: "leasehold raft peers -o wide",
		})
	}
	e.leaderChanges()
}

func (e *exam) leaderChanges() {
	for _, s := range e.up() {
		if s.First.Health == nil || s.Second.Health == nil {
			continue
		}
		if s.First.Health.GetBoot() != s.Second.Health.GetBoot() {
			e.find(&pb.Finding{
				Severity: Warning, Code: "server_restarted", Subject: "server " + s.name(),
				What: "it was started anew between the two looks", Evidence: fmt.Sprintf("runs for %v", ms(s.Second.Health.GetUptimeMs())),
				Why:  "a server that is started over and over does no work",
				Next: "look at its log",
			})
			continue
		}
		if n := s.Second.Health.GetLeaderChanges() - s.First.Health.GetLeaderChanges(); n > 0 && n < 1<<32 {
			e.find(&pb.Finding{
				Severity: Warning, Code: "leader_changes", Subject: "server " + s.name(),
				What:     "the leader changed between the two looks",
				Evidence: fmt.Sprintf("%d changes in %v, %d since it runs", n, e.Apart.Round(time.Millisecond), s.Second.Health.GetLeaderChanges()),
				Why:      "each change costs an election, in which nothing is granted",
				Next:     "leasehold doctor --duration 30s",
			})
			return // the others saw the same
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, mark := range []string{"desc = ", "transport: "} { // gRPC's wrapping
		if i := strings.LastIndex(text, mark); i >= 0 {
			text = text[i+len(mark):]
		}
	}
	return strings.Trim(text, `"`)
}

// ms is a time for people.
func ms(n int64) time.Duration {
	d := time.Duration(n) * time.Millisecond
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d
}

// bytes is a size for people.
func size(n uint64) string {
	const unit = 1024
	switch {
	case n >= unit*unit*unit:
		return fmt.Sprintf("%.1f GiB", float64(n)/(unit*unit*unit))
	case n >= unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/(unit*unit))
	}
	return fmt.Sprintf("%d KiB", n/unit)
}

// some lists names, the first few of many.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
