package fence

import (
	"context"
	"errors"
	"sync"
)

// Guard is a resource's side of a claim. It is safe for concurrent use.
type Guard interface {
	// Claim writes the tokens of new leases to the resource, before their
	// owner works. Each stamp stands for itself: those that [Check] refuses
	// come back in a *ClaimError, the others have been accepted. Any other
	// error (resource unreachable, ctx over) leaves the outcome of every
	// stamp unknown; claiming them again with the same owner is harmless.
	Claim(ctx context.Context, stamps []Stamp) error
}

// Counter hears of each decision of a guard, for metrics and alerts. Its
// methods must not block and are called concurrently.
type Counter interface {
	// FencingChecked is told how many stamps were compared, accepted or not.
	FencingChecked(n int)
	// FencingRejected is told of each refusal, with ReasonStale or
	// ReasonOtherOwner.
	FencingRejected(reason string)
}

// Tally is a Counter that adds up. The zero Tally is ready. It is safe for
// concurrent use.
type Tally struct {
	mu                        sync.Mutex // guards the rest
	checks, stale, otherOwner uint64
}

// FencingChecked implements Counter.
func (t *Tally) FencingChecked(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checks += uint64(n)
}

// FencingRejected implements Counter.
func (t *Tally) FencingRejected(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if reason == ReasonOtherOwner {
		t.otherOwner++
		return
	}
	t.stale++
}

// Checks is the number of stamps compared so far.
func (t *Tally) Checks() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.checks
}

// Rejections is the number of refusals so far, for any reason.
func (t *Tally) Rejections() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stale + t.otherOwner
}

// Stale is the number of refusals with ReasonStale.
func (t *Tally) Stale() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stale
}

// OtherOwner is the number of refusals with ReasonOtherOwner.
func (t *Tally) OtherOwner() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.otherOwner
}

// Count tells c about a decision over n stamps that ended with err, which may
// be nil, a *StaleError or a *ClaimError. Other errors decided nothing and are
// not counted. A nil Counter is allowed. It is for the authors of guards.
func Count(c Counter, n int, err error) {
	if c == nil {
		return
	}
	var (
		stale *StaleError
		claim *ClaimError
	)
	switch {
	case err == nil:
		c.FencingChecked(n)
	case errors.As(err, &claim):
		c.FencingChecked(n)
		for _, r := range claim.Refused {
			c.FencingRejected(r.Reason)
		}
	case errors.As(err, &stale):
		c.FencingChecked(n)
		c.FencingRejected(stale.Reason)
	}
}
