package api

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/controller"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// maxHistory is how many events an explanation tells at most.
const maxHistory = 50

// facts are what the log says of one partition, at one moment.
type facts struct {
	id        state.KeyspaceID
	m         *pb.Partition
	settings  state.Settings
	deleting  bool
	now       state.Clock
	session   state.SessionID // of the holder, 0 for none
	remaining time.Duration   // of that session
	move      *state.Move
	suspect   *state.Suspect
	target    string
	detached  bool // the leader has no stream of the holder's session
	held      map[state.SessionID]int
}

// ExplainPartition puts together what the log says and, on the leader, what its
// planner makes of it.
func (a *partitions) ExplainPartition(ctx context.Context, r *pb.ExplainPartitionRequest) (*pb.Explanation, error) {
	f := &facts{held: map[state.SessionID]int{}}
	var bad error
	err := a.look(ctx, r.GetStale(), "keyspace", r.GetKeyspace(), func(s *state.State, ks *state.Keyspace) {
		if r.GetPartition() >= ks.Partitions {
			bad = outOfRange("partition", r.GetPartition(), ks.Partitions)
			return
		}
		f.read(s, ks, r.GetPartition())
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, err
	}
	e := &pb.Explanation{Partition: f.m}
	e.History, e.HistoryCut = a.history(f.id, r.GetPartition())
	if r.GetStale() {
		e.Reasons = append(f.reasons(controller.Reason{}), f.past(e.History)...)
		e.Reasons = append(e.Reasons, a.noPlan())
		return e, nil
	}
	plan, err := a.cfg.Controller.Planned(f.id)
	why, werr := a.cfg.Controller.Why(f.id, r.GetPartition(), leaseOf(f.m))
	if err = errors.Join(err, werr); err != nil {
		if errors.Is(err, controller.ErrNotLeading) {
			err = a.notLeader()
		}
		return nil, err
	}
	a.explain(f.id, f.m)
	f.detached = a.hub.attached(f.session) == nil
	var x controller.Explained
	if plan != nil {
		f.now = max(f.now, plan.Input.Now)
		x = controller.Explain(plan, r.GetPartition(), f.session, f.now)
	}
	e.Candidates = f.candidates(x)
	e.Reasons = f.reasons(why) // what is wrong goes first
	if f.session == 0 {
		f.specify(e.Reasons, why, x)
	}
	e.Reasons = append(e.Reasons, f.choice(plan, x)...)
	e.Reasons = append(e.Reasons, f.past(e.History)...)
	e.Reasons = append(e.Reasons, f.balance(x)...)
	return e, nil
}

// noPlan says what a stale answer lacks, and where the rest is to be had.
func (a *partitions) noPlan() *pb.Reason {
	r := &pb.Reason{
		Code: "no_plan", Text: "answered from the own state of server " + a.cfg.ServerID + ": the plan and the ring are the leader's",
		Next: "ask without --stale",
	}
	if id, ok := a.cfg.Store.LeaderID(); !ok || id == "" {
		r.Text += ", and there is none now: nothing is granted or moved"
		r.Next = "leasehold doctor; when there is a leader, ask without --stale"
	}
	return r
}

// read takes from the state what an explanation needs.
func (f *facts) read(s *state.State, ks *state.Keyspace, p uint32) {
	f.id, f.m, f.settings, f.deleting, f.now = ks.ID, partitionOf(s, ks, p), ks.Settings, ks.Deleting, s.Now()
	if x, ok := s.Session(ks.Lease(p).Session); ok {
		f.session, f.remaining = x.ID, max(0, x.Deadline-s.Now())
	}
	if mv, ok := ks.Move(p); ok {
		f.move = &mv
		if to, ok := s.Session(mv.Target); ok {
			f.target = to.Worker
		}
	}
	if sus, ok := ks.Suspect(p); ok {
		sus.Workers = slices.Clone(sus.Workers)
		f.suspect = &sus
	}
	for x := range s.Sessions() {
		if slices.Contains(x.Keyspaces, ks.ID) {
			f.held[x.ID] = s.HeldCount(x.ID, ks.ID)
		}
	}
}

// history goes back through the ledger, a piece at a time so that the log is not
// held up, and returns the newest events of a partition, oldest first. cut says
// that there was more.
func (a *API) history(id state.KeyspaceID, p uint32) (events []*pb.Event, cut bool) {
	var found []state.Event
	var endpoints []string
	var buf []state.Event
	next, begun, done := uint64(0), false, false
	for !done {
		a.cfg.Store.View(func(s *state.State) {
			if !begun {
				a.names.learn(s)
				next, begun = s.Revision(), true
			}
			lo := next - min(next, eventsPerMessage)
			var err error
			buf, err = s.Events(lo, int(next-lo), buf[:0])
			var refusal *state.Refusal
			if errors.As(err, &refusal) && refusal.Revision > lo && refusal.Revision < next {
				lo = refusal.Revision // the last piece is shorter
				buf, err = s.Events(lo, int(next-lo), buf[:0])
			}
			if err != nil || next == 0 {
				cut, done = next > 0, true // older ones have left the ledger
				return
			}
			for i := len(buf) - 1; i >= 0; i-- {
				ev := &buf[i]
				if ev.Keyspace != id || ev.Partition != p || !aboutPartition(ev.Kind) {
					continue
				}
				if len(found) == maxHistory {
					cut, done = true, true
					return
				}
				found = append(found, *ev)
				endpoints = endpointsOf(s, found[len(found)-1:], endpoints)
			}
			next = lo
		})
	}
	if n := len(found); n > 0 && found[n-1].Kind == state.KindGrant && found[n-1].Cause == state.CauseInitial {
		cut = false // its first
	}
	for i := len(found) - 1; i >= 0; i-- {
		events = append(events, a.eventOf(&found[i], endpoints[i]))
	}
	return events, cut
}

// candidates are the planner's, with what each holds now.
func (f *facts) candidates(x controller.Explained) []*pb.Candidate {
	list := make([]*pb.Candidate, 0, len(x.Candidates))
	for i := range x.Candidates {
		c := &x.Candidates[i]
		list = append(list, &pb.Candidate{
			Worker: c.Worker.ID, Rank: uint32(c.Rank), Held: int64(f.held[c.Worker.Session]), Most: int64(c.Most),
			Verdict: string(c.Chance), Note: f.note(c, i == x.Wish),
		})
	}
	return list
}

// left is a time of the logical clock as time from now, in words.
func (f *facts) left(until state.Clock) string {
	return shortly(until - f.now)
}

// shortly writes a duration that a person reads: 1m30s, 7s, 0.4s.
func shortly(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	if d < 10*time.Second {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return d.Round(time.Second).String()
}
