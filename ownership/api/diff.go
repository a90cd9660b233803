package api

import (
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// A worker says with each keep-alive which leases run, as one sum. It differs
// from what the session holds whenever a change is on its way: a grant that is
// being claimed, a handler that has returned and whose release is not logged
// yet. So a difference counts only when the same one is seen again one
// keep-alive later; then the worker is sent the full list. If that does not
// help (a handler that does not return, say), it is sent again more and more
// seldom.
type diff struct {
	running, held uint64 // both sums, as last compared
	version       uint64 // of what is held
	seen          int    // how often in a row, this one included
	next          int    // at which count the list is sent
}

const maxListInterval = 64 // keep-alives between two full lists

// note returns whether the full list is due.
func (d *diff) note(running, held, version uint64) bool {
	if running == held {
		*d = diff{}
		return false
	}
	if d.seen == 0 || d.running != running || d.held != held || d.version != version {
		*d = diff{running: running, held: held, version: version, seen: 1, next: 2}
		return false
	}
	d.seen++
	if d.seen < d.next {
		return false
	}
	d.next = d.seen + min(d.seen, maxListInterval)
	return true
}

// compare holds what the worker runs against what its session holds. The sum
// over the table is only taken after a change.
func (st *stream) compare(r *pb.KeepAliveRequest) {
	st.mu.Lock()
	fresh := st.heldAt == st.version
	st.mu.Unlock()
	if !fresh {
		st.hub.store.View(func(s *state.State) {
			held := heldHash(s, st.id)
			st.mu.Lock() // version cannot move: changes come under the write lock
			st.held, st.heldAt = held, st.version
			st.mu.Unlock()
		})
	}
	st.mu.Lock()
	due := st.heldAt == st.version && st.diff.note(r.GetRunningHash(), st.held, st.version)
	if due {
		st.full = true
	}
	st.mu.Unlock()
	if due {
		st.hub.log.Info("a worker runs other leases than it holds, sending the full list",
			"worker", st.worker, "session", uint64(st.id), "running", r.GetRunning())
		st.signal()
	}
}

// heldHash sums all leases of a session.
func heldHash(s *state.State, id state.SessionID) uint64 {
	var sum uint64
	eachHeld(s, id, func(ks *state.Keyspace, p uint32, l state.Lease) {
		sum ^= pb.LeaseHash(uint32(ks.ID), p, uint64(l.Token))
	})
	return sum
}

func eachHeld(s *state.State, id state.SessionID, fn func(*state.Keyspace, uint32, state.Lease)) {
	sess, ok := s.Session(id)
	if !ok {
		return
	}
	for _, ksID := range sess.Keyspaces {
		ks, ok := s.Keyspace(ksID)
		if !ok {
			continue
		}
		for p := range s.Held(id, ksID) {
			fn(ks, p, ks.Lease(p))
		}
	}
}

// leaseList is all that a session holds.
func leaseList(s *state.State, id state.SessionID, term uint64, now time.Duration) *pb.LeaseList {
	index, _ := s.Applied()
	list := &pb.LeaseList{Term: term, Index: index}
	m := merger{now: now, cur: &pb.LeaseChanges{}}
	eachHeld(s, id, func(ks *state.Keyspace, p uint32, l state.Lease) {
		c := change{kind: changeGrant, keyspace: ks.ID, partition: p, token: l.Token}
		if mv, ok := ks.Move(p); l.Draining && ok {
			c.drainBy = now + max(time.Millisecond, mv.Deadline-s.Now())
			c.cause = mv.Cause
		}
		g := m.group(&c, s.HeldCount(id, ks.ID))
		g.leases.Partitions = append(g.leases.Partitions, p)
		g.leases.Tokens = append(g.leases.Tokens, uint64(l.Token))
		if c.drainBy > 0 {
			g.leases.DrainMs = max(1, (c.drainBy - now).Milliseconds())
		}
	})
	list.Granted = m.cur.Granted
	return list
}
