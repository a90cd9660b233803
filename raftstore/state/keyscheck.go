package state

import (
	"errors"
	"fmt"
	"time"
)

// checkLease is checkSession for one without a worker.
func (s *State) checkLease(x *Session) error {
	switch {
	case x.ID == 0 || x.seat != 0 || x.record != nil || x.State != SessionLive && x.State != SessionEvicted || x.Held != 0 || len(x.Keyspaces)+len(x.held) != 0:
		return errors.New("a lease of keys takes part in keyspaces")
	case x.Granted() < MinLeaseTTL || x.Granted() > MaxLeaseTTL || x.TTL%time.Second != 0:
		return fmt.Errorf("ttl is %s", x.TTL)
	case x.renewed > s.clock || x.Opened > x.renewed || x.Opened < 0 || x.Renewal > s.index:
		return errors.New("was renewed in the future")
	case x.Deadline != later(x.renewed, x.TTL):
		return fmt.Errorf("deadline %s does not follow from renewal at %s", x.Deadline, x.renewed)
	}
	return nil
}

// checkKeys: the store is sound, every key of a session is in its index and
// nothing else is, and sequences and alarms are within their limits.
func (s *State) checkKeys() error {
	if err := s.keys.Check(); err != nil {
		return err
	}
	attached, indexed := 0, 0
	for kv := range s.keys.Keys() {
		if kv.Lease == 0 {
			continue
		}
		x, ok := s.sessions[SessionID(kv.Lease)]
		if !ok {
			return fmt.Errorf("key %.64q is attached to session %d, which does not exist", kv.Key, kv.Lease)
		}
		if _, ok := x.keys[string(kv.Key)]; !ok {
			return fmt.Errorf("key %.64q is not in the index of session %d", kv.Key, kv.Lease)
		}
		attached++
	}
	for _, x := range s.sessionOrder {
		if len(x.keys) > MaxSessionKeys {
			return fmt.Errorf("session %d has %d keys", x.ID, len(x.keys))
		}
		indexed += len(x.keys)
	}
	if attached != indexed {
		return fmt.Errorf("%d keys are attached to sessions, %d are in their indices", attached, indexed)
	}
	if len(s.sequences) > MaxSequences {
		return fmt.Errorf("%d sequences", len(s.sequences))
	}
	for _, prefix := range sortedKeys(s.sequences) {
		if n := s.sequences[prefix]; prefix == "" || len(prefix) > MaxPrefixLen || n == 0 || n > MaxSequence {
			return fmt.Errorf("sequence %.64q is at %d", prefix, n)
		}
	}
	for i, m := range s.alarms {
		if m == 0 || i >= MaxServers || i > 0 && s.alarms[i-1] >= m {
			return fmt.Errorf("alarm of member %d is out of order", m)
		}
	}
	return nil
}
