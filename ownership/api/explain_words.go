package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/controller"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// note says of a candidate what its verdict does not.
func (f *facts) note(c *controller.Candidate, wished bool) string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if wished {
		add("the ring places it here")
	}
	w := c.Worker
	chance := c.Chance
	if chance == controller.ChanceOwner && !c.Settled {
		chance = c.Without
	}
	switch chance {
	case controller.ChanceFull:
		switch {
		case c.Load < c.Limit:
			add("at the cap, 1.10 of its share of %.1f", c.Fair)
		case w.Elsewhere > 0:
			add("capacity %d, of which %d in other keyspaces", w.Capacity, w.Elsewhere)
		default:
			add("capacity %d", w.Capacity)
		}
	case controller.ChanceDrained:
		add("by an operator")
	case controller.ChanceDraining:
		add("is leaving")
	case controller.ChanceUnreachable:
		if c.Until > 0 {
			add("gossip says %s; believed for %s", w.Gossip, f.left(c.Until))
		} else {
			add("known dead")
		}
	case controller.ChanceFailed:
		add("failed here; only if nobody else has room")
	case controller.ChanceUnsettled:
		add("came back too often; settled in %s", f.left(c.Until))
	case controller.ChanceBarred:
		add("superseded or evicted")
	}
	return strings.Join(notes, "; ")
}

// choice says why the owner is the owner: by the ring, or because it is alive.
func (f *facts) choice(plan *controller.Planned, x controller.Explained) []*pb.Reason {
	if x.Owner < 0 || !x.Candidates[x.Owner].Settled {
		return nil // the plan does not know of it yet, or it will not keep it
	}
	c := &x.Candidates[x.Owner]
	size := fmt.Sprintf("%s holds %d, its fair share is %.1f", c.Worker.ID, f.held[c.Worker.Session], c.Fair)
	if c.Most > 0 {
		size += fmt.Sprintf(", it may hold %d", c.Most)
	}
	if c.Rank == 0 || x.Wish < 0 {
		return []*pb.Reason{{Code: "owner_kept", Text: fmt.Sprintf("%s has it and is alive, so it keeps it. %s.", c.Worker.ID, size)}}
	}
	ranked := 0
	for i := range x.Candidates {
		ranked = max(ranked, x.Candidates[i].Rank)
	}
	if x.Wish == x.Owner {
		text := fmt.Sprintf("%s is where the ring places it: choice %d of %d", c.Worker.ID, c.Rank, ranked)
		if c.Rank > 1 {
			text += fmt.Sprintf(", as the ring gives nobody more than %d", plan.Circle().Most())
		}
		return []*pb.Reason{{Code: "owner_preferred", Text: text + ". " + size + "."}}
	}
	wish := &x.Candidates[x.Wish]
	r := &pb.Reason{Code: "owner_kept", Text: fmt.Sprintf(
		"%s keeps it because it is alive (choice %d of %d): the ring would place it with %s, but only load moves what has a good owner. %s.",
		c.Worker.ID, c.Rank, ranked, wish.Worker.ID, size)}
	if wish.Chance == controller.ChanceEligible {
		r.Next = fmt.Sprintf("if it must be there: leasehold partitions move %s/%d --to %s", f.m.GetKeyspace(), f.m.GetPartition(), wish.Worker.ID)
	}
	return []*pb.Reason{r}
}

