package api

import (
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/metrics"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// report has the counts of one keep-alive: all that a worker's process has met
// so far.
type report struct {
	process    uint64 // see KeepAliveRequest
	checks     uint64
	overruns   uint64
	rejections [5]uint64 // by rejectionWords
	lost       [7]uint64 // by lostWords
}

// Words of the metrics, in the order of a report. The last is for all others.
var (
	rejectionWords = [5]string{"stale_token", "unknown_token", "token_regression", "other_owner", "other"}
	lostWords      = [7]string{"expired", "revoked", "drain_timeout", "superseded", "evicted", "shutdown", "other"}
)

func reportOf(r *pb.KeepAliveRequest) report {
	x, l := r.GetRejections(), r.GetLost()
	m := report{
		process: r.GetProcess(), checks: r.GetFencingChecks(), overruns: r.GetOverruns(),
		rejections: [5]uint64{x.GetStaleToken(), x.GetUnknownToken(), x.GetTokenRegression(), x.GetOtherOwner(), x.GetOther()},
		lost: [7]uint64{
			l.GetExpired(), l.GetRevoked(), l.GetDrainTimeout(), l.GetSuperseded(), l.GetEvicted(), l.GetShutdown(), l.GetOther(),
		},
	}
	if m.process == 0 {
		m.process = r.GetSessionId()
	}
	if x == nil {
		m.rejections[4] = r.GetFencingRejections()
	}
	return m
}

// account is what one worker's process has been counted for in this term. It
// takes reports in any order and by whichever way, and counts nothing twice:
//
//   - of a process whose first session was opened in this term, all counts
//   - of any other, what it adds to its first report here, since an earlier
//     leader has counted what came before; what that one has not seen is lost
//
// A report counts when the log has answered its keep-alive, so that a leader
// that is deposed and does not know it counts nothing.
type account struct {
	mu    sync.Mutex
	based bool
	seen  report // the highest of each count; its process never changes
	// renewed is when a keep-alive was last committed; 0: not in this term.
	renewed time.Duration
	live    int // sessions, of the hub's lock
}

// take counts a report.
func (t *account) take(m *metrics.Server, r *report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	based := t.based
	t.based = true
	if *r == t.seen {
		return
	}
	var d metrics.Reported
	d.Checks = rise(&t.seen.checks, r.checks)
	d.Overruns = rise(&t.seen.overruns, r.overruns)
	for i, word := range rejectionWords {
		if n := rise(&t.seen.rejections[i], r.rejections[i]); n > 0 {
			d.Rejections = append(d.Rejections, metrics.Count{Word: word, N: n})
		}
	}
	for i, word := range lostWords {
		if n := rise(&t.seen.lost[i], r.lost[i]); n > 0 {
			d.Lost = append(d.Lost, metrics.Count{Word: word, N: n})
		}
	}
	if based {
		m.Reported(d)
	}
}

// rise makes *seen the higher of both and returns by how much it rose.
func rise(seen *uint64, now uint64) uint64 {
	n := max(now, *seen) - *seen
	*seen += n
	return n
}

// commit notes a committed renewal and records what was left before it.
func (t *account) commit(m *metrics.Server, ttl, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.renewed > 0 {
		m.Renewed(ttl-(now-t.renewed), ttl)
	}
	t.renewed = now
}

// accounts are those of a term.
type accounts struct {
	mu        sync.Mutex
	opened    map[state.SessionID]struct{} // opened in this term, until the first report
	byProcess map[uint64]*account
	bySession map[state.SessionID]*account
	ended     []uint64 // processes that a session of has ended, oldest first
}

// keptAccounts is how many processes without a session are remembered, for the
// session that they open next.
const keptAccounts = 4096

// reset forgets all, at the beginning of a term.
func (s *accounts) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened, s.ended = map[state.SessionID]struct{}{}, nil
	s.byProcess, s.bySession = map[uint64]*account{}, map[state.SessionID]*account{}
}

// open notes that a session has been opened in this term.
func (s *accounts) open(id state.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened[id] = struct{}{}
}

// of returns the account of the process that a session is of.
func (s *accounts) of(id state.SessionID, process uint64) *account {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.bySession[id]; ok {
		return t
	}
	t, ok := s.byProcess[process]
	if !ok {
		_, opened := s.opened[id]
		t = &account{based: opened && process == uint64(id), seen: report{process: process}}
		s.byProcess[process] = t
	}
	delete(s.opened, id)
	t.live++
	s.bySession[id] = t
	return t
}

// end notes that a session is over.
func (s *accounts) end(id state.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.opened, id)
	t, ok := s.bySession[id]
	if !ok {
		return
	}
	delete(s.bySession, id)
	t.live--
	t.forgetRenewal()
	s.ended = append(s.ended, t.seen.process)
	if len(s.ended) > keptAccounts {
		oldest := s.ended[0]
		s.ended = s.ended[1:]
		if old, ok := s.byProcess[oldest]; ok && old.live == 0 {
			delete(s.byProcess, oldest)
		}
	}
}

// forgetRenewal: the next session's margin does not count from this one's.
func (t *account) forgetRenewal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = 0
}

// tell takes the answer to a keep-alive that carried a report. A refusal of the
// log is one, too.
func (h *hub) tell(t *account, r *report, k raftstore.KeepAlive, err error) {
	switch {
	case err == nil:
		t.commit(h.meter, k.TTL, h.clock.Now())
	case goneReason(err) == "":
		return
	}
	t.take(h.meter, r)
}
