package state

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// SessionState is where a session stands.
type SessionState uint8

// A barred session (superseded, evicted) can neither renew nor be granted to.
const (
	SessionLive       SessionState = 1
	SessionLeaving    SessionState = 2
	SessionSuperseded SessionState = 3
	SessionEvicted    SessionState = 4
)

// Session is a read-only view of one session. One without Worker is a lease
// of etcd's: it has an ID, a TTL and a Deadline, is renewed and expires like any
// other, and holds keys alone. No event tells of it.
type Session struct {
	ID          SessionID
	Worker      string // empty: it belongs to none
	Incarnation uint64
	State       SessionState
	Restart     bool // leaving, and coming back
	TTL         time.Duration
	Keyspaces   []KeyspaceID // ascending
	Endpoint    string
	Zone        string
	Addr        string
	Capacity    uint32
	Labels      map[string]string
	Gossip      bool
	Opened      Clock
	Renewal     uint64 // log index of the last renewal
	Deadline    Clock
	Held        int // leases, over all keyspaces
	// Owner is who opened it, as access.Identity.Owner says; empty: nobody in
	// particular.
	Owner string

	renewed Clock  // clock of the last renewal
	fresh   bool   // renewed apart from the clock, see refresh
	seat    uint32 // its number in the dense lease tables
	record  *Worker
	held    []held // parallel to Keyspaces
	// keys has those attached to it, which die with it.
	keys map[string]struct{}
}

// held is the doubly linked list of a session's partitions in one keyspace;
// the links are in the lease table.
type held struct {
	head, tail uint32
	count      uint32
}

func sessionKey(x *Session) SessionID { return x.ID }

// barred sessions neither renew nor receive.
func (x *Session) barred() bool { return x.State >= SessionSuperseded }

// barredReason says why, for a refusal.
func (x *Session) barredReason() *Refusal {
	reason := ReasonSuperseded
	if x.State == SessionEvicted {
		reason = ReasonEvicted
	}
	return refuse(reason, "session", "session_id", fmt.Sprint(uint64(x.ID)), "a session that is not barred")
}

// list is the position of a keyspace in Keyspaces and held.
func (x *Session) list(k KeyspaceID) (int, bool) { return slices.BinarySearch(x.Keyspaces, k) }

// view is a copy for outside, without a way into the lease tables.
func (x *Session) view() *Session {
	v := *x
	v.Keyspaces, v.Labels = append([]KeyspaceID(nil), x.Keyspaces...), maps.Clone(x.Labels)
	v.held, v.seat, v.record, v.fresh, v.keys = nil, 0, nil, false, nil
	return &v
}

// Held yields, in no particular but deterministic order, the partitions a
// session holds in a keyspace. It costs O(held).
func (s *State) Held(id SessionID, ks KeyspaceID) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		x, ok := s.sessions[id]
		if !ok {
			return
		}
		i, ok := x.list(ks)
		if !ok {
			return
		}
		next := s.keyspaces[ks].next
		for p := x.held[i].head; p != none; p = next[p] {
			if !yield(p) {
				return
			}
		}
	}
}

// HeldCount is the number of them, O(1).
func (s *State) HeldCount(id SessionID, ks KeyspaceID) int {
	if x, ok := s.sessions[id]; ok {
		if i, ok := x.list(ks); ok {
			return int(x.held[i].count)
		}
	}
	return 0
}

