package state

import (
	"fmt"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// The commands below are about who may do what. They need feature level 3, as do
// OpenSession and GrantLease with an Owner, and are refused with ReasonFeature
// below it.

// PutCredential adds a credential. Its id and its name must be free; the very
// same credential is found again (retry).
type PutCredential struct {
	Credential access.Credential
}

// RevokeCredential removes a credential and bars what its holder has opened: no
// session of theirs can renew or be granted to, their fenced leases are revoked
// at once and their strict ones last until released or expired, as with Evict;
// their leases of keys end with their TTL. Result.Credential and Result.Barred
// have the answer.
type RevokeCredential struct {
	ID string
}

// SetKeyring replaces the keys that encrypt gossip if the present version is
// still Version; the new one is one more. The first key is the primary one. Keys
// have 16, 24 or 32 bytes.
type SetKeyring struct {
	Version uint64
	Keys    [][]byte
}

// String tells nothing of the keys.
func (k *SetKeyring) String() string {
	return fmt.Sprintf("%d keys after version %d", len(k.Keys), k.Version)
}

// Needs is the feature level from which on a command may be in the log. Who
// proposes one below it would stop the servers that do not know it; commands on
// keys, which their API holds back itself, count as well.
func Needs(c Command) Feature {
	switch n := c.number(); {
	case n >= cmdOpenOwned && n <= cmdSetKeyring:
		return FeatureAccess
	case n >= cmdTransact && n <= cmdSetAlarm:
		return featureKeys
	}
	return 1
}

// Permits returns a *Refusal with ReasonFeature if a command needs a level that
// the cluster has not reached.
func (s *State) Permits(c Command) error {
	now, needs := s.Feature(), Needs(c)
	if now >= needs {
		return nil
	}
	what := "keys"
	if needs == FeatureAccess {
		what = "credentials and owners"
	}
	return refuse(ReasonFeature, "cluster", "feature_level", fmt.Sprint(uint32(now)),
		fmt.Sprintf("%d, which it has when all of its servers know %s", uint32(needs), what))
}

// admit sends a command about who may do what to its noun.
func (s *State) admit(c Command, r *Result) {
	if r.Err = s.Permits(c); r.Err != nil {
		return
	}
	switch c := c.(type) {
	case *PutCredential:
		r.Err = s.putCredential(c)
	case *RevokeCredential:
		s.revokeCredential(c, r)
	case *SetKeyring:
		r.Err = s.setKeyring(c)
	}
}
