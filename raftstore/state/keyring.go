package state

import (
	"bytes"
	"fmt"
)

// MaxGossipKeys is how many keys a keyring has at most: the primary one, and
// those that come and go with it.
const MaxGossipKeys = 4

// Keyring are the keys that encrypt gossip. The zero one says nothing: servers
// use what they were started with.
type Keyring struct {
	Version uint64   // how often it was set
	Keys    [][]byte // the first is the primary one; must not be changed
}

// String tells nothing of the keys.
func (k Keyring) String() string { return fmt.Sprintf("%d keys, version %d", len(k.Keys), k.Version) }

// Keyring is the present one.
func (s *State) Keyring() Keyring { return s.keyring }

func (s *State) setKeyring(c *SetKeyring) error {
	if now := s.keyring.Version; c.Version != now {
		return refuse(ReasonConflict, "keyring", "version", fmt.Sprint(c.Version), fmt.Sprintf("%d, the present one", now))
	}
	if err := validateKeyring(c.Keys); err != nil {
		return err
	}
	keys := make([][]byte, len(c.Keys))
	for i, key := range c.Keys {
		keys[i] = bytes.Clone(key)
	}
	s.keyring = Keyring{Version: c.Version + 1, Keys: keys}
	s.emit(KindKeyring, CauseNone).Token = Token(s.keyring.Version)
	return nil
}

// validateKeyring names keys by their places, never by what they are.
func validateKeyring(keys [][]byte) error {
	const what = "keyring"
	if n := len(keys); n == 0 || n > MaxGossipKeys {
		return refuse(ReasonInvalid, what, "keys", fmt.Sprint(n), fmt.Sprintf("1 to %d keys", MaxGossipKeys))
	}
	for i, key := range keys {
		switch len(key) {
		case 16, 24, 32:
		default:
			return refuse(ReasonInvalid, what, "keys", fmt.Sprintf("key %d of %d bytes", i+1, len(key)), "16, 24 or 32 bytes")
		}
		for j, other := range keys[:i] {
			if bytes.Equal(other, key) {
				return refuse(ReasonInvalid, what, "keys", fmt.Sprintf("keys %d and %d are the same", j+1, i+1), "each key once")
			}
		}
	}
	return nil
}
