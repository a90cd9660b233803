package backup

import (
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Manifest says what a backup holds. As JSON it has numbers of 64 bits in
// strings, as the API does.
type Manifest struct {
	Format  int    `json:"format"`
	Version string `json:"version"` // of the program that made it
	// ClusterID, ServerID and StoreID are where it comes from.
	ClusterID string `json:"cluster_id"`
	ServerID  string `json:"server_id"`
	StoreID   string `json:"store_id,omitempty"`
	// Index and Term of the last log entry that is in it. Of two survivors the
	// one with the higher term, then the higher index, has more.
	Index uint64 `json:"index,string"`
	Term  uint64 `json:"term,string"`
	// Time is the wall clock of the server, or of the machine that read a
	// stopped server's directory. A restore refuses a clock before it.
	Time time.Time `json:"time"`
	// Missing says what could not be read of a damaged directory; empty: nothing.
	Missing      string        `json:"missing,omitempty"`
	Offline      bool          `json:"offline"` // read from a stopped server's directory
	FeatureLevel state.Feature `json:"feature_level"`
	LastToken    state.Token   `json:"last_token,string"`
	Revision     uint64        `json:"revision,string"`
	// LongestTTL of any keyspace or session: so long a restored cluster grants
	// nothing strict.
	LongestTTLMillis int64  `json:"longest_ttl_ms,string"`
	Counts           Counts `json:"counts"`
	// Keys is nil when no key was ever written.
	Keys *Keys `json:"keys,omitempty"`
}

// Keys are those of the coordination API.
type Keys struct {
	Count    int   `json:"count"`
	Revision int64 `json:"revision,string"`
	// Bytes is about what they and their history take in memory.
	Bytes int64 `json:"bytes,string"`
	// Sequences have numbers that are never given again.
	Sequences int `json:"sequences"`
}

// Counts are the sizes of what a backup holds.
type Counts struct {
	Keyspaces  int `json:"keyspaces"`
	Partitions int `json:"partitions"`
	Leases     int `json:"leases"` // partitions with an owner
	Sessions   int `json:"sessions"`
	Workers    int `json:"workers"`
}

// Describe fills in all that the state itself tells.
func Describe(s *state.State) Manifest {
	m := Manifest{
		Format: formatVersion, ClusterID: s.ClusterID(),
		FeatureLevel: s.Feature(), LastToken: s.LastToken(), Revision: s.Revision(),
		LongestTTLMillis: s.LongestTTL().Milliseconds(),
	}
	m.Index, m.Term = s.Applied()
	m.Counts.Sessions = s.SessionCount()
	for k := range s.Keyspaces() {
		m.Counts.Keyspaces++
		m.Counts.Partitions += int(k.Partitions)
		m.Counts.Leases += k.Owned
	}
	for range s.Workers() {
		m.Counts.Workers++
	}
	if k := s.Keys(); k.Revision() > 1 {
		m.Keys = &Keys{Count: k.Len(), Revision: k.Revision(), Bytes: k.Size(), Sequences: s.SequenceCount()}
	}
	return m
}

// facts are what does not depend on the release that counts.
func (k *Keys) facts() Keys {
	if k == nil {
		return Keys{}
	}
	return Keys{Count: k.Count, Revision: k.Revision, Sequences: k.Sequences}
}

// agree says where a manifest and the state that came with it differ, which
// no sum would notice.
func (m *Manifest) agree(s *state.State) error {
	is := Describe(s)
	for _, f := range []struct {
		name    string
		say, is any
	}{
		{"cluster_id", m.ClusterID, is.ClusterID},
		{"feature_level", m.FeatureLevel, is.FeatureLevel},
		{"last_token", m.LastToken, is.LastToken},
		{"revision", m.Revision, is.Revision},
		{"longest_ttl_ms", m.LongestTTLMillis, is.LongestTTLMillis},
		{"counts", m.Counts, is.Counts},
		{"keys", m.Keys.facts(), is.Keys.facts()},
	} {
		if f.say != f.is {
			return fmt.Errorf("the manifest says %s %v, the state has %v", f.name, f.say, f.is)
		}
	}
	// Entries that change nothing are not in the state's own index.
	if is.Index > m.Index || is.Term > m.Term {
		return fmt.Errorf("the manifest says index %d, term %d, the state has %d, %d", m.Index, m.Term, is.Index, is.Term)
	}
	return nil
}
