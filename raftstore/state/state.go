package state

import (
	"io"
	"iter"
	"time"
)

// State is the whole replicated state. New returns an empty one.
type State struct{}

// Keyspace is a read-only view of one keyspace and its dense lease table.
// The pointer stays valid while the reader holds raftstore's read lock.
type Keyspace struct {
	ID         KeyspaceID
	Name       string
	Partitions uint32
	Settings   Settings
	Deleting   bool
	CreatedAt  Clock
	// LastJoin is when a session last joined it, for the cold start.
	LastJoin Clock
	// Counts, kept up with every change.
	Owned, Draining, Quarantined int
}

// Lease is the present state of one partition.
type Lease struct {
	Token    Token     // of the last grant; 0: never granted
	Session  SessionID // 0: unowned
	Draining bool
	Since    Clock // last change of owner, to the second
}

// Move is a drain in progress. There is one per draining lease.
type Move struct {
	Partition uint32
	Token     Token
	Target    SessionID // 0: release only
	Reserve   bool
	Deadline  Clock
	Started   Clock
	Cause     Cause
}

// Slot is what a worker id held when its session ended, kept for it.
type Slot struct {
	Worker     string
	Zone       string
	Partitions []uint32
	// Reserved partitions are not granted to others before Until. A slot that
	// is not reserved is a preference until Until.
	Reserved bool
	Until    Clock
}

// Suspect is a partition with failures against it.
type Suspect struct {
	Partition   uint32
	Workers     []string // distinct workers that failed, at most 3 kept
	Failures    int
	RetryAt     Clock // not granted before
	Quarantined bool
	LastError   string
}

// SessionState is where a session stands.
type SessionState uint8

// A barred session (superseded, evicted) can neither renew nor be granted to.
const (
	SessionLive       SessionState = 1
	SessionLeaving    SessionState = 2
	SessionSuperseded SessionState = 3
	SessionEvicted    SessionState = 4
)

// Session is a read-only view of one session.
type Session struct {
	ID          SessionID
	Worker      string
	Incarnation uint64
	State       SessionState
	Restart     bool // leaving, and coming back
	TTL         time.Duration
	Keyspaces   []KeyspaceID
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
}

// Worker is what is remembered of a worker id across its sessions.
type Worker struct {
	ID          string
	Incarnation uint64    // of the newest session
	Session     SessionID // the newest one; 0 once it has ended
	Drained     bool
	// Opens are the clock readings of the last sessions opened, at most 3,
	// oldest first: a worker with 3 in 5 minutes is unstable.
	Opens []Clock
}

// New returns an empty state, before Bootstrap.
func New() *State { return &State{} }

// Apply carries out one log entry. It never fails as a whole.
func (s *State) Apply(index, term uint64, b *Batch) []Result { panic("state: apply") }

// ClusterID is empty before Bootstrap.
func (s *State) ClusterID() string { panic("state") }

// Applied returns the last applied index and its term.
func (s *State) Applied() (index, term uint64) { panic("state") }

// Revision is that of the newest event.
func (s *State) Revision() uint64 { panic("state") }

// Now reads the logical clock.
func (s *State) Now() Clock { panic("state") }

// LastToken is the highest token granted or raised to so far.
func (s *State) LastToken() Token { panic("state") }

// Leader returns what the latest Announce said.
func (s *State) Leader() (Server, bool) { panic("state") }

// Servers returns every server that has announced itself, ordered by id.
func (s *State) Servers() []Server { panic("state") }

// Keyspace looks up by id.
func (s *State) Keyspace(id KeyspaceID) (*Keyspace, bool) { panic("state") }

// KeyspaceByName looks up by name, also one that is being deleted.
func (s *State) KeyspaceByName(name string) (*Keyspace, bool) { panic("state") }

// Keyspaces yields all keyspaces by id.
func (s *State) Keyspaces() iter.Seq[*Keyspace] { panic("state") }

// Session looks up by id.
func (s *State) Session(id SessionID) (*Session, bool) { panic("state") }

// Sessions yields all sessions by id.
func (s *State) Sessions() iter.Seq[*Session] { panic("state") }

// SessionCount is the number of sessions.
func (s *State) SessionCount() int { panic("state") }

// Worker looks up by worker id.
func (s *State) Worker(id string) (*Worker, bool) { panic("state") }

// Workers yields all remembered workers by id.
func (s *State) Workers() iter.Seq[*Worker] { panic("state") }

// Held yields, in no particular but deterministic order, the partitions a
// session holds in a keyspace. It costs O(held).
func (s *State) Held(id SessionID, ks KeyspaceID) iter.Seq[uint32] { panic("state") }

// HeldCount is the number of them, O(1).
func (s *State) HeldCount(id SessionID, ks KeyspaceID) int { panic("state") }

// Events appends to buf at most max events after revision and returns it. A
// revision that has left the ledger gives a *Refusal with ReasonCompacted.
func (s *State) Events(after uint64, max int, buf []Event) ([]Event, error) { panic("state") }

// Lease returns the state of partition p, which must be below Partitions.
func (k *Keyspace) Lease(p uint32) Lease { panic("state") }

// Moves yields the drains in progress by partition.
func (k *Keyspace) Moves() iter.Seq[Move] { panic("state") }

// Move returns the drain in progress of one partition.
func (k *Keyspace) Move(p uint32) (Move, bool) { panic("state") }

// Slots yields what is kept for worker ids that went, by worker id.
func (k *Keyspace) Slots() iter.Seq[Slot] { panic("state") }

// Suspects yields partitions with failures, by number.
func (k *Keyspace) Suspects() iter.Seq[Suspect] { panic("state") }

// Suspect returns the failures of one partition.
func (k *Keyspace) Suspect(p uint32) (Suspect, bool) { panic("state") }

// Check verifies every invariant and returns the first that is broken.
func (s *State) Check() error { panic("state") }

// AppendBatch appends the encoding of a batch, version byte first.
func AppendBatch(dst []byte, b *Batch) ([]byte, error) { panic("state") }

// DecodeBatch is the inverse of AppendBatch. Input is not trusted.
func DecodeBatch(src []byte) (*Batch, error) { panic("state") }

// Snapshot captures the state for Write. It copies what is dense and must be
// called while nothing applies; Write may run while applies go on.
func (s *State) Snapshot() *Snapshot { panic("state") }

// Snapshot is a frozen copy.
type Snapshot struct{}

// Write encodes the snapshot with a header and a CRC-32C at the end.
func (p *Snapshot) Write(w io.Writer) error { panic("state") }

// Restore reads what Write wrote and checks sum and invariants.
func Restore(r io.Reader) (*State, error) { panic("state") }