func (s *State) openSession(c *OpenSession, r *Result) {
	keyspaces, err := s.checkOpen(c)
	if err != nil {
		r.Err = err
		return
	}
	if x, ok := s.sessions[c.Session]; ok {
		r.Session, r.Err = s.foundAgain(x, c)
		return
	}
	w, known := s.workers[c.Worker]
	if known {
		if r.Err = s.usurps(w, c); r.Err != nil {
			return
		}
	}
	if known && w.Incarnation != c.Incarnation || !known && c.Incarnation != 0 {
		r.Err = s.movedOn(w, c)
		return
	}
	w = s.worker(c.Worker)
	if old, ok := s.sessions[w.Session]; ok && !old.barred() {
		s.bar(old, SessionSuperseded, CauseSuperseded)
	}
	x := &Session{
		ID: c.Session, Worker: c.Worker, Incarnation: s.index, State: SessionLive,
		TTL: MaxTTL, Endpoint: c.Endpoint, Zone: c.Zone, Addr: c.Addr,
		Capacity: c.Capacity, Labels: cloneLabels(c.Labels), Gossip: c.Gossip,
		Opened: s.clock, Renewal: s.index, renewed: s.clock, Owner: c.Owner,
	}
	for _, k := range keyspaces {
		s.join(x, k)
	}
	x.Deadline = s.clock + x.TTL
	w.Session, w.Incarnation = x.ID, s.index
	w.opened(s.clock)
	w.sessions++
	s.addSession(x)
	s.refresh(x)
	s.emitSession(KindSessionOpen, x, CauseNone)
	r.Session = x.view()
}

// cloneLabels copies; none is always nil, also where a map was made for it.
func cloneLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	return maps.Clone(labels)
}

func (s *State) checkOpen(c *OpenSession) ([]*Keyspace, error) {
	const what = "session"
	if c.Session == 0 || c.Session >= 1<<63 {
		return nil, refuse(ReasonInvalid, what, "session_id", fmt.Sprint(uint64(c.Session)), "63 random bits, not 0")
	}
	if err := ValidateName(what, "worker_id", c.Worker); err != nil {
		return nil, err
	}
	for _, f := range []struct{ field, value string }{{"endpoint", c.Endpoint}, {"zone", c.Zone}, {"addr", c.Addr}} {
		if err := validateText(what, f.field, f.value, MaxTextLen); err != nil {
			return nil, err
		}
	}
	if err := validateLabels(what, c.Labels); err != nil {
		return nil, err
	}
	if err := s.checkOwner(c, what, c.Owner); err != nil {
		return nil, err
	}
	if n := len(c.Keyspaces); n == 0 || n > MaxJoined {
		return nil, refuse(ReasonInvalid, what, "keyspaces", fmt.Sprint(n), fmt.Sprintf("1 to %d keyspaces", MaxJoined))
	}
	seen := make(map[string]struct{}, len(c.Keyspaces))
	keyspaces := make([]*Keyspace, 0, len(c.Keyspaces))
	for _, name := range c.Keyspaces {
		if _, ok := seen[name]; ok {
			return nil, refuse(ReasonInvalid, what, "keyspaces", name, "each keyspace once")
		}
		seen[name] = struct{}{}
		k, err := s.joinable(name)
		if err != nil {
			return nil, err
		}
		keyspaces = append(keyspaces, k)
	}
	return keyspaces, nil
}

// foundAgain answers a retry of an open that had been carried out.
func (s *State) foundAgain(x *Session, c *OpenSession) (*Session, error) {
	switch {
	case x.Worker != c.Worker:
		return nil, refuse(ReasonExists, "session", "session_id", fmt.Sprint(uint64(x.ID)), "an id that no other worker uses")
	case x.barred():
		return nil, x.barredReason()
	}
	if err := x.foreign(c.Owner, c.Worker); err != nil {
		return nil, err
	}
	return x.view(), nil
}

func (s *State) movedOn(w *Worker, c *OpenSession) *Refusal {
	var now uint64
	if w != nil {
		now = w.Incarnation
	}
	r := refuse(ReasonIncarnation, "worker", "incarnation", fmt.Sprint(c.Incarnation), fmt.Sprintf("%d, the present one", now))
	if w != nil && w.Session != 0 {
		if addr := s.sessions[w.Session].Addr; addr != "" {
			r.Limit += ", opened from " + addr
		}
	}
	return r
}

