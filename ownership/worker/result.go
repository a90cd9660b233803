package worker

import (
	"errors"
	"log/slog"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// result is what a handler's return says about its partition.
type result struct {
	err error
	// broken: it panicked or ended its goroutine, which no end of the lease
	// excuses.
	broken bool
	// fenced: the resource refused the handler's write under this lease's
	// token. Somebody newer has been there, so that is no fault of the partition.
	fenced  bool
	current fence.Token // then: the token that the resource has seen; 0: not known
	// end: the error tells of an end of the lease. The handler may have seen it
	// in Check before the loop has carried it out, and even when the loop never
	// will, because a keep-alive was acknowledged between the two.
	end error
	// unsure: the handler gave up over ErrUnconfirmed.
	unsure bool
}

// ends are the errors that say that a lease is over.
var ends = []error{ErrExpired, ErrRevoked, ErrDrainTimeout, ErrSuperseded, ErrEvicted, ErrShutdown}

func resultOf(l *Lease, err error) result {
	r := result{err: err}
	if err == nil {
		return r
	}
	var panicked *PanicError
	if r.broken = errors.As(err, &panicked) || errors.Is(err, errNotReturned); r.broken {
		return r
	}
	if errors.Is(err, fence.ErrStale) {
		var stale *fence.StaleError
		known := errors.As(err, &stale)
		// A refusal of another token than the lease's is a handler that mixes
		// up its tokens: it would be refused for ever.
		r.fenced = !known || stale.Token == 0 || stale.Token == l.token
		if r.fenced && known {
			r.current = stale.Current
		}
		if r.fenced {
			return r
		}
	}
	for _, end := range ends {
		if errors.Is(err, end) {
			r.end = end
			return r
		}
	}
	r.unsure = errors.Is(err, ErrUnconfirmed)
	return r
}

// failed reports whether the return counts against the partition. Once the
// context has ended a handler may return what it likes, but not panic.
func (r *result) failed(live bool) bool {
	return r.broken || live && r.err != nil && !r.fenced && r.end == nil && !r.unsure
}

// label is the word for the return in the metrics.
func (r *result) label(live bool) string {
	switch {
	case r.failed(live):
		return "failed"
	case r.fenced:
		return "fenced"
	}
	return "done"
}

// returned takes a handler's return.
func (c *core) returned(l *Lease, r result, now reading) {
	s := &l.slot
	if s.live && c.session.lapsed(now.boot) {
		c.expire(now) // the deadline came first, and the loop is late to see it
	}
	if s.live {
		c.out.end = append(c.out.end, ended{l, now.boot})
	}
	s.phase = phaseOver
	c.running--
	l.unready()
	delete(c.ending, l)
	c.sayReturned(l, &r)
	if r.fenced && s.live && r.current > l.token {
		c.report(r.current) // before the release: the next grant has to be above it
	}
	sp := l.space
	if sp.old[l.partition] == l {
		delete(sp.old, l.partition)
		if next := sp.held[l.partition]; next != nil {
			c.tryStart(next, now)
		}
		return
	}
	cause, end := leaseholdv1.ReleaseCause_RELEASE_CAUSE_ENDED, ErrReturned
	text := ""
	switch {
	case r.failed(s.live):
		cause, text = leaseholdv1.ReleaseCause_RELEASE_CAUSE_FAILED, r.err.Error()
	case !s.live:
	case r.fenced:
		cause, text, end = leaseholdv1.ReleaseCause_RELEASE_CAUSE_CLAIM_REFUSED, r.err.Error(), ErrRevoked
	case r.end != nil:
		end = r.end
	case s.draining || c.leaving.on:
		cause = leaseholdv1.ReleaseCause_RELEASE_CAUSE_DRAINED
	default:
		cause = leaseholdv1.ReleaseCause_RELEASE_CAUSE_YIELD
	}
	c.endLive(l, end, now)
	c.release(l, cause, text)
}

// sayReturned logs the returns that somebody should know of.
func (c *core) sayReturned(l *Lease, r *result) {
	args := []any{"keyspace", l.space.name, "partition", l.partition, "token", uint64(l.token), "cause", r.err}
	switch {
	case r.failed(l.slot.live):
		var panicked *PanicError
		if errors.As(r.err, &panicked) {
			args = append(args, "stack", string(panicked.Stack))
		}
		c.log(slog.LevelError, "handler failed", args...)
	case r.fenced && errors.Is(r.err, fence.ErrOtherOwner):
		// A token is issued once: somebody has made this one up.
		c.log(slog.LevelError, "fenced: the resource has seen the lease's token with another owner", args...)
	case r.fenced:
		c.log(slog.LevelWarn, "fenced: the resource has seen a newer token than the lease's", append(args, "current", uint64(r.current))...)
	}
}

// report tells the servers of a token that a resource has seen, so that they
// grant higher ones: after a cluster was wiped theirs may be below it. What is
// lost on the way is found again with the next grant.
func (c *core) report(t fence.Token) {
	c.send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_ReportToken{
		ReportToken: &leaseholdv1.ReportToken{Token: uint64(t)},
	}})
}
