package fence

import (
	"context"
	"errors"
	"sync"
)

// Memory is a Guard that keeps its marks in memory: for tests, and for a
// resource that lives inside one process and as long as it. Its size is
// bounded by the partitions it has seen. It is safe for concurrent use.
type Memory struct {
	counter Counter

	mu    sync.Mutex // guards the map, never held while a write runs
	marks map[Key]*memoryMark
}

type memoryMark struct {
	mu   sync.Mutex // guards mark, and is held while Do's write runs
	mark Mark
}

// NewMemory returns a guard that has seen nothing. The counter may be nil.
func NewMemory(c Counter) *Memory {
	return &Memory{counter: c, marks: make(map[Key]*memoryMark)}
}

func (m *Memory) record(k Key) *memoryMark {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.marks[k]
	if r == nil {
		r = &memoryMark{}
		m.marks[k] = r
	}
	return r
}

// Claim implements Guard.
func (m *Memory) Claim(ctx context.Context, stamps []Stamp) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := Validate(stamps); err != nil {
		return err
	}
	var refused []*StaleError
	for _, s := range Sorted(stamps) {
		var stale *StaleError
		if errors.As(m.record(s.Key()).do(s, nil), &stale) {
			refused = append(refused, stale)
		}
	}
	var err error
	if len(refused) > 0 {
		err = &ClaimError{Refused: refused}
	}
	Count(m.counter, len(stamps), err)
	return err
}

// Do checks the stamp and, if it is accepted, runs write before any other
// stamp of the same partition is looked at, so that a newer claim waits for a
// write in flight and an older write never follows it. It returns the refusal
// (a *StaleError) or what write returned. write must not call the guard for
// the same partition.
func (m *Memory) Do(s Stamp, write func() error) error {
	if err := s.Validate(); err != nil {
		return err
	}
	var result error
	err := m.record(s.Key()).do(s, func() { result = write() })
	Count(m.counter, 1, err)
	if err != nil {
		return err
	}
	return result
}

// Seen returns the highest token accepted under a key and whose it is.
func (m *Memory) Seen(k Key) Mark {
	r := m.record(k)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mark
}

func (r *memoryMark) do(s Stamp, write func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := Check(r.mark, s); err != nil {
		return err
	}
	r.mark = Mark{Token: s.Token, Owner: s.Owner}
	if write != nil {
		write()
	}
	return nil
}
