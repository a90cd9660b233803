package controller

import (
	"cmp"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Plan decides for one keyspace what to do now. It is pure: the same input
// gives the same output. Its time is linear in partitions, plus a heap step
// for each partition that moves where the ring does not wish it.
//
// The order of its rules is their rank: what has no owner is placed before
// what has one that goes, and both before anything that merely evens out.
func Plan(in Input) Output {
	p := newPlanner(&in)
	if in.Deleting {
		p.out.Rest = Reason{Code: CodeDeleting}
		return p.out
	}
	p.survey()
	p.pickTrial()
	if !p.restored() && !p.coldStart() {
		p.placeAll()
	}
	p.even()
	p.finish()
	return p.out
}

// planner is the working set of one Plan: a few numbers per worker.
type planner struct {
	in  *Input
	out Output

	// load is what each worker holds or is about to: without what drains
	// away from it, with what drains towards it and with what an earlier
	// session of the same worker has not given back yet.
	load []int32
	// limit is the most load may become, by capacity.
	limit []int32
	// inbound counts balance moves under way towards a worker; flying all.
	inbound []int32
	flying  int

	byID      map[string]int32 // receiving session of a worker id
	bySession map[state.SessionID]int32

	orphans []item // to be granted now, by partition
	leavers []item // to be drained towards somebody
	held    int    // partitions with a holder

	trials []int // ready suspects that must be tried alone, index into Suspects
	trial  state.Clock

	shares
}

// itemKind is what placing an item leads to.
type itemKind uint8

const (
	orphan   itemKind = iota // grant
	take                     // revoke and grant in one entry
	leave                    // drain
	retarget                 // drain again, for somebody else
)

// item is a partition that needs a place.
type item struct {
	partition uint32
	kind      itemKind
	cause     state.Cause
	to        int32 // the place found, -1 for none
	from      int32 // holder, -1 for none
	suspect   int32 // index into Suspects, -1 for none
	move      int32 // index into Moves, -1 for none
}

const nobody int32 = -1

func newPlanner(in *Input) *planner {
	n := len(in.Workers)
	numbers := make([]int32, 3*n)
	p := &planner{
		in:      in,
		load:    numbers[:n:n],
		limit:   numbers[n : 2*n : 2*n],
		inbound: numbers[2*n:],
	}
	p.bySession = make(map[state.SessionID]int32, n)
	p.byID = make(map[string]int32, n)
	for i := range in.Workers {
		w := &in.Workers[i]
		p.bySession[w.Session] = int32(i)
		if w.mayReceive() {
			p.byID[w.ID] = int32(i)
		}
		p.limit[i] = 1 << 30
		if w.Capacity > 0 {
			p.limit[i] = int32(min(max(int64(w.Capacity)-int64(w.Elsewhere), 0), 1<<30))
		}
	}
	return p
}

// wish is the worker that the ring wants for a partition, or nobody.
func (p *planner) wish(partition uint32) int32 {
	if int(partition) >= len(p.in.Ring) {
		return nobody
	}
	m := p.in.Ring[partition]
	if m < 0 || int(m) >= len(p.in.RingWorkers) {
		return nobody
	}
	return p.in.RingWorkers[m]
}

func (p *planner) index(s state.SessionID) int32 {
	if i, ok := p.bySession[s]; ok && s != 0 {
		return i
	}
	return nobody
}

func (p *planner) wakeAt(t state.Clock) {
	if t > p.in.Now {
		p.out.Wake = earliest(p.out.Wake, t)
	}
}

func (p *planner) leaveUnowned(partition uint32, r Reason) {
	p.out.Unowned = append(p.out.Unowned, Unowned{partition, r})
	p.wakeAt(r.Until)
}

func (p *planner) grantOf(partition uint32, to int32, cause state.Cause) Grant {
	return Grant{
		Partition: partition,
		Cause:     cause,
		LastToken: p.in.Tokens[partition],
		Session:   p.in.Workers[to].Session,
	}
}

// restored holds everything back in a strict keyspace of a cluster that was
// made from a backup, until the leases that the backup's workers may still
// believe in have run out. The state machine would refuse it.
func (p *planner) restored() bool {
	if p.in.Now >= p.in.Restored {
		return false
	}
	p.out.Rest = Reason{Code: CodeRestored, Until: p.in.Restored}
	p.out.Grants, p.out.Revokes = nil, nil // what survey gave back to slots
	p.wakeAt(p.in.Restored)
	return true
}

// coldStart holds everything back while a keyspace that nobody holds any of
// is still waiting for workers, so that the first one does not get it all.
// What a returning worker held before is given to it all the same.
func (p *planner) coldStart() bool {
	in := p.in
	if p.held > 0 || in.Settings.InitialDelay <= 0 || len(p.byID) == 0 {
		return false
	}
	until := min(in.LastJoin+in.Settings.InitialDelay, in.ColdSince+coldMax)
	if in.Now >= until {
		return false
	}
	p.out.Rest = Reason{Code: CodeColdStart, Until: until}
	p.wakeAt(until)
	return true
}

// finish puts the lists into the order their readers expect and notes where
// that leaves the workers.
func (p *planner) finish() {
	p.noteShares()
	slices.SortFunc(p.out.Unowned, func(a, b Unowned) int { return cmp.Compare(a.Partition, b.Partition) })
	if p.out.Rest.Code == CodeNone && len(p.byID) == 0 {
		p.out.Rest = Reason{Code: CodeNoWorker}
	}
}
