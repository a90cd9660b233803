package raftstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// ReadIndex returns an index such that a state which has come as far shows
// everything that any server had acknowledged before ReadIndex was called. Only
// the leader can; others return a *NotLeaderError, and so does one that has been
// deposed, or cannot tell, before the answer. It waits for the network, never
// for a disk, and until ctx ends while no majority answers.
//
// The leader asks the voters whether it still is the leader, by heartbeats that
// are sent after the call: a voter that has voted in a later term refuses them,
// and without the vote of one of those that acknowledge no later leader can have
// acknowledged anything before the call. Raft's own VerifyLeader also counts
// acknowledgements that arrive after the call to heartbeats sent before it, and
// those may be as old as the network likes.
func (s *Store) ReadIndex(ctx context.Context) (uint64, error) {
	r := s.reads.join()
	if r == nil {
		return 0, s.proposer.refusal()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if !r.ok {
		return 0, s.proposer.refusal()
	}
	return r.index, nil
}

// Attest is what a server that follows tells the leader of a term together with
// a question for an index: which server it is for Raft, and the term in which it
// is. It has then voted in no later one.
func (s *Store) Attest() (server string, term uint64) {
	r := s.running()
	if r == nil {
		return "", 0
	}
	return string(s.self.raftID()), r.CurrentTerm()
}

// ReadIndexFor is ReadIndex for reads at another server, which attests the term
// that it was in when all of them had begun. That is worth as much as its answer
// to a heartbeat that was sent afterwards; so of three voters nobody has to be
// asked.
func (s *Store) ReadIndexFor(ctx context.Context, server string, term uint64) (uint64, error) {
	if index, ok := s.reads.attested(raft.ServerID(server), term); ok {
		return index, nil
	}
	return s.ReadIndex(ctx)
}

// office is what a leader's reads need of Raft during a term.
type office interface {
	// inOffice reports whether this server is still the leader of the term, and
	// has voted in none that came after it.
	inOffice(term uint64) bool
	commitIndex() uint64
	lastIndex() uint64 // of the log
	// voters splits the voters of the newest configuration.
	voters() (self bool, others []raft.Server)
	// ask sends one heartbeat and reports whether the other server takes this one
	// for the leader of the term. An error says nothing.
	ask(to raft.Server, term uint64) (yes bool, err error)
}

// readRounds confirms that this server leads. One round is under way at a time;
// all who come meanwhile share the next.
type readRounds struct {
	asking sync.WaitGroup

	mu        sync.Mutex
	office    office
	term      uint64 // in which this server is in office; 0: it is not
	ended     chan struct{}
	last      uint64 // number of the newest round
	now, next *readRound
	peers     map[raft.ServerID]*readPeer
}

// readRound is one for which each voter is asked once.
type readRound struct {
	number uint64
	index  uint64 // committed when the round began
	asked  map[raft.ServerID]raft.Server
	needed int         // acknowledgements still
	more   *time.Timer // asks the rest; nil: all are asked
	ok     bool
	done   chan struct{} // closed with ok set
}

// askMore is how long those that are asked first have for their answers before
// the rest of the voters is asked, too.
const askMore = 3 * time.Millisecond

// readPeer is a voter. It is asked by one goroutine at a time, so that one that
// does not answer takes up no more than that.
type readPeer struct {
	busy     bool
	round    uint64 // the newest for which it has acknowledged
	failures int    // in a row; of its goroutine
}

// open begins a term in office.
func (q *readRounds) open(term uint64, o office) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.term, q.office, q.ended, q.peers = term, o, make(chan struct{}), make(map[raft.ServerID]*readPeer)
}

// close ends it, and refuses all who wait.
func (q *readRounds) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term == 0 {
		return
	}
	q.term = 0
	close(q.ended)
	q.endLocked(false)
	if r := q.next; r != nil {
		q.next = nil
		close(r.done)
	}
}

// join returns a round that has not begun, and begins it if none is under way;
// nil if this server is not in office.
func (q *readRounds) join() *readRound {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term == 0 {
		return nil
	}
	if q.next == nil {
		q.next = &readRound{done: make(chan struct{})}
	}
	r := q.next
	if q.now == nil {
		q.beginLocked()
	}
	return r
}

// beginLocked begins the next round. What is committed is noted first: whatever
// was acknowledged before is in it.
func (q *readRounds) beginLocked() {
	r := q.next
	q.now, q.next = r, nil
	q.last++
	r.number, r.index = q.last, q.office.commitIndex()
	self, others := q.office.voters()
	r.asked = make(map[raft.ServerID]raft.Server, len(others))
	r.needed = majorityOf(self, others)
	if r.needed <= 0 {
		q.endLocked(true)
		return
	}
	// As many as are needed, and first those that have answered last.
	slices.SortStableFunc(others, func(a, b raft.Server) int { return cmp.Compare(q.peerLocked(b.ID).round, q.peerLocked(a.ID).round) })
	first := min(r.needed, len(others))
	for _, srv := range others[:first] {
		q.askLocked(r, srv)
	}
	if rest := others[first:]; len(rest) > 0 {
		r.more = time.AfterFunc(askMore, func() { q.askRest(r, rest) })
	}
}