func (s *State) addSession(x *Session) {
	s.sessions[x.ID] = x
	s.sessionOrder = insertBy(s.sessionOrder, x, sessionKey)
	if x.isLease() {
		return
	}
	if n := len(s.freeSeats); n > 0 {
		x.seat, s.freeSeats = s.freeSeats[n-1], s.freeSeats[:n-1]
		s.seats[x.seat] = x
	} else {
		x.seat = uint32(len(s.seats))
		s.seats = append(s.seats, x)
	}
	x.record = s.workers[x.Worker]
}

// joinable finds a keyspace that a session may join.
func (s *State) joinable(name string) (*Keyspace, error) {
	k, err := s.named(name)
	if err != nil {
		return nil, err
	}
	if k.Deleting {
		return nil, refuse(ReasonDeleting, "keyspace", "name", name, "a keyspace that is not being deleted")
	}
	return k, nil
}

// join adds a keyspace; the TTL of a session is the least of its keyspaces'.
// The deadline stays: it was promised.
func (s *State) join(x *Session, k *Keyspace) {
	i, _ := x.list(k.ID)
	x.Keyspaces = slices.Insert(x.Keyspaces, i, k.ID)
	x.held = slices.Insert(x.held, i, held{head: none, tail: none})
	x.TTL = min(x.TTL, k.Settings.TTL)
	k.LastJoin = s.clock
}

func (s *State) joinKeyspace(c *JoinKeyspace, r *Result) {
	x, err := s.workersOwn(c.Session)
	if err != nil {
		r.Err = err
		return
	}
	k, err := s.joinable(c.Keyspace)
	if err != nil {
		r.Err = err
		return
	}
	if _, joined := x.list(k.ID); !joined {
		if x.State == SessionLeaving {
			r.Err = refuse(ReasonConflict, "session", "session_id", fmt.Sprint(uint64(x.ID)), "a session that is not leaving")
			return
		}
		if len(x.Keyspaces) >= MaxJoined {
			r.Err = refuse(ReasonInvalid, "session", "keyspaces", c.Keyspace, fmt.Sprintf("at most %d keyspaces", MaxJoined))
			return
		}
		s.join(x, k)
		s.emitSession(KindSessionKeyspace, x, CauseNone).Keyspace = k.ID
	}
	r.Session, r.Keyspace = x.view(), k.view()
}

// unbarred finds a session that may still act.
func (s *State) unbarred(id SessionID) (*Session, error) {
	x, ok := s.sessions[id]
	if !ok {
		return nil, noSession(id)
	}
	if x.barred() {
		return nil, x.barredReason()
	}
	return x, nil
}

// workersOwn finds a session that may still act and belongs to a worker.
func (s *State) workersOwn(id SessionID) (*Session, error) {
	x, err := s.unbarred(id)
	if err == nil && x.isLease() {
		err = refuse(ReasonConflict, "session", "session_id", fmt.Sprint(uint64(id)), "a session of a worker, not a lease of keys")
	}
	return x, err
}

func noSession(id SessionID) *Refusal {
	return refuse(ReasonNotFound, "session", "session_id", fmt.Sprint(uint64(id)), "a session that has not ended")
}

func (s *State) leaveSession(c *LeaveSession) error {
	x, err := s.workersOwn(c.Session)
	if err != nil {
		return err
	}
	if x.State == SessionLeaving && x.Restart == c.Restart {
		return nil
	}
	x.State, x.Restart = SessionLeaving, c.Restart
	cause := CauseLeave
	if c.Restart {
		cause = CauseRestart
	}
	s.emitSession(KindSessionLeave, x, cause)
	return nil
}

func (s *State) keepAlive(c *KeepAlive, r *Result) {
	s.advance(c.Term, c.Elapsed)
	r.Sessions = make([]SessionResult, len(c.Sessions))
	for i, id := range c.Sessions {
		x, err := s.unbarred(id)
		if err != nil {
			r.Sessions[i].Err = err
			continue
		}
		x.Renewal, x.renewed = s.index, s.clock
		x.Deadline = max(x.Deadline, later(s.clock, x.TTL))
		if c.Term != s.term {
			s.refresh(x) // what had passed until now was not counted
		}
		r.Sessions[i].TTLMillis = x.TTL.Milliseconds()
	}
}
