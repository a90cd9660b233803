package raftstore

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// knows makes servers of a later release, which know feature levels up to 7, of
// all but those named.
func knows(old ...string) option {
	return func(s *server, c *Config) {
		c.Version, c.MaxFeature = "2.0", 7
		if slices.Contains(old, s.id) {
			c.Version, c.MaxFeature = "1.0", 0
		}
	}
}

// upgrade makes it one of that release.
func (s *server) upgrade() {
	before := s.conf
	s.conf = func(c *Config) {
		before(c)
		c.Version, c.MaxFeature = "2.0", 7
	}
}

// tooOld checks that Run ended as it should, and that New says the same.
func (s *server) tooOld(needs string) {
	s.c.t.Helper()
	check := func(what string, err error) {
		s.c.t.Helper()
		var old *UpgradeError
		if !errors.As(err, &old) || old.Needs != needs || old.Version != "1.0" || old.Feature != state.MaxFeature {
			s.c.t.Fatalf("%s: %v; want that it needs %s", what, err, needs)
		}
		for _, part := range []string{"version 1.0", "too old", needs, "upgrade it", "untouched"} {
			if !strings.Contains(err.Error(), part) {
				s.c.t.Errorf("%s: %q does not say %q", what, err, part)
			}
		}
		if errors.Is(err, ErrPoisoned) {
			s.c.t.Errorf("%s: %v passes for a failure of the disk", what, err)
		}
	}
	select {
	case <-s.done:
	case <-time.After(30 * time.Second):
		s.c.t.Fatal("it goes on")
	}
	check("Run", s.err)
	_, err := New(s.config())
	check("New", err)
}

func TestFeatureLevelAboveItsOwnStopsAServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, knows("s3"))
		defer c.stopAll()
		c.do(mark("x"))
		old := c.servers[2]
		if c.leader() == old {
			if err := old.store.TransferLeadership(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		c.do(&state.RaiseFeature{Term: c.leader().store.Term(), Level: 7})
		old.tooOld("feature level 7")
		c.do(mark("y")) // the others go on
		old.upgrade()
		old.start()
		c.do(mark("z"))
		c.hasAll("x", "y", "z")
	})
}

// A leader that is too old hands on before it goes.
func TestTooOldLeaderHandsOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, knows("s1"))
		defer c.stopAll()
		old := c.servers[0]
		c.within(time.Minute, "leader that is too old", func() bool {
			if l := c.leader(); l != old {
				_ = l.store.TransferLeadership(t.Context(), old.peer())
			}
			return old.store.IsLeader()
		})
		_, _ = old.store.Propose(t.Context(), &state.RaiseFeature{Term: old.store.Term(), Level: 7})
		old.tooOld("feature level 7")
		c.do(mark("y"))
	})
}

func TestSnapshotAboveItsOwnLevelStopsAServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, knows("s3"), func(_ *server, c *Config) {
			c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 8, 4, time.Second
		})
		defer c.stopAll()
		old := c.servers[2]
		c.do(mark("x"))
		old.crash()
		c.do(&state.RaiseFeature{Term: c.leader().store.Term(), Level: 5})
		for range 30 {
			c.do(nudge())
		}
		time.Sleep(5 * time.Second)
		old.start()
		old.tooOld("feature level 5")
		old.upgrade()
		old.start()
		c.do(mark("z"))
		c.hasAll("x", "z")
	})
}

func TestUnknownCommandStopsAServer(t *testing.T) {
	for needs, entry := range map[string][]byte{
		"command 9999":    append(binary.AppendUvarint([]byte{1, 0, 0, 1}, 9999), 0, 0, 0, 0),
		"batch format 99": {99, 0, 0, 0},
	} {
		t.Run(needs, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 1, onDisk, knows("s1"))
				defer c.stopAll()
				s := c.leader()
				c.do(mark("x"))
				_ = s.store.running().Apply(entry, 0).Error()
				s.tooOld(needs)
			})
		})
	}
}

// What old servers do not know is not written while there may be some.
func TestNothingIsWrittenBelowItsLevel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk)
		defer c.stopAll()
		c.do(mark("x"))
		s := c.leader().store
		newer := []state.Command{
			&state.OpenSession{Session: 1, Worker: "w", Keyspaces: []string{"x"}, Owner: "worker/w"},
			&state.GrantLease{Session: 2, TTL: 9, Owner: "worker/w"},
			&state.SetKeyring{Keys: [][]byte{make([]byte, 16)}},
			&state.RevokeCredential{ID: "abc123abc123"},
		}
		for _, cmd := range newer {
			before := s.Status().LastIndex
			_, err := s.Propose(t.Context(), nudge(), cmd)
			if state.ReasonOf(err) != state.ReasonFeature {
				t.Errorf("%T at level 1: %v", cmd, err)
			}
			if now := s.Status().LastIndex; now != before {
				t.Errorf("%T at level 1 was written: entry %d", cmd, now)
			}
		}
		c.do(&state.RaiseFeature{Term: s.Term(), Level: state.FeatureAccess})
		c.do(newer[:3]...)
	})
}
