package raftstore

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// UpgradeError says that the log, or a snapshot of the state, needs a newer
// server than this one. What this server has stored is untouched.
type UpgradeError struct {
	Version string        // of this server
	Feature state.Feature // the highest level that it knows
	Index   uint64        // the log entry that it cannot apply; 0: it is a snapshot
	Needs   string        // what that entry needs: "feature level 7", "command 99", …
}

// Error asks for what helps.
func (e *UpgradeError) Error() string {
	what := fmt.Sprintf("log: entry %d", e.Index)
	if e.Index == 0 {
		what = "newest snapshot: it"
	}
	return fmt.Sprintf("this server (version %s, feature level %d) is too old for the %s needs %s; upgrade it, its data is untouched",
		cmp.Or(e.Version, "unknown"), e.Feature, what, e.Needs)
}

// needs returns an *UpgradeError if err says that a newer server wrote what
// could not be decoded, and else nil.
func (s *Store) needs(index uint64, err error) *UpgradeError {
	var (
		command *state.UnknownCommandError
		format  *state.VersionError
	)
	switch {
	case errors.As(err, &command):
		return s.tooOld(index, fmt.Sprintf("command %d", command.Number))
	case errors.As(err, &format):
		return s.tooOld(index, fmt.Sprintf("%s format %d", format.What, format.Got))
	}
	return nil
}

// needsLevel is needs for a state above the highest level that is known here.
func (s *Store) needsLevel(index uint64, level state.Feature) *UpgradeError {
	if level <= s.cfg.MaxFeature {
		return nil
	}
	return s.tooOld(index, fmt.Sprintf("feature level %d", level))
}

func (s *Store) tooOld(index uint64, needs string) *UpgradeError {
	return &UpgradeError{Version: s.cfg.Version, Feature: s.cfg.MaxFeature, Index: index, Needs: needs}
}

// inspect looks at an entry of the log when it is opened. One that this server
// could not apply is refused there already: a server that was too old when it
// stopped says the same when it is started again, and takes no part in
// elections meanwhile.
func (s *Store) inspect(l *raft.Log) error {
	switch {
	case l.Type == raft.LogConfiguration:
		raise(&s.members.logged, l.Index)
		return nil
	case l.Type != raft.LogCommand || len(l.Data) == 0 || l.Index <= s.appliedIndex.Load():
		return nil
	}
	b, err := state.DecodeBatch(l.Data)
	if err != nil {
		if e := s.needs(l.Index, err); e != nil {
			return e
		}
		return nil // Apply says what is wrong, if the entry is ever committed
	}
	for _, c := range b.Commands {
		if c, ok := c.(*state.RaiseFeature); ok {
			if e := s.needsLevel(l.Index, c.Level); e != nil {
				return e
			}
		}
	}
	return nil
}
