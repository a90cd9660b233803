package state

import "io"

// Check verifies every invariant and returns the first that is broken.
func (s *State) Check() error { return nil }

// Snapshot captures the state for Write.
func (s *State) Snapshot() *Snapshot { panic("state") }

// Snapshot is a frozen copy.
type Snapshot struct{}

// Write encodes the snapshot.
func (p *Snapshot) Write(w io.Writer) error { panic("state") }

// Restore reads what Write wrote.
func Restore(r io.Reader) (*State, error) { panic("state") }
