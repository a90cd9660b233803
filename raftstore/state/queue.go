package state

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

const (
	// MaxSequence is the highest number of a sequence: what 19 digits and a
	// signed number of 64 bits hold.
	MaxSequence uint64 = math.MaxInt64
	// MaxSequences bounds how many prefixes have numbers; they are kept for ever.
	MaxSequences = 100_000
	// MaxPrefixLen is that of a sequence's prefix, in bytes.
	MaxPrefixLen = 512
	// maxPassed bounds how many keys that were put by hand a sequence passes at
	// a time.
	maxPassed = 10_000
)

// QueueKey is the key under which a session stands in the queue of that name.
func QueueKey(name []byte, id SessionID) []byte {
	key := append(bytes.Clone(name), '/')
	return strconv.AppendInt(key, int64(id), 16)
}

// SequenceKey is the key of a number of a sequence.
func SequenceKey(prefix []byte, number uint64) []byte {
	return fmt.Appendf(bytes.Clone(prefix), "%019d", number)
}

// enqueue puts a session into a queue once. The token is drawn by the entry
// that creates the key, so that of two keys the later one has the higher token.
func (s *State) enqueue(c *Enqueue, r *Result) {
	if !s.attachable(int64(c.Session)) {
		r.Err = mvcc.ErrLeaseNotFound
		return
	}
	put := &mvcc.PutOp{Key: QueueKey(c.Name, c.Session), Value: c.Value, Lease: int64(c.Session)}
	before := s.keys.Get(put.Key)
	if before != nil && (!c.Update || bytes.Equal(before.Value, c.Value)) {
		r.Ticket = &Ticket{KV: before}
		return
	}
	if r.Err = s.put(put, before == nil); r.Err == nil {
		r.Ticket = &Ticket{KV: s.keys.Get(put.Key), Created: before == nil}
	}
}

// put writes one key, with a token of its own if it is to draw one. A token is
// spent only when the key has been written.
func (s *State) put(p *mvcc.PutOp, draw bool) error {
	t := &mvcc.Txn{Success: []mvcc.Op{{Put: p}}}
	if err := s.checkAttached(t); err != nil {
		return err
	}
	last, token := s.lastToken, Token(0)
	if draw {
		var err error
		if token, err = s.nextToken(); err != nil {
			return err
		}
	}
	if _, err := s.change(t, token); err != nil {
		s.lastToken = last
		return err
	}
	return nil
}

// sequence creates a key under the next number of its prefix.
func (s *State) sequence(c *Sequence, r *Result) {
	const what = "sequence"
	counter, known := s.sequences[string(c.Prefix)]
	switch {
	case len(c.Prefix) == 0 || len(c.Prefix) > MaxPrefixLen:
		r.Err = refuse(ReasonInvalid, what, "prefix", printable(string(c.Prefix)), fmt.Sprintf("1 to %d bytes, not %d", MaxPrefixLen, len(c.Prefix)))
		return
	case !known && len(s.sequences) >= MaxSequences:
		r.Err = refuse(ReasonInvalid, what, "prefix", printable(string(c.Prefix)), fmt.Sprintf("one of the %d prefixes that have numbers: there can be no more", MaxSequences))
		return
	case c.Session != 0 && !s.attachable(int64(c.Session)):
		r.Err = mvcc.ErrLeaseNotFound
		return
	}
	put := &mvcc.PutOp{Value: c.Value, Lease: int64(c.Session)}
	n := max(counter, c.After)
	for passed := 0; put.Key == nil || s.keys.Get(put.Key) != nil; passed++ {
		switch {
		case n >= MaxSequence:
			r.Err = refuse(ReasonNumbersSpent, what, "after", fmt.Sprint(n), fmt.Sprintf("numbers of at most %d", MaxSequence))
			return
		case passed > maxPassed:
			r.Err = refuse(ReasonConflict, what, "after", fmt.Sprint(c.After), fmt.Sprintf("above the keys that others have put, of which %d follow", passed))
			return
		}
		n++
		put.Key = SequenceKey(c.Prefix, n)
	}
	if r.Err = s.put(put, false); r.Err == nil {
		s.sequences[string(c.Prefix)] = n
		r.Ticket = &Ticket{KV: s.keys.Get(put.Key), Created: true, Number: n}
	}
}
