package worker

import "time"

// maxUnanswered bounds what is remembered of keep-alives without an answer.
const maxUnanswered = 64

// session is the arithmetic of one session: which keep-alives are out, and
// until when the last acknowledged one lets the worker work. It is pure; the
// core feeds it with clock readings.
type session struct {
	grace time.Duration // Config.StopGrace

	id     uint64
	opened bool
	ttl    time.Duration

	seq        uint64
	unanswered []sentKeepAlive // oldest first

	confirmed reading       // when the newest acknowledged keep-alive was sent
	until     time.Duration // when contexts must end, on the boot clock
	nextAt    time.Duration // when the next regular keep-alive is due
}

type sentKeepAlive struct {
	seq uint64
	at  reading
}

// marginOf is what is taken off the TTL for differing clock rates, a late poll
// and the cancelling of contexts.
func marginOf(ttl time.Duration) time.Duration {
	return max(ttl/20, 250*time.Millisecond)
}

// intervalOf is the time between keep-alives.
func intervalOf(ttl time.Duration) time.Duration { return ttl / 4 }

// begin forgets the session before and prepares another.
func (s *session) begin(id uint64) {
	*s = session{grace: s.grace, id: id, unanswered: s.unanswered[:0]}
}

// open notes that the servers have opened the session. An open renews like a
// keep-alive, and counts from when the first request under this id was sent,
// however many were needed and however late the answer came.
func (s *session) open(sent reading, ttl time.Duration) {
	s.opened = true
	s.confirm(sent, ttl)
}

// number notes a keep-alive as sent now and returns its number.
func (s *session) number(now reading) uint64 {
	s.seq++
	if len(s.unanswered) == maxUnanswered {
		// Keep the oldest: it tells for how long there has been no answer.
		s.unanswered = append(s.unanswered[:1], s.unanswered[2:]...)
	}
	s.unanswered = append(s.unanswered, sentKeepAlive{seq: s.seq, at: now})
	return s.seq
}

// ack takes an acknowledgement. It reports when the acknowledged keep-alive was
// sent; ok is false for a number that is unknown or has been answered.
func (s *session) ack(seq uint64, ttl time.Duration) (sent reading, ok bool) {
	for i, k := range s.unanswered {
		if k.seq != seq {
			continue
		}
		// Older ones can prove nothing more.
		s.unanswered = append(s.unanswered[:0], s.unanswered[i+1:]...)
		s.confirm(k.at, ttl)
		return k.at, true
	}
	return reading{}, false
}

// confirm moves the deadline, never back: the servers do not move theirs back
// either when a later, shorter TTL renews.
func (s *session) confirm(sent reading, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	if s.ttl == 0 || ttl < s.ttl {
		s.ttl = ttl
	}
	s.until = max(s.until, sent.boot+ttl-marginOf(ttl)-s.grace)
	if sent.boot >= s.confirmed.boot {
		s.confirmed = sent
	}
}

// shorten takes the TTL that joining another keyspace left.
func (s *session) shorten(ttl time.Duration) {
	if ttl > 0 && ttl < s.ttl {
		s.nextAt -= intervalOf(s.ttl) - intervalOf(ttl)
		s.ttl = ttl
	}
}

// silence is for how long keep-alives have been without an answer.
func (s *session) silence(now time.Duration) time.Duration {
	if len(s.unanswered) == 0 {
		return 0
	}
	return now - s.unanswered[0].at.boot
}

// overdue reports whether nothing has been confirmed for half the TTL.
func (s *session) overdue(now time.Duration) bool {
	return s.opened && now-s.confirmed.boot > s.ttl/2
}

// lapsed reports whether the deadline has passed.
func (s *session) lapsed(now time.Duration) bool { return now >= s.until }
