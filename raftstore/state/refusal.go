package state

import (
	"errors"
	"fmt"
	"strings"
)

// Reason is a stable word for why something was refused. It is the same word
// in ErrorDetail.reason of the API.
type Reason string

// The reasons of the state machine.
const (
	ReasonInvalid        Reason = "invalid"           // a field's value is outside its limit
	ReasonNotFound       Reason = "not_found"         // no such keyspace, partition, session or worker
	ReasonExists         Reason = "exists"            // the name is taken
	ReasonConflict       Reason = "conflict"          // a condition of the command does not hold
	ReasonStaleToken     Reason = "stale_token"       // the lease has another token
	ReasonNotHolder      Reason = "not_holder"        // the session does not hold the lease
	ReasonIncarnation    Reason = "incarnation"       // the worker's incarnation has moved on
	ReasonSuperseded     Reason = "superseded"        // a newer session of the worker exists
	ReasonEvicted        Reason = "evicted"           // an operator barred the session
	ReasonStrict         Reason = "strict"            // a strict lease ends by release or expiry only
	ReasonRestored       Reason = "restored"          // leases of before the restore may still be believed in
	ReasonVoidTerm       Reason = "void_term"         // the leader that proposed it has been deposed
	ReasonTokensSpent    Reason = "tokens_spent"      // the counter has reached MaxToken
	ReasonUnknownOutcome Reason = "unknown_outcome"   // a retry of a request seen before
	ReasonDeleting       Reason = "deleting"          // the keyspace is being deleted
	ReasonCompacted      Reason = "compacted"         // events before a revision are gone
	ReasonFeature        Reason = "feature"           // not every server of the cluster knows it yet
	ReasonNumbersSpent   Reason = "numbers_spent"     // a sequence has reached MaxSequence
	ReasonDenied         Reason = "permission_denied" // somebody else has it
)

// Refusal says what was refused and why, in terms its sender can act on.
type Refusal struct {
	Reason Reason
	What   string // the command or noun, e.g. "keyspace"
	Field  string // the field at fault, if one is
	Value  string // its value, shortened to 64 bytes
	Limit  string // what is allowed
	// Token and Owner are the current ones where a lease is concerned.
	Token Token
	Owner string
	// Revision is the oldest one that can be resumed from (ReasonCompacted).
	Revision uint64
}

// Error names the field, the value and the limit.
func (r *Refusal) Error() string {
	var b strings.Builder
	b.WriteString(r.What)
	if r.Field != "" {
		fmt.Fprintf(&b, " %s %q", r.Field, r.Value)
	}
	fmt.Fprintf(&b, ": %s", strings.ReplaceAll(string(r.Reason), "_", " "))
	if r.Limit != "" {
		fmt.Fprintf(&b, ": %s", r.Limit)
	}
	if r.Owner != "" {
		fmt.Fprintf(&b, " (held by %s, token %d)", r.Owner, r.Token)
	} else if r.Token != 0 {
		fmt.Fprintf(&b, " (token %d)", r.Token)
	}
	return b.String()
}

// Is makes errors.Is(err, &Refusal{Reason: …}) match by reason alone.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Reason == r.Reason && t.What == ""
}

// ReasonOf returns the reason of a refusal anywhere in err's chain, or "".
func ReasonOf(err error) Reason {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}