// reasons are what the log and the controller say is the matter now.
func (f *facts) reasons(why controller.Reason) (list []*pb.Reason) {
	at := fmt.Sprintf("%s/%d", f.m.GetKeyspace(), f.m.GetPartition())
	add := func(code, next, format string, args ...any) {
		list = append(list, &pb.Reason{Code: code, Text: fmt.Sprintf(format, args...), Next: next})
	}
	if f.deleting {
		add(string(controller.CodeDeleting), "wait until the keyspace is gone", "keyspace %s is being deleted", f.m.GetKeyspace())
	}
	switch why.Code {
	case controller.CodeNone:
		if f.m.GetState() == pb.PartitionState_PARTITION_STATE_BLOCKED {
			add(string(controller.CodeBlocked), f.barredNext(), "%s; %s left", f.m.GetReason(), shortly(f.remaining))
		}
	case controller.CodeBlocked:
		add(string(why.Code), f.barredNext(), "the session of %s that holds it is barred or thought dead; it ends in %s at the latest", why.Worker, shortly(f.remaining))
	case controller.CodeStuck:
		add(string(why.Code), "look at "+why.Worker+"'s handler, or: leasehold workers evict "+why.Worker,
			"%s was asked to finish and has not returned it since the handoff timeout of %s; nobody else may have it before it does, or its session ends", why.Worker, f.settings.HandoffTimeout)
	case controller.CodeDeleting:
	default:
		next := unownedNext(why.Code, at)
		if why.Code == controller.CodeBackoff && f.suspect == nil {
			next = "it is tried again by itself" // given back too often: there is nothing to forgive
		}
		add(string(why.Code), next, "%s", strings.TrimPrefix(why.String(), string(why.Code)+": "))
	}
	if f.session != 0 && len(list) == 0 {
		silent := ""
		switch {
		case f.remaining < f.settings.TTL/2:
			silent = f.m.GetOwner() + " has not renewed its session for a while"
		case f.detached:
			silent = f.m.GetOwner() + " has lost its connection, or ended without a word"
		}
		if silent != "" {
			add("ttl_runs", "if it comes back it keeps the partition, if not somebody else is granted it then", "%s: the session runs out in %s", silent, shortly(f.remaining))
		}
	}
	if f.suspect != nil && f.session == 0 && f.suspect.Quarantined && why.Code != controller.CodeQuarantined {
		add(string(controller.CodeQuarantined), unownedNext(controller.CodeQuarantined, at), "%s", f.failures())
	}
	if f.suspect != nil && f.session != 0 {
		add("probation", "", "it is under probation: %s", f.failures())
	}
	if f.session == 0 && len(list) == 0 {
		add("unowned", "", "nobody holds it")
	}
	if f.move != nil && f.session != 0 {
		to := "nobody in particular"
		if f.target != "" {
			to = f.target
		}
		if f.move.Reserve {
			to = f.m.GetOwner() + " when it is back"
		}
		late := "then it is taken back (fenced)"
		if f.settings.Takeover != state.Fenced {
			late = "after that only its release or its session's end frees it (strict)"
		}
		if left := f.move.Deadline - f.now; left > 0 {
			add("draining", late, "%s has been asked to finish it for %s, cause %s; it has %s left", f.m.GetOwner(), to, causeName(f.move.Cause), shortly(left))
		}
	}
	return list
}

func (f *facts) barredNext() string {
	if f.settings.Takeover == state.Fenced {
		return "it is taken over as soon as two signs agree that the worker is dead"
	}
	return "it is granted anew when that session has ended; nothing needs to be done"
}

// failures tells who failed, and with what.
func (f *facts) failures() string {
	text := fmt.Sprintf("%d failures", f.suspect.Failures)
	if f.suspect.Failures == 1 {
		text = "1 failure"
	}
	if len(f.suspect.Workers) > 0 {
		text += " on " + strings.Join(f.suspect.Workers, ", ")
	}
	if f.suspect.LastError != "" {
		text += fmt.Sprintf(" (last error: %s)", f.suspect.LastError)
	}
	return text
}

