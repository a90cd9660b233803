package state

import (
	"iter"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// State is the whole replicated state. New returns an empty one.
type State struct {
	clusterID string
	// index and term are those of the entry applied last; wall is the wall
	// clock its leader put in, only ever copied into events.
	index, term uint64
	wall        int64

	clock     Clock
	clockTerm uint64 // term of the last clock entry
	nextSweep Clock  // when what has aged is next cleared away
	// fresh has the sessions renewed apart from the clock since its last
	// entry, and maybe some that have ended since; see refresh.
	fresh []*Session

	lastToken Token
	feature   Feature // 0 stands for 1
	strictAt  Clock   // no grant in a strict keyspace before; 0: no limit

	servers    []Server // by id
	leader     string   // server id of the latest Announce
	leaderTerm uint64

	// sessions is the index, sessionOrder the same by id, and seats the same
	// by the small number that the dense lease tables hold. Seat 0 is nobody's,
	// and that of those sessions that belong to no worker.
	sessions     map[SessionID]*Session
	sessionOrder []*Session
	seats        []*Session
	freeSeats    []uint32

	workers     map[string]*Worker
	workerOrder []*Worker // by id

	keyspaces     map[KeyspaceID]*Keyspace
	keyspaceNames map[string]*Keyspace
	keyspaceOrder []*Keyspace // by id
	lastKeyspace  KeyspaceID  // highest id ever given
	deleting      int         // keyspaces that wait for their last lease

	keys      *mvcc.Store
	sequences map[string]uint64 // prefix -> highest number given
	alarms    []uint64          // members, ascending

	credentials credentials
	keyring     Keyring

	owners   nameTable // previous owners of unowned partitions
	ledger   ledger
	requests requestWindow
}

// New returns an empty state, before Bootstrap.
func New() *State {
	return &State{
		sessions:      make(map[SessionID]*Session),
		seats:         []*Session{nil},
		workers:       make(map[string]*Worker),
		keyspaces:     make(map[KeyspaceID]*Keyspace),
		keyspaceNames: make(map[string]*Keyspace),
		owners:        newNameTable(),
		requests:      newRequestWindow(),
		keys:          mvcc.New(),
		sequences:     make(map[string]uint64),
		credentials:   newCredentials(),
	}
}

// ClusterID is empty before Bootstrap.
func (s *State) ClusterID() string { return s.clusterID }

// Applied returns the last applied index and its term.
func (s *State) Applied() (index, term uint64) { return s.index, s.term }

// Revision is that of the newest event.
func (s *State) Revision() uint64 { return s.ledger.last() }

// Now reads the logical clock.
func (s *State) Now() Clock { return s.clock }

// LastToken is the highest token granted or raised to so far.
func (s *State) LastToken() Token { return s.lastToken }

// Keyspace looks up by id.
func (s *State) Keyspace(id KeyspaceID) (*Keyspace, bool) {
	k, ok := s.keyspaces[id]
	return k, ok
}

// KeyspaceByName looks up by name, also one that is being deleted.
func (s *State) KeyspaceByName(name string) (*Keyspace, bool) {
	k, ok := s.keyspaceNames[name]
	return k, ok
}

// Keyspaces yields all keyspaces by id.
func (s *State) Keyspaces() iter.Seq[*Keyspace] { return slices.Values(s.keyspaceOrder) }

// Session looks up by id.
func (s *State) Session(id SessionID) (*Session, bool) {
	x, ok := s.sessions[id]
	return x, ok
}

// Sessions yields all sessions by id.
func (s *State) Sessions() iter.Seq[*Session] { return slices.Values(s.sessionOrder) }

// SessionCount is the number of sessions.
func (s *State) SessionCount() int { return len(s.sessionOrder) }

// workerSessions are those of workers, by id.
func (s *State) workerSessions() []*Session {
	if s.WorkerSessionCount() == len(s.sessionOrder) {
		return s.sessionOrder
	}
	own := make([]*Session, 0, s.WorkerSessionCount())
	for _, x := range s.sessionOrder {
		if !x.isLease() {
			own = append(own, x)
		}
	}
	return own
}

// WorkerSessionCount is the number of those that belong to workers.
func (s *State) WorkerSessionCount() int { return len(s.seats) - 1 - len(s.freeSeats) }

// Worker looks up by worker id.
func (s *State) Worker(id string) (*Worker, bool) {
	w, ok := s.workers[id]
	return w, ok
}

// Workers yields all remembered workers by id.
func (s *State) Workers() iter.Seq[*Worker] { return slices.Values(s.workerOrder) }

// Events appends to buf at most limit events after revision and returns it. A
// revision that has left the ledger, or has not been reached, gives a
// *Refusal with ReasonCompacted and the oldest revision to resume from.
func (s *State) Events(after uint64, limit int, buf []Event) ([]Event, error) {
	return s.ledger.read(after, limit, buf)
}
