package controller

import (
	"cmp"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// serious tells a suspect that has failed on more than one worker (or over
// and over on the same) from one that was merely held by a worker that died.
// The latter are regranted like any orphan: most of them are innocent, and
// they land on several workers. If one of them kills again, only what came
// from its first victim to its second has two workers against it, and from
// then on each is tried alone.
func (s *Suspect) serious() bool {
	return s.Quarantined || len(s.Workers) >= 2 || s.Failures >= 3
}

// pickTrial lets at most one serious suspect be on trial: granted, and not
// yet held for as long as a silent death takes to show.
func (p *planner) pickTrial() {
	in := p.in
	length := in.Settings.TTL + trialSlack
	for i := range in.Suspects {
		if s := &in.Suspects[i]; s.Held && s.serious() && in.Now < s.Since+length {
			p.trial = max(p.trial, s.Since+length)
		}
	}
	if len(p.trials) == 0 {
		return
	}
	// Who has waited longest since its backoff ended goes first, so that one
	// that fails for ever does not keep out the others.
	slices.SortFunc(p.trials, func(a, b int) int {
		x, y := &in.Suspects[a], &in.Suspects[b]
		return cmp.Or(cmp.Compare(x.RetryAt, y.RetryAt), cmp.Compare(x.Partition, y.Partition))
	})
	rest := p.trials
	if p.trial == 0 {
		s := &in.Suspects[rest[0]]
		p.orphans = append(p.orphans, item{
			partition: s.Partition, kind: orphan, cause: state.CauseRetry,
			from: nobody, to: nobody, suspect: int32(rest[0]), move: nobody,
		})
		rest = rest[1:]
	}
	for _, i := range rest {
		p.leaveUnowned(in.Suspects[i].Partition, Reason{Code: CodeTrial, Until: p.trial})
	}
}

// failedOn says whether a suspect has failed on this worker before.
func (p *planner) failedOn(suspect, worker int32) bool {
	if suspect == nobody {
		return false
	}
	return p.in.Suspects[suspect].failedOn(p.in.Workers[worker].ID)
}

func (s *Suspect) failedOn(worker string) bool { return slices.Contains(s.Workers, worker) }