// unownedNext is what ends a lack of an owner, or the command that does.
func unownedNext(code controller.Code, at string) string {
	switch code {
	case controller.CodeNoWorker:
		return "start a worker; leasehold workers ls shows those there are"
	case controller.CodeCapacity:
		return "start more workers, or start them with a greater capacity"
	case controller.CodeQuarantined:
		return "mend the handler, then: leasehold partitions retry " + at
	case controller.CodeBackoff:
		return "it is tried again by itself; at once: leasehold partitions retry " + at
	case controller.CodeColdStart, controller.CodeReserved, controller.CodeTrial, controller.CodeDoubt, controller.CodeRestored:
		return "it is granted by itself"
	case controller.CodePending:
		return "it is granted within moments"
	}
	return ""
}

// specify adds figures to the reason of a partition without an owner.
func (f *facts) specify(reasons []*pb.Reason, why controller.Reason, x controller.Explained) {
	if len(reasons) == 0 || reasons[0].GetCode() != string(why.Code) {
		return
	}
	r := reasons[0]
	switch why.Code {
	case controller.CodeNoWorker:
		if len(x.Candidates) == 0 {
			r.Text = "no worker has joined keyspace " + f.m.GetKeyspace()
			return
		}
		r.Text = "none of its workers may be granted anything: " + tally(x)
		for i := range x.Candidates {
			if c := &x.Candidates[i]; c.Chance == controller.ChanceDrained {
				r.Next = "start a worker, or: leasehold workers undrain " + c.Worker.ID
				break
			}
		}
	case controller.CodeCapacity:
		r.Text = fmt.Sprintf("there is no room for it: %s", tally(x))
		held, limit := 0, 0
		for i := range x.Candidates {
			if c := &x.Candidates[i]; c.Most > 0 {
				held, limit = held+f.held[c.Worker.Session], limit+int(c.Most)
			}
		}
		r.Text += fmt.Sprintf("; they hold %d of the %d that they may", held, limit)
	case controller.CodeQuarantined, controller.CodeBackoff, controller.CodeTrial:
		if f.suspect != nil {
			r.Text += ": " + f.failures()
		}
	}
}

// tally counts candidates by verdict, the most frequent first.
func tally(x controller.Explained) string {
	counts := map[controller.Chance]int{}
	var kinds []controller.Chance
	for i := range x.Candidates {
		c := x.Candidates[i].Chance
		if counts[c]++; counts[c] == 1 {
			kinds = append(kinds, c)
		}
	}
	slices.SortStableFunc(kinds, func(a, b controller.Chance) int { return cmp.Compare(counts[b], counts[a]) })
	parts := make([]string, len(kinds))
	for i, k := range kinds {
		parts[i] = fmt.Sprintf("%d %s", counts[k], k)
	}
	return strings.Join(parts, ", ")
}

// past says when and why it changed hands last.
func (f *facts) past(history []*pb.Event) []*pb.Reason {
	for i := len(history) - 1; i >= 0; i-- {
		ev := history[i]
		at := ev.GetTime().AsTime().UTC().Format(time.RFC3339)
		if ev.GetKind() == state.KindGrant.String() {
			went := ev.GetWorker() + " got it"
			if ev.GetFrom() != "" {
				went = fmt.Sprintf("it went from %s to %s", ev.GetFrom(), ev.GetWorker())
			}
			return []*pb.Reason{{Code: "moved", Text: fmt.Sprintf("%s at %s: %s (token %d, index %d)",
				went, at, moveStory(ev), ev.GetToken(), ev.GetIndex())}}
		}
		switch ev.GetKind() {
		case state.KindRelease.String(), state.KindExpire.String(), state.KindRevoke.String():
			return []*pb.Reason{{Code: "lost", Text: fmt.Sprintf("%s lost it at %s: %s (token %d, index %d)",
				ev.GetWorker(), at, lossStory(ev, history[:i]), ev.GetToken(), ev.GetIndex())}}
		}
	}
	return nil
}

