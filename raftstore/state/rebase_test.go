package state

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func rebased(t testing.TB, s *State, r Rebase) *State {
	t.Helper()
	if err := s.Rebase(r); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	back, err := Restore(bytes.NewReader(snapshotOf(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// What a new cluster begins with, told as a whole.
func TestRebaseKeepsKeyspacesAndDropsSessions(t *testing.T) {
	s := richState(t)
	type had struct {
		token    Token
		previous string
	}
	before := map[string]had{}
	for k := range s.Keyspaces() {
		for p := range k.Partitions {
			h := had{k.Lease(p).Token, k.Previous(p)}
			if x := k.owner(p); x != nil {
				h.previous = x.Worker
			}
			before[fmt.Sprintf("%s/%d", k.Name, p)] = h
		}
	}
	orders, _ := s.KeyspaceByName("orders")
	settings, id, feature, now := orders.Settings, orders.ID, s.Feature(), s.Now()
	index, term := s.Applied()
	last, revision := s.LastToken(), s.Revision()
	wall := time.UnixMilli(1800000000000)
	first := FirstToken(wall)

	s = rebased(t, s, Rebase{ClusterID: "new", Index: index + 1, Term: term + 1, First: first, Wall: wall})
	if s.ClusterID() != "new" || s.SessionCount() != 0 || len(s.Servers()) != 0 || s.Feature() != feature || s.Now() != now {
		t.Errorf("cluster %s has %d sessions, servers %v, feature %d, clock %s", s.ClusterID(), s.SessionCount(), s.Servers(), s.Feature(), s.Now())
	}
	if s.LastToken() != first-1 || s.LastToken() <= last || s.Revision() != uint64(first) || s.Revision() <= revision {
		t.Errorf("token %d after %d, revision %d after %d, want %d", s.LastToken(), last, s.Revision(), revision, first)
	}
	if s.StrictHold() < 10*time.Second {
		t.Errorf("strict keyspaces wait for %s, the longest TTL is 10 s", s.StrictHold())
	}
	if k, ok := s.Keyspace(id); !ok || k.Name != "orders" || k.Settings != settings || k.Partitions != 16 {
		t.Errorf("orders came back as %+v", k)
	}
	if _, ok := s.KeyspaceByName("old"); ok || s.lastKeyspace != 3 {
		t.Errorf("a keyspace that was being deleted came back, or its id will (%d)", s.lastKeyspace)
	}
	for k := range s.Keyspaces() {
		if k.Owned+k.Draining+k.Quarantined != 0 || len(slices.Collect(k.Moves()))+len(slices.Collect(k.Slots()))+len(slices.Collect(k.Suspects())) != 0 {
			t.Errorf("%s: something of the old sessions is left: %+v", k.Name, k.view())
		}
		for p := range k.Partitions {
			want := before[fmt.Sprintf("%s/%d", k.Name, p)]
			if l := k.Lease(p); l.Session != 0 || l.Token != want.token || k.Previous(p) != want.previous {
				t.Errorf("%s/%d: %+v of %q, was %+v", k.Name, p, l, k.Previous(p), want)
			}
		}
	}
	if workers := slices.Collect(s.Workers()); len(workers) != 1 || workers[0].ID != "d" || !workers[0].Drained {
		t.Errorf("workers %v, want the drained one", workers)
	}
	events, err := s.Events(s.Revision()-1, 10, nil)
	if err != nil || len(events) != 1 || events[0].Kind != KindRestore || events[0].From != "c0ffee" || events[0].Wall != wall.UnixMilli() {
		t.Errorf("the ledger has %+v, %v", events, err)
	}
	if _, err := s.Events(revision, 10, nil); ReasonOf(err) != ReasonCompacted {
		t.Errorf("a watch of the old cluster goes on: %v", err)
	}
}

// Nothing strict before the hold is over, everything fenced at once, each with
// a token above all that went before.
func TestRebasedClusterGrantsStrictLate(t *testing.T) {
	s := richState(t)
	index, term := s.Applied()
	last, longest := s.LastToken(), s.LongestTTL()
	s = rebased(t, s, Rebase{ClusterID: "new", Index: index + 1, Term: term + 1, First: 1})
	index, term = index+1, term+2
	do := func(c ...Command) []Result {
		index++
		return s.Apply(index, term, &Batch{Commands: c})
	}
	do(&Tick{Term: term}, &OpenSession{Session: 900, Worker: "a", Keyspaces: []string{"jobs", "orders"}})
	grant := func(name string) Result {
		k, _ := s.KeyspaceByName(name)
		return do(&Grant{Term: term, Keyspace: k.ID, Cause: CauseInitial, Items: []GrantItem{{1, k.Lease(1).Token, 900}}})[0]
	}
	if r := grant("jobs"); r.Err != nil || r.Items != nil || r.Tokens[0] <= last {
		t.Errorf("fenced: %+v, the last token was %d", r, last)
	}
	begun := s.Now()
	for s.Now() < begun+longest {
		if r := grant("orders"); ReasonOf(r.Err) != ReasonRestored {
			t.Fatalf("strict, %s too early: %+v", s.StrictHold(), r)
		}
		do(&KeepAlive{Term: term, Elapsed: min(s.StrictHold(), time.Second), Sessions: []SessionID{900}})
	}
	if r := grant("orders"); r.Err != nil || r.Items != nil || r.Tokens[0] <= last {
		t.Errorf("strict after the hold: %+v, the last token was %d", r, last)
	}
}

func TestRebaseRefuses(t *testing.T) {
	s := richState(t)
	index, term := s.Applied()
	want := snapshotOf(t, s)
	for name, r := range map[string]Rebase{
		"the same cluster": {ClusterID: "c0ffee", Index: index + 1, Term: term + 1, First: 1},
		"no cluster":       {Index: index + 1, Term: term + 1, First: 1},
		"an index again":   {ClusterID: "new", Index: index, Term: term + 1, First: 1},
		"a term again":     {ClusterID: "new", Index: index + 1, Term: term, First: 1},
		"no token":         {ClusterID: "new", Index: index + 1, Term: term + 1},
		"too high a token": {ClusterID: "new", Index: index + 1, Term: term + 1, First: MaxToken + 1},
		"too long a hold":  {ClusterID: "new", Index: index + 1, Term: term + 1, First: 1, Hold: MaxTTL + 1},
	} {
		if err := s.Rebase(r); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if !bytes.Equal(snapshotOf(t, s), want) {
			t.Fatalf("%s: the state was changed", name)
		}
	}
}

// TestRebaseProperties rebases whatever state random entries lead to, goes on
// with more of them, and does it again.
func TestRebaseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		w := &world{t: t, s: s, term: 5, index: 1}
		s.Apply(1, 5, &Batch{Commands: []Command{
			&Bootstrap{ClusterID: "c", FirstToken: 1000},
			&CreateKeyspace{Name: "a", Partitions: 6, Settings: Settings{TTL: 2 * time.Second, Takeover: Strict, RestartGrace: 9 * time.Second}},
			&CreateKeyspace{Name: "b", Partitions: 5, Settings: Settings{TTL: 3 * time.Second, Takeover: Fenced}},
		}})
		run := func() {
			for range rapid.IntRange(1, 40).Draw(t, "entries") {
				w.index++
				s.Apply(w.index, w.term, w.batch())
			}
		}
		for i := range 2 {
			run()
			before, revision, longest := look(s), s.Revision(), s.LongestTTL()
			drained := map[string]bool{}
			for x := range s.Workers() {
				drained[x.ID] = x.Drained
			}
			w.index, w.term = w.index+1, w.term+1
			first := Token(rapid.IntRange(1, 100000).Draw(t, "first"))
			if err := s.Rebase(Rebase{ClusterID: fmt.Sprintf("new%d", i), Index: w.index, Term: w.term, First: first}); err != nil {
				t.Fatal(err)
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			switch {
			case s.SessionCount() != 0 || len(s.requests.ring) != 0 || len(s.Servers()) != 0:
				t.Fatal("sessions, requests or servers are left")
			case s.LastToken() < max(before.token, first-1) || s.Revision() <= revision || s.Revision() < uint64(first):
				t.Fatalf("token %d after %d, revision %d after %d, first %d", s.LastToken(), before.token, s.Revision(), revision, first)
			case s.StrictHold() < longest:
				t.Fatalf("hold of %s, the longest TTL is %s", s.StrictHold(), longest)
			}
			for x := range s.Workers() {
				if !drained[x.ID] {
					t.Fatalf("worker %s was not drained and is remembered", x.ID)
				}
			}
			for k := range s.Keyspaces() {
				for p, l := range before.leases[k.ID] {
					if now := k.Lease(uint32(p)); now.Session != 0 || now.Token != l.Token {
						t.Fatalf("%s/%d was %+v, is %+v", k.Name, p, l, now)
					}
				}
			}
			before = look(s)
			run()
			events, err := s.Events(before.revision, LedgerSize, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Kind == KindGrant && e.Token <= before.token {
					t.Fatalf("token %d was granted after %d", e.Token, before.token)
				}
			}
		}
	})
}
