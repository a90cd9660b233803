package server

import (
	"bytes"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// sightings are states as servers were seen in, by place in the log and server.
type sightings map[uint64]map[string][]byte

// sameState wants all servers to have the same state, byte for byte, at the
// same place in the log, and every invariant to hold in it. The log goes on
// meanwhile, so each is looked at until one place has been seen of all.
func (s *sim) sameState() {
	s.t.Helper()
	if err := s.compareStates(sightings{}); err != nil {
		s.fatalf("%v", err)
	}
	s.sameChecked++
}

func (s *sim) compareStates(seen sightings) error {
	limit := time.Now().Add(s.pace.of(10 * time.Second))
	for {
		all, err := s.lookAtStates(seen)
		if all || err != nil {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("not within %v: all servers were seen at one place of the log", s.pace.of(10*time.Second))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lookAtStates notes the state of each server, and tells whether all have been
// seen in the same.
func (s *sim) lookAtStates(seen sightings) (all bool, err error) {
	for _, x := range s.servers {
		var index uint64
		var body bytes.Buffer
		var err error
		x.running().store.View(func(st *state.State) {
			index, _ = st.Applied()
			if seen[index][x.id] != nil {
				return
			}
			if err = st.Check(); err == nil {
				err = st.Snapshot().Write(&body)
			}
		})
		if err != nil {
			return false, fmt.Errorf("state of server %s at index %d: %w", x.id, index, err)
		}
		if body.Len() == 0 {
			continue
		}
		if all, err := seen.add(index, x.id, body.Bytes(), len(s.servers)); all || err != nil {
			return all, err
		}
	}
	return false, nil
}

// add notes what one server has at a place, and tells whether all servers have
// been seen there.
func (seen sightings) add(index uint64, id string, body []byte, servers int) (all bool, err error) {
	if seen[index] == nil {
		seen[index] = map[string][]byte{}
	}
	for other, state := range seen[index] {
		if !bytes.Equal(state, body) {
			return false, fmt.Errorf("servers %s and %s differ at index %d", id, other, index)
		}
	}
	seen[index][id] = body
	return len(seen[index]) == servers, nil
}
