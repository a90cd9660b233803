package audit

import (
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// story is a log in short: kind, partition, token.
type story []struct {
	kind  state.Kind
	p     uint32
	token state.Token
}

const (
	grant   = state.KindGrant
	release = state.KindRelease
	revoke  = state.KindRevoke
	expire  = state.KindExpire
)

func read(t *testing.T, a *Auditor, s story) {
	t.Helper()
	for _, e := range s {
		a.Read([]state.Event{{Revision: a.revision + 1, Kind: e.kind, Keyspace: 1, Partition: e.p, Token: e.token, Worker: "w1"}})
	}
}

func TestAuditFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		log  story
		want Counts
		says string
	}{
		"all is well": {
			log: story{
				{grant, 0, 10}, {grant, 7, 11}, {release, 0, 10}, {grant, 0, 12}, {revoke, 7, 11},
				{grant, 7, 13}, {expire, 0, 12}, {state.KindDrain, 7, 13}, {release, 7, 13}, {grant, 0, 20},
			},
			want: Counts{Checked: 5},
		},
		"granted to a second owner": {
			log:  story{{grant, 3, 10}, {grant, 3, 11}},
			want: Counts{Checked: 2, Overlaps: 1},
			says: "overlap at revision 2: grant of keyspace 1, partition 3, token 11 of w1; not ended: 10",
		},
		"the older one ends afterwards": {
			log:  story{{grant, 3, 10}, {grant, 3, 11}, {release, 3, 10}, {release, 3, 11}},
			want: Counts{Checked: 2, Overlaps: 1, Unmatched: 1},
			says: "overlap",
		},
		"another partition's end does not count": {
			log:  story{{grant, 3, 10}, {grant, 4, 11}, {release, 4, 11}, {grant, 3, 12}},
			want: Counts{Checked: 3, Overlaps: 1},
			says: "overlap",
		},
		"a token again": {
			log:  story{{grant, 3, 10}, {release, 3, 10}, {grant, 3, 10}},
			want: Counts{Checked: 2, Regressions: 1},
			says: "token_regression at revision 3",
		},
		"a token that another partition has had": {
			log:  story{{grant, 3, 10}, {grant, 4, 10}},
			want: Counts{Checked: 2, Regressions: 1},
			says: "token_regression",
		},
		"ended twice": {
			log:  story{{grant, 3, 10}, {release, 3, 10}, {expire, 3, 10}},
			want: Counts{Checked: 1, Unmatched: 1},
			says: "unmatched_end at revision 3: expire",
		},
		"ended without ever being granted": {
			log:  story{{release, 3, 10}},
			want: Counts{Unmatched: 1},
			says: "unmatched_end",
		},
		"a keyspace that is gone leaves nothing": {
			log:  story{{grant, 3, 10}, {state.KindKeyspaceGone, 0, 0}, {grant, 3, 11}},
			want: Counts{Checked: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := New()
			read(t, a, c.log)
			got, found := a.Take()
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if (found == nil) != (c.says == "") || found != nil && !strings.HasPrefix(found.String(), c.says) {
				t.Errorf("says %v, want %q", found, c.says)
			}
			if again, f := a.Take(); again != (Counts{}) || f != nil {
				t.Errorf("says it again: %+v, %v", again, f)
			}
		})
	}
}

// After a snapshot the audit begins with the leases of the state: their ends
// match, a second owner is noticed, and an older token, too.
func TestAuditBeginsAnewFromAState(t *testing.T) {
	s := state.New()
	apply := func(index uint64, cmds ...state.Command) {
		t.Helper()
		for _, r := range s.Apply(index, 1, &state.Batch{Commands: cmds}) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	apply(1, &state.Announce{Term: 1, Server: state.Server{ID: "s1"}}, &state.Bootstrap{ClusterID: "test", FirstToken: 100})
	apply(2, &state.CreateKeyspace{Name: "orders", Partitions: 4, Settings: state.DefaultSettings()})
	apply(3, &state.OpenSession{Session: 7, Worker: "w1", Keyspaces: []string{"orders"}})
	apply(4, &state.Grant{Term: 1, Keyspace: 1, Items: []state.GrantItem{{Partition: 2, Session: 7}}})
	a := New()
	if a.At(s.Revision()) {
		t.Fatal("an audit that has read nothing is at the end of the log")
	}
	a.Restart(s)
	if !a.At(s.Revision()) {
		t.Fatal("not at the revision of the state")
	}
	k, _ := s.Keyspace(1)
	held := k.Lease(2).Token
	read(t, a, story{{grant, 2, held + 1}, {release, 2, held + 1}, {grant, 0, held}})
	want := Counts{Checked: 2, Overlaps: 1, Regressions: 1, Restarts: 1}
	if got, found := a.Take(); got != want || found.Open != held {
		t.Errorf("%+v, want %+v; %v", got, want, found)
	}
	a.Restart(s)
	read(t, a, story{{expire, 2, held}, {grant, 2, held + 1}})
	if got, found := a.Take(); got != (Counts{Checked: 1, Restarts: 1}) || found != nil {
		t.Errorf("%+v, %v: all was well", got, found)
	}
}

func BenchmarkAudit(b *testing.B) {
	a := New()
	events := make([]state.Event, 0, 2000)
	for b.Loop() {
		events = events[:0]
		for p := range uint32(1000) {
			token := a.last + 1 + state.Token(p)
			events = append(events, state.Event{Kind: grant, Keyspace: 1, Partition: p, Token: token},
				state.Event{Kind: release, Keyspace: 1, Partition: p, Token: token})
		}
		a.Read(events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2000*b.N), "ns/event")
}
