package doctor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	// leastElections is how many election timeouts a TTL must have.
	leastElections = 6
	// leastPauses is how often the longest pause of a worker must fit in it.
	leastPauses = 3
	// guardAfter is for how long a worker may hold a partition before a guard
	// must have checked a token: it does so with the claim, before the handler.
	guardAfter = time.Minute
)

// keyspaces finds TTLs that are too short, and workers that gossip misses.
func (e *exam) keyspaces() {
	if e.ListsError != nil {
		e.find(&pb.Finding{
			Severity: Warning, Code: "not_looked", Subject: "cluster",
			What: "keyspaces, workers and partitions could not be looked at", Evidence: errText(e.ListsError),
			Why:  "what is wrong with them is not among the findings",
			Next: "leasehold doctor --timeout 1m",
		})
		return
	}
	for _, k := range e.Keyspaces {
		e.ttl(k)
		e.workersGossip(k)
	}
}

func (e *exam) ttl(k *pb.Keyspace) {
	ttl := time.Duration(k.GetTtlMs()) * time.Millisecond
	if floor := leastElections * e.election(); ttl < floor {
		e.find(&pb.Finding{
			Severity: Warning, Code: "ttl_below_elections", Subject: "keyspace " + k.GetName(),
			What:     "the TTL is below six election timeouts",
			Evidence: fmt.Sprintf("TTL %v, election timeout %v", ttl, e.election()),
			Why:      "an election may outlast the sessions and stop every owner",
			Next:     fmt.Sprintf("leasehold keyspace set %s --ttl %v, or lower --election-timeout", k.GetName(), floor),
		})
	}
	var worst *pb.Worker
	for _, w := range e.Workers {
		if slices.Contains(w.GetKeyspaces(), k.GetName()) && w.GetLongestPauseMs() > worst.GetLongestPauseMs() {
			worst = w
		}
	}
	pause := time.Duration(worst.GetLongestPauseMs()) * time.Millisecond
	if worst == nil || ttl >= leastPauses*pause {
		return
	}
	e.find(&pb.Finding{
		Severity: Warning, Code: "ttl_below_pauses", Subject: "keyspace " + k.GetName(),
		What:     "the TTL is below three times the longest pause of a worker",
		Evidence: fmt.Sprintf("worker %s stood still for %v in the last ten minutes, TTL %v", worst.GetId(), pause, ttl),
		Why:      "a pause that eats most of the TTL costs the worker its leases",
		Next:     fmt.Sprintf("leasehold keyspace set %s --ttl %v, and find out what stops the worker: GC, swap, CPU limits", k.GetName(), suggestTTL(pause, e.election())),
	})
}

// suggestTTL is a round time above three pauses and six elections.
func suggestTTL(pause, election time.Duration) time.Duration {
	need := max(leastPauses*pause, leastElections*election)
	for _, step := range []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, time.Minute} {
		if need <= 20*step {
			return time.Duration(math.Ceil(float64(need)/float64(step))) * step
		}
	}
	return min(need.Round(time.Minute)+time.Minute, time.Hour)
}

// workers finds what they say of themselves.
func (e *exam) workers() {
	var overruns, late, unguarded []string
	for _, w := range e.Workers {
		if w.GetOverruns() > 0 {
			overruns = append(overruns, fmt.Sprintf("%s (%d)", w.GetId(), w.GetOverruns()))
		}
		if left := LeaseLeft(w); w.GetState() == "live" && left < 0.5 {
			late = append(late, fmt.Sprintf("%s (%.0f %% of %v left)", w.GetId(), 100*left, ms(w.GetTtlMs())))
		}
		if !e.Stale && w.GetAttached() && w.GetFencingChecks() == 0 && e.Holding[w.GetId()] > guardAfter {
			unguarded = append(unguarded, w.GetId())
		}
	}
	if len(overruns) > 0 {
		e.find(&pb.Finding{
			Severity: Warning, Code: "overruns", Subject: "workers",
			What: "handlers went on after their leases had ended", Evidence: "worker (times): " + some(overruns),
			Why:  "without a guard they may have written beside the next owner",
			Next: "return from a handler when its context is done; see Config.OnOverrun",
		})
	}
	if len(late) > 0 {
		e.find(&pb.Finding{
			Severity: Warning, Code: "renewals_late", Subject: "workers",
			What: "workers do not renew their sessions", Evidence: some(late),
			Why:  "at the deadline they stop, and their partitions move",
			Next: "leasehold workers ls -o wide",
		})
	}
	if len(unguarded) > 0 {
		e.find(&pb.Finding{
			Severity: Warning, Code: "guard_never_seen", Subject: "workers",
			What:     "no guard has ever checked a token of these workers",
			Evidence: fmt.Sprintf("%s with partitions for more than %v and 0 checks: %s", plural(len(unguarded), "worker"), guardAfter, some(unguarded)),
			Why:      "without a guard no lease can promise exclusion: a paused owner writes beside the next one",
			Next:     "use worker.Claim and a guard at the resource: README, section Guards; count it with Worker.Fencing",
		})
	}
}