// majorityOf is how many of the others make a majority; inOffice looks at this
// server itself.
func majorityOf(self bool, others []raft.Server) int {
	if self {
		return (len(others) + 1) / 2
	}
	return len(others)/2 + 1
}

func (q *readRounds) peerLocked(id raft.ServerID) *readPeer {
	p := q.peers[id]
	if p == nil {
		p = &readPeer{}
		q.peers[id] = p
	}
	return p
}

// askLocked has a voter asked for a round.
func (q *readRounds) askLocked(r *readRound, srv raft.Server) {
	r.asked[srv.ID] = srv
	p := q.peerLocked(srv.ID)
	if p.busy {
		return // its goroutine looks again
	}
	p.busy = true
	o, term, ended := q.office, q.term, q.ended
	q.asking.Go(func() { q.askPeer(srv.ID, p, o, term, ended) })
}

// askRest asks those that were left out at first.
func (q *readRounds) askRest(r *readRound, rest []raft.Server) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term == 0 || q.now != r {
		return
	}
	for _, srv := range rest {
		q.askLocked(r, srv)
	}
}

// attested returns what is committed now, if one attestation is enough for that.
func (q *readRounds) attested(from raft.ServerID, term uint64) (index uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term == 0 || q.term != term {
		return 0, false
	}
	self, others := q.office.voters()
	if majorityOf(self, others) > 1 || !slices.ContainsFunc(others, func(srv raft.Server) bool { return srv.ID == from }) {
		return 0, false
	}
	index = q.office.commitIndex()
	return index, q.office.inOffice(term)
}

// endLocked ends the round that is under way, if there is one, and begins the
// next.
func (q *readRounds) endLocked(ok bool) {
	r := q.now
	if r == nil {
		return
	}
	q.now = nil
	if r.more != nil {
		r.more.Stop()
	}
	r.ok = ok && q.term != 0 && q.office.inOffice(q.term)
	close(r.done)
	if q.next != nil && q.term != 0 {
		q.beginLocked()
	}
}

// askPeer asks a voter for each round that is under way, until there is none
// that it has not acknowledged.
func (q *readRounds) askPeer(id raft.ServerID, p *readPeer, o office, term uint64, ended <-chan struct{}) {
	for {
		if p.failures > 0 {
			// A pooled connection breaks when the other server has been started
			// again; the next may work.
			select {
			case <-time.After(min(time.Millisecond<<min(p.failures-1, 10), 50*time.Millisecond)):
			case <-ended:
			}
		}
		number, srv := q.wanted(id, p, term)
		if number == 0 {
			return
		}
		yes, err := o.ask(srv, term)
		if err != nil {
			p.failures++
			continue
		}
		p.failures = 0
		q.answered(p, term, number, yes)
	}
}

// wanted returns the round for which the voter has to be asked, 0 if there is
// none: then its goroutine ends.
func (q *readRounds) wanted(id raft.ServerID, p *readPeer, term uint64) (number uint64, srv raft.Server) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term == term && q.now != nil && q.now.number > p.round {
		if srv, ok := q.now.asked[id]; ok {
			return q.now.number, srv
		}
	}
	p.busy = false
	return 0, raft.Server{}
}

// answered counts an answer to a heartbeat that was sent when that round had
// begun. It says nothing about a later one.
func (q *readRounds) answered(p *readPeer, term, number uint64, yes bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.term != term:
		return
	case !yes:
		q.endLocked(false) // whoever reads later is refused by the same voter
		return
	}
	p.round = number
	if q.now == nil || q.now.number != number {
		return
	}
	if q.now.needed--; q.now.needed == 0 {
		q.endLocked(true)
	}
}

// raftOffice is the office that Raft gives.
type raftOffice struct {
	s *Store
	r *raft.Raft
}

func (o raftOffice) inOffice(term uint64) bool {
	return o.s.leading.Load() == term && o.r.State() == raft.Leader && o.r.CurrentTerm() == term
}

func (o raftOffice) commitIndex() uint64 { return o.r.CommitIndex() }

func (o raftOffice) lastIndex() uint64 { return o.r.LastIndex() }

func (o raftOffice) voters() (self bool, others []raft.Server) {
	for _, srv := range o.r.GetConfiguration().Configuration().Servers {
		switch {
		case srv.Suffrage != raft.Voter:
		case srv.ID == o.s.self.raftID():
			self = true
		default:
			others = append(others, srv)
		}
	}
	return self, others
}

func (o raftOffice) ask(to raft.Server, term uint64) (bool, error) {
	return o.s.transport.stillLeads(to, term)
}

// stillLeads sends a heartbeat, which a follower answers beside its disk, and
// reports whether it takes this server for the leader of the term.
func (t *transport) stillLeads(to raft.Server, term uint64) (bool, error) {
	req := &raft.AppendEntriesRequest{RPCHeader: t.header(), Term: term}
	resp := &raft.AppendEntriesResponse{}
	if err := t.AppendEntries(to.ID, to.Address, req, resp); err != nil {
		return false, err
	}
	return resp.Success && resp.Term == term, nil
}

// header is what Raft puts before its own requests.
func (t *transport) header() raft.RPCHeader {
	self := []byte(t.greeter.self)
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self}
}
