package state

import (
	"testing"
	"time"
)

func one(s *State, index, term uint64, c Command) Result {
	return s.Apply(index, term, &Batch{Commands: []Command{c}})[0]
}

func TestFeatureLevelOnlyRises(t *testing.T) {
	s := New()
	one(s, 1, 1, &Bootstrap{ClusterID: "c", FirstToken: 1})
	if s.Feature() != 1 {
		t.Fatalf("a new cluster is at level %d", s.Feature())
	}
	for i, step := range []struct {
		raise  RaiseFeature
		reason Reason
		level  Feature
	}{
		{RaiseFeature{Term: 1, Level: 1}, "", 1}, // there already
		{RaiseFeature{Term: 2, Level: 2}, ReasonVoidTerm, 1},
		{RaiseFeature{Term: 1, Level: 3}, "", 3},
		{RaiseFeature{Term: 1, Level: 2}, ReasonConflict, 3},
		{RaiseFeature{Term: 1, Level: 3}, "", 3},
	} {
		before := s.Revision()
		r := one(s, uint64(i+2), 1, &step.raise)
		if ReasonOf(r.Err) != step.reason || s.Feature() != step.level {
			t.Errorf("step %d: %v, level %d; want reason %q, level %d", i, r.Err, s.Feature(), step.reason, step.level)
		}
		if raised := s.Revision() - before; raised != 0 && i != 2 {
			t.Errorf("step %d: %d events", i, raised)
		}
	}
}

func TestNothingStrictIsGrantedBeforeOldLeasesHaveRunOut(t *testing.T) {
	s := New()
	index := uint64(0)
	do := func(c Command) Result {
		t.Helper()
		index++
		return one(s, index, 1, c)
	}
	do(&Bootstrap{ClusterID: "c", FirstToken: 1})
	settings := DefaultSettings()
	do(&CreateKeyspace{Name: "strict", Partitions: 1, Settings: settings})
	settings.Takeover = Fenced
	do(&CreateKeyspace{Name: "fenced", Partitions: 1, Settings: settings})
	do(&OpenSession{Session: 5, Worker: "w", Keyspaces: []string{"strict", "fenced"}})
	do(&Tick{Term: 1})
	s.strictAt = s.clock + 2*time.Second
	grant := func(ks KeyspaceID) Result {
		return do(&Grant{Term: 1, Keyspace: ks, Items: []GrantItem{{Partition: 0, Session: 5}}})
	}
	if r := grant(1); ReasonOf(r.Err) != ReasonRestored {
		t.Errorf("a strict grant during the hold: %v", r.Err)
	}
	if r := grant(2); r.Err != nil || len(r.Items) > 0 {
		t.Errorf("a fenced grant during the hold: %v %v", r.Err, r.Items)
	}
	do(&Tick{Term: 1, Elapsed: time.Second})
	if s.StrictHold() != time.Second {
		t.Errorf("hold of %v left, want 1s", s.StrictHold())
	}
	if r := grant(1); ReasonOf(r.Err) != ReasonRestored {
		t.Errorf("a strict grant a second too early: %v", r.Err)
	}
	do(&Tick{Term: 1, Elapsed: time.Second})
	if r := grant(1); r.Err != nil || len(r.Items) > 0 || s.StrictHold() != 0 {
		t.Errorf("a strict grant after the hold: %v %v, %v left", r.Err, r.Items, s.StrictHold())
	}
}
