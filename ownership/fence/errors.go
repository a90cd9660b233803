package fence

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels for errors.Is.
var (
	// ErrStale is matched by every refusal of a guard, whatever its reason.
	ErrStale = errors.New("stale fencing token")
	// ErrOtherOwner is matched by the refusals that should not happen: an
	// equal token from another owner. Treat it as an incident.
	ErrOtherOwner = errors.New("fencing token of another owner")
)

// Reasons of a refusal. They are stable words, also in metrics.
const (
	ReasonStale      = "stale"       // the resource has accepted a higher token
	ReasonOtherOwner = "other_owner" // the resource has seen this token with another owner
)

// StaleError says that a resource refused a stamp, and what it has seen
// instead. The write it guarded did not happen.
type StaleError struct {
	Stamp               // what was refused
	Current      Token  // the highest token accepted so far
	CurrentOwner string // and whose it was
	Reason       string // ReasonStale or ReasonOtherOwner
}

// Error names both tokens and both owners.
func (e *StaleError) Error() string {
	if e.Reason == ReasonOtherOwner {
		return fmt.Sprintf("write to %s refused: that token belongs to %s", e.Stamp, e.CurrentOwner)
	}
	return fmt.Sprintf("write to %s refused: the resource has seen token %d of %s", e.Stamp, e.Current, e.CurrentOwner)
}

// Is matches ErrStale always and ErrOtherOwner by reason.
func (e *StaleError) Is(target error) bool {
	return target == ErrStale || target == ErrOtherOwner && e.Reason == ReasonOtherOwner
}

// ClaimError says which stamps of a claim were refused. All others of the
// claim have been accepted.
type ClaimError struct {
	Refused []*StaleError // never empty
}

// Error names the first refusal and counts the rest.
func (e *ClaimError) Error() string {
	var b strings.Builder
	b.WriteString("claim partitions: ")
	if len(e.Refused) == 0 {
		b.WriteString("refused")
		return b.String()
	}
	b.WriteString(e.Refused[0].Error())
	if n := len(e.Refused) - 1; n > 0 {
		fmt.Fprintf(&b, " (and %d more)", n)
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As the single refusals.
func (e *ClaimError) Unwrap() []error {
	errs := make([]error, len(e.Refused))
	for i, r := range e.Refused {
		errs[i] = r
	}
	return errs
}
