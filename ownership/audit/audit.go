// Package audit proves, while the product runs, that its main promise is kept.
// An Auditor reads the events of the log in their order and believes nothing
// else: not the leases in the state, not the conditions under which they were
// granted. For each partition it remembers the lease that has not ended, and
// finds
//
//   - an overlap: a grant while another lease of the partition has not ended
//   - a regression: a token that is not above every earlier one
//   - an unmatched end: of a lease that is not the partition's present one
//
// It cannot see what a worker does after its lease has ended; guards can.
//
// An Auditor begins with the first event of a cluster, or from the state when
// the events before are in a snapshot: it then knows the leases of that moment
// and misses what was wrong before. It needs 16 bytes a partition, has no
// goroutine, and is for one goroutine at a time.
package audit

import (
	"fmt"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Counts is what has been looked at and found.
type Counts struct {
	Checked, Overlaps, Regressions, Unmatched uint64
	// Restarts is how often the audit began anew from the state.
	Restarts uint64
}

// Finding is an event that breaks a promise.
type Finding struct {
	What  string // overlap, token_regression or unmatched_end
	Event state.Event
	Open  state.Token // of the lease that has not ended; 0: none
	Last  state.Token // the highest before the event
}

// String tells it all in a line.
func (f *Finding) String() string {
	return fmt.Sprintf("%s at revision %d: %s of keyspace %d, partition %d, token %d of %s; not ended: %d, highest token before: %d",
		f.What, f.Event.Revision, f.Event.Kind, f.Event.Keyspace, f.Event.Partition, f.Event.Token, f.Event.Worker, f.Open, f.Last)
}

// Auditor reads events. Use New.
type Auditor struct {
	revision uint64
	last     state.Token // of all grants
	spaces   map[state.KeyspaceID]*space
	counts   Counts
	found    *Finding // the first since Take
}

// space has, for each partition, the highest token and that of the lease that
// has not ended.
type space struct {
	highest, open []state.Token
}

// New returns an Auditor that expects the first event of a cluster.
func New() *Auditor { return &Auditor{spaces: make(map[state.KeyspaceID]*space)} }

// At tells whether the events after revision are the ones to be read next. If
// not, call Restart.
func (a *Auditor) At(revision uint64) bool { return a.revision == revision }

// Restart begins anew from a state, with the event after its newest.
func (a *Auditor) Restart(s *state.State) {
	a.counts.Restarts++
	a.revision, a.last = s.Revision(), s.LastToken()
	clear(a.spaces)
	for k := range s.Keyspaces() {
		sp := &space{}
		sp.reach(k.Partitions - 1)
		for p := range k.Partitions {
			l := k.Lease(p)
			sp.highest[p] = l.Token
			if l.Session != 0 {
				sp.open[p] = l.Token
			}
		}
		a.spaces[k.ID] = sp
	}
}

// Read takes the next events.
func (a *Auditor) Read(events []state.Event) {
	for i := range events {
		e := &events[i]
		a.revision = e.Revision
		switch e.Kind {
		case state.KindGrant:
			a.grant(e)
		case state.KindRelease, state.KindRevoke, state.KindExpire:
			a.end(e)
		case state.KindKeyspaceGone:
			delete(a.spaces, e.Keyspace)
		}
	}
}

func (a *Auditor) grant(e *state.Event) {
	sp := a.space(e)
	open, highest := &sp.open[e.Partition], &sp.highest[e.Partition]
	a.counts.Checked++
	if *open != 0 {
		a.counts.Overlaps++
		a.find("overlap", e, sp)
	}
	if e.Token <= *highest || e.Token <= a.last {
		a.counts.Regressions++
		a.find("token_regression", e, sp)
	}
	*open, *highest, a.last = e.Token, max(*highest, e.Token), max(a.last, e.Token)
}

func (a *Auditor) end(e *state.Event) {
	sp := a.space(e)
	if open := &sp.open[e.Partition]; *open == e.Token {
		*open = 0
		return
	}
	a.counts.Unmatched++
	a.find("unmatched_end", e, sp)
}

func (a *Auditor) find(what string, e *state.Event, sp *space) {
	if a.found == nil {
		a.found = &Finding{What: what, Event: *e, Open: sp.open[e.Partition], Last: max(sp.highest[e.Partition], a.last)}
	}
}

// space is that of an event, with room for its partition.
func (a *Auditor) space(e *state.Event) *space {
	sp := a.spaces[e.Keyspace]
	if sp == nil {
		sp = &space{}
		a.spaces[e.Keyspace] = sp
	}
	sp.reach(e.Partition)
	return sp
}

func (sp *space) reach(p uint32) {
	if n := int(p) + 1; n > len(sp.open) {
		sp.open = append(sp.open, make([]state.Token, n-len(sp.open))...)
		sp.highest = append(sp.highest, make([]state.Token, n-len(sp.highest))...)
	}
}

// Take returns the counts since it was called last, and the first finding among
// them; nil: none.
func (a *Auditor) Take() (Counts, *Finding) {
	c, f := a.counts, a.found
	a.counts, a.found = Counts{}, nil
	return c, f
}