// LeaseLeft is which share of its TTL a worker's session has left.
func LeaseLeft(w *pb.Worker) float64 {
	if w.GetTtlMs() == 0 {
		return 1
	}
	return float64(w.GetRemainingMs()) / float64(w.GetTtlMs())
}

// unownedGroup is partitions of one keyspace that are without an owner for the
// same reason.
type unownedGroup struct {
	keyspace, reason string
	state            pb.PartitionState
	partitions       []uint32
}

// partitions finds those without an owner, and says why.
func (e *exam) partitions() {
	groups := map[string]*unownedGroup{}
	seen := map[string]int{}
	for _, p := range e.Unowned {
		seen[p.GetKeyspace()]++
		reason, _, _ := strings.Cut(p.GetReason(), ", at most ")
		if e.Stale && reason == "" {
			reason = "only the leader knows why"
		}
		key := fmt.Sprintf("%s\x00%s\x00%d", p.GetKeyspace(), reason, p.GetState())
		if groups[key] == nil {
			groups[key] = &unownedGroup{keyspace: p.GetKeyspace(), reason: reason, state: p.GetState()}
		}
		groups[key].partitions = append(groups[key].partitions, p.GetPartition())
	}
	var sorted []*unownedGroup
	for _, g := range groups {
		sorted = append(sorted, g)
	}
	slices.SortFunc(sorted, func(a, b *unownedGroup) int {
		return cmp.Or(cmp.Compare(a.keyspace, b.keyspace), cmp.Compare(len(b.partitions), len(a.partitions)), cmp.Compare(a.reason, b.reason))
	})
	for _, g := range sorted {
		e.unowned(g)
	}
	for _, k := range e.Keyspaces {
		if n := int(k.GetStatus().GetUnowned()) - seen[k.GetName()]; n > 0 && seen[k.GetName()] >= MaxUnowned {
			e.find(&pb.Finding{
				Severity: Warning, Code: "unowned", Subject: "keyspace " + k.GetName(),
				What: plural(n, "more partition") + " without an owner", Evidence: fmt.Sprintf("only the first %d were looked at", MaxUnowned),
				Why:  "nobody works on them",
				Next: "leasehold partitions ls " + k.GetName() + " --unowned",
			})
		}
	}
}

func (e *exam) unowned(g *unownedGroup) {
	numbers := make([]string, len(g.partitions))
	for i, p := range g.partitions {
		numbers[i] = fmt.Sprint(p)
	}
	f := &pb.Finding{
		Severity: Warning, Code: "unowned", Subject: "keyspace " + g.keyspace,
		What:     fmt.Sprintf("%s of %s without an owner: %s", plural(len(g.partitions), "partition"), g.keyspace, cmpText(g.reason, "no reason is known")),
		Evidence: "partitions " + some(numbers),
		Why:      "nobody works on them",
		Next:     "leasehold partitions show " + g.first() + " --why",
	}
	if len(g.partitions) == 1 {
		f.Evidence = "partition " + numbers[0]
	}
	restored := strings.HasPrefix(g.reason, "restored:")
	if restored || strings.HasPrefix(g.reason, "is being granted") || strings.HasPrefix(g.reason, "waits for more workers") {
		f.Severity = Notice // in a moment
	}
	switch {
	case g.state == pb.PartitionState_PARTITION_STATE_QUARANTINED:
		f.Code = "quarantined"
		f.What = fmt.Sprintf("%s of %s in quarantine: failed on three workers", plural(len(g.partitions), "partition"), g.keyspace)
		f.Next = fmt.Sprintf("see what its handler trips over: leasehold partitions show %s --why; mend it, then: leasehold partitions retry %s", g.first(), g.first())
	case restored:
		f.Next = "wait: what is left of it is in leasehold status"
	case e.workersOf(g.keyspace) == 0:
		f.Next = "start a worker of " + g.keyspace + ": leasehold run --keyspace " + g.keyspace + " -- CMD; see who is there: leasehold workers ls"
	case strings.Contains(g.reason, "capacity"):
		f.Next = "start more workers, or raise their capacity: leasehold workers ls -o wide"
	case g.state == pb.PartitionState_PARTITION_STATE_BLOCKED:
		f.Next = "it ends by itself with the session: leasehold partitions show " + g.first() + " --why"
	}
	e.find(f)
}

// first is one of the group, as commands take it.
func (g *unownedGroup) first() string { return fmt.Sprintf("%s/%d", g.keyspace, g.partitions[0]) }

// workersOf counts the live ones of a keyspace.
func (e *exam) workersOf(keyspace string) (n int) {
	for _, w := range e.Workers {
		if w.GetState() == "live" && slices.Contains(w.GetKeyspaces(), keyspace) {
			n++
		}
	}
	return n
}
