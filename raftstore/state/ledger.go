package state

import (
	"fmt"
)

// chunkEvents is how many events share one allocation of the ledger.
const chunkEvents = 1 << 10

type eventChunk [chunkEvents]Event

// ledger keeps the last LedgerSize events. Chunks are only ever appended to,
// and dropped whole from the front, so that a snapshot can hold on to them
// while events go on. Revisions are consecutive.
type ledger struct {
	chunks []*eventChunk
	first  uint64 // revision of the oldest event kept, less 1
	skip   int    // events of chunks[0] that have left
	count  int
}

// last is the revision of the newest event.
func (l *ledger) last() uint64 { return l.first + uint64(l.count) }

// add appends an event of the next revision for the caller to fill in.
func (l *ledger) add() *Event {
	if l.count == LedgerSize {
		l.first++
		l.count--
		if l.skip++; l.skip == chunkEvents {
			l.skip = 0
			l.chunks[0] = nil
			l.chunks = l.chunks[1:]
		}
	}
	at := l.skip + l.count
	if at/chunkEvents == len(l.chunks) {
		l.chunks = append(l.chunks, new(eventChunk))
	}
	l.count++
	e := &l.chunks[at/chunkEvents][at%chunkEvents]
	e.Revision = l.last()
	return e
}

// at returns the i-th event kept.
func (l *ledger) at(i int) *Event {
	i += l.skip
	return &l.chunks[i/chunkEvents][i%chunkEvents]
}

func (l *ledger) read(after uint64, limit int, buf []Event) ([]Event, error) {
	if after < l.first || after > l.last() {
		resume := l.first
		if after > l.last() {
			resume = l.last()
		}
		return buf, &Refusal{
			Reason: ReasonCompacted, What: "events", Field: "after", Value: fmt.Sprint(after),
			Limit: fmt.Sprintf("%d to %d", l.first, l.last()), Revision: resume,
		}
	}
	from := int(after - l.first)
	for i := from; i < l.count && i-from < limit; i++ {
		buf = append(buf, *l.at(i))
	}
	return buf, nil
}

// emit appends an event with what every one has. The pointer is for filling
// in the rest at once.
func (s *State) emit(kind Kind, cause Cause) *Event {
	e := s.ledger.add()
	e.Index, e.Wall, e.Kind, e.Cause = s.index, s.wall, kind, cause
	return e
}

func (s *State) emitSession(kind Kind, x *Session, cause Cause) *Event {
	e := s.emit(kind, cause)
	e.Session, e.Worker = x.ID, x.Worker
	return e
}

func (s *State) emitLease(kind Kind, k *Keyspace, p uint32, x *Session, cause Cause) *Event {
	e := s.emit(kind, cause)
	e.Session, e.Worker, e.Keyspace, e.Partition, e.Token = x.ID, x.Worker, k.ID, p, k.token[p]
	return e
}

func (s *State) emitKeyspace(kind Kind, k *Keyspace, cause Cause) {
	s.emit(kind, cause).Keyspace = k.ID
}
