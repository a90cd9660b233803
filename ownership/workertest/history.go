package workertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Kinds of events, in the words that the product uses.
const (
	KindGrant         = "grant"
	KindDrain         = "drain"
	KindRelease       = "release"
	KindRevoke        = "revoke"
	KindExpire        = "expire" // of a lease, with its session
	KindSessionOpen   = "session_open"
	KindSessionLeave  = "session_leave"
	KindSessionClose  = "session_close"
	KindSessionExpire = "session_expire"
	KindSessionBar    = "session_bar" // superseded or evicted
	KindTokenRaise    = "token_raise" // a resource had seen a higher token
)

// Causes of the events that end a lease, in the words that the product uses.
// Those of a release are what the worker said.
const (
	CauseDrained      = "drained"       // the handler returned nil after Draining
	CauseYield        = "yield"         // the handler returned nil by itself
	CauseFailed       = "failed"        // error or panic: counts against the partition
	CauseEnded        = "ended"         // the context had ended first
	CauseClaimRefused = "claim_refused" // the resource has seen a higher token
	CauseRefused      = "refused"       // never started
	CauseTimeout      = "timeout"       // the time to drain was over, in a fenced keyspace
	CauseOperator     = "operator"      // Drain or Revoke
	CauseExpired      = "expired"
	CauseSuperseded   = "superseded"
	CauseEvicted      = "evicted"
)

// Event is one line of what happened to sessions and leases.
type Event struct {
	At     time.Duration // since NewServer
	Kind   string
	Worker string

	Keyspace  string      // of an event of a lease
	Partition uint32      // then
	Token     fence.Token // then, and of KindTokenRaise

	Cause string // "" if there is nothing to say
	Error string // of a release: the first 256 bytes of what the worker said
}

// String is for messages: "1.5s release orders/3 token 8193 of w1 (drained)".
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", e.At, e.Kind)
	if e.Keyspace != "" {
		fmt.Fprintf(&b, " %s/%d", e.Keyspace, e.Partition)
	}
	if e.Token != 0 {
		fmt.Fprintf(&b, " token %d", e.Token)
	}
	if e.Worker != "" {
		b.WriteString(" of " + e.Worker)
	}
	if e.Cause != "" {
		b.WriteString(" (" + e.Cause + ")")
	}
	if e.Error != "" {
		b.WriteString(": " + e.Error)
	}
	return b.String()
}

// History lists what has happened so far, oldest first.
func (s *Server) History() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// Owner tells who holds a partition, and under which token. ok is false if
// nobody does.
func (s *Server) Owner(keyspace string, partition uint32) (worker string, token fence.Token, ok bool) {
	s.t.Helper()
	s.mu.Lock()
	sp := s.spaceLocked(keyspace)
	s.mu.Unlock()
	s.checkPartition(sp, keyspace, partition)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := sp.owners[partition]
	if l == nil {
		return "", 0, false
	}
	return l.session.worker, l.token, true
}

// recordLocked appends to the history and wakes those who wait.
func (s *Server) recordLocked(e Event) {
	e.At = time.Since(s.began)
	s.index++
	s.history = append(s.history, e)
	s.changedLocked()
}