// moveStory is the sentence for the cause of a grant.
func moveStory(ev *pb.Event) string {
	from := cmp.Or(ev.GetFrom(), "its owner")
	switch ev.GetCause() {
	case state.CauseInitial.String():
		return "the keyspace was handed out for the first time"
	case state.CauseJoin.String():
		return ev.GetWorker() + " had joined and was given its share"
	case state.CauseLeave.String():
		return from + " left and handed it over"
	case state.CauseRestart.String():
		return ev.GetWorker() + " came back, or came in the place of one that went, and got what was held there before"
	case state.CauseBalance.String():
		return "load was evened out"
	case state.CauseOperator.String():
		return "an operator moved it (partitions move)"
	case state.CauseRetry.String():
		return "it had failed and was tried again"
	}
	return causeStory(ev.GetCause(), from)
}

// lossStory is the sentence for the cause of a loss. What was released after a
// drain was lost for the drain's cause.
func lossStory(ev *pb.Event, before []*pb.Event) string {
	if ev.GetCause() == state.CauseDrained.String() {
		for _, d := range slices.Backward(before) {
			if d.GetKind() == state.KindDrain.String() && d.GetToken() == ev.GetToken() {
				return drainStory(d) + ", and it released it"
			}
		}
		return "asked to finish, it released it"
	}
	return causeStory(ev.GetCause(), ev.GetWorker())
}

// drainStory is the sentence for why an owner was asked to finish.
func drainStory(ev *pb.Event) string {
	switch ev.GetCause() {
	case state.CauseLeave.String():
		return ev.GetWorker() + " was leaving"
	case state.CauseRestart.String():
		return ev.GetWorker() + " was restarting, or gave back what another had held"
	case state.CauseJoin.String(), state.CauseBalance.String():
		return "load was being evened out"
	case state.CauseOperator.String():
		return "an operator was moving it"
	}
	return causeStory(ev.GetCause(), ev.GetWorker())
}

// causeStory is the sentence for what ended an owner's time.
func causeStory(cause, owner string) string {
	switch cause {
	case state.CauseExpired.String():
		return "the session of " + owner + " ran out"
	case state.CauseCrash.String():
		return owner + " was known dead before its session ran out"
	case state.CauseDrain.String():
		return "an operator drained " + owner
	case state.CauseSuperseded.String():
		return "a newer session of " + owner + " was opened"
	case state.CauseEvicted.String():
		return "an operator evicted " + owner
	case state.CauseCredentialRevoked.String():
		return "the credential of " + owner + " was revoked"
	case state.CauseYield.String():
		return owner + " gave it back of its own accord"
	case state.CauseFailed.String():
		return "the handler of " + owner + " failed"
	case state.CauseEnded.String():
		return "its lease had ended at " + owner + ", which gave it back"
	case state.CauseClaimRefused.String():
		return "the resource refused the token of " + owner
	case state.CauseRefused.String():
		return owner + " refused it"
	case state.CauseTimeout.String():
		return owner + " did not return it within the handoff timeout"
	case state.CauseClosed.String():
		return owner + " closed its session"
	case state.CauseDeleted.String():
		return "the keyspace was deleted"
	}
	return "cause " + cmp.Or(cause, "none")
}

// balance says whether it may move next, only to even out.
func (f *facts) balance(x controller.Explained) []*pb.Reason {
	if !x.Gives {
		return nil
	}
	text := fmt.Sprintf("%s has more than its share and others less: some of its partitions move soon, perhaps this one", f.m.GetOwner())
	next := "leasehold ring simulate " + f.m.GetKeyspace() + " shows which"
	switch x.Stay {
	case controller.StayQuiet:
		text += fmt.Sprintf("; balance waits %s for the set of workers to settle", f.left(x.Until))
	case controller.StayCool:
		text += fmt.Sprintf("; this one moved lately and stays for %s", f.left(x.Until))
	case controller.StayTrial:
		text += "; this one stays while it is under probation"
	case controller.StayDoubt:
		text += fmt.Sprintf("; not while gossip doubts its owner, %s more", f.left(x.Until))
	}
	return []*pb.Reason{{Code: "balance", Text: text, Next: next}}
}
