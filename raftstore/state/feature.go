package state

import "fmt"

// Feature is a level of what may be in the log and the snapshots. Every
// release knows all levels up to its own; the cluster's level is raised when
// all its servers know the next one, and never falls.
type Feature uint32

// MaxFeature is the level of this release.
//
//	1  everything up to the first release
//	2  keys: the commands 22 to 28 and the frames 11 to 16 of a snapshot
//	3  owners of sessions, credentials and the keys of gossip: the commands 29
//	   to 33 and the frames 17 to 19
const MaxFeature Feature = 3

// FeatureAccess is the level from which on sessions have owners, and there may
// be credentials and a keyring; featureKeys that of keys.
const (
	featureKeys   Feature = 2
	FeatureAccess Feature = 3
)

// Feature is the level of the cluster: no server of the group is below it.
func (s *State) Feature() Feature { return max(s.feature, 1) }

// raiseFeature is applied by every server alike, also by one that does not
// know the level: whether it can go on is for its store to say.
func (s *State) raiseFeature(c *RaiseFeature) error {
	if err := s.void("raise_feature", c.Term); err != nil {
		return err
	}
	switch now := s.Feature(); {
	case c.Level < now:
		return refuse(ReasonConflict, "feature level", "level", fmt.Sprint(uint32(c.Level)), fmt.Sprintf("at least %d, the present one", now))
	case c.Level == now:
		return nil
	}
	if now := s.Feature(); now < featureKeys && c.Level >= featureKeys && s.strictAt != 0 {
		// Restored from a backup of before there were keys, while the cluster
		// that it is from may have had some since: see Rebase.
		s.keys.Rebase(int64(s.lastToken), nil)
	}
	s.feature = c.Level
	s.emit(KindFeatureRaise, CauseNone).Token = Token(c.Level)
	return nil
}
