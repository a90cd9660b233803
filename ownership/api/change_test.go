package api

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// follow carries messages out the way a worker may: in each, revoked first,
// then granted, then drain. It returns the live tokens by lease, and what drains.
func follow(live, draining map[uint64]uint64, messages []*pb.AttachResponse) {
	each := func(ls []*pb.Leases, fn func(lease, token uint64)) {
		for _, g := range ls {
			for i, p := range g.GetPartitions() {
				fn(uint64(g.GetKeyspaceId())<<32|uint64(p), g.GetTokens()[i])
			}
		}
	}
	for _, m := range messages {
		c := m.GetChanges()
		each(c.GetRevoked(), func(l, t uint64) {
			if live[l] == t {
				delete(live, l)
				delete(draining, l)
			}
		})
		each(c.GetGranted(), func(l, t uint64) {
			live[l] = t
			delete(draining, l)
		})
		each(c.GetDrain(), func(l, t uint64) {
			if live[l] == t {
				draining[l] = t
			}
		})
	}
}

// Whatever the log does to a session's leases, and wherever the queue is cut,
// the worker ends where the log ends.
func TestMergedChangesLeadWhereTheLogLeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var token state.Token
		wantLive, wantDrain := map[uint64]uint64{}, map[uint64]uint64{}
		gotLive, gotDrain := map[uint64]uint64{}, map[uint64]uint64{}
		var queue []change
		ordered := false
		flush := func() {
			m := merger{now: time.Second, term: 3, index: 9, ordered: ordered}
			follow(gotLive, gotDrain, m.merge(queue))
			queue, ordered = nil, false
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			ks := state.KeyspaceID(rapid.IntRange(1, 2).Draw(t, "keyspace"))
			p := uint32(rapid.IntRange(0, 3).Draw(t, "partition"))
			c := change{keyspace: ks, partition: p, cause: state.CauseBalance}
			lease := c.lease()
			held, isHeld := wantLive[lease]
			switch rapid.SampledFrom([]string{"grant", "drain", "revoke", "flush"}).Draw(t, "what") {
			case "grant":
				if isHeld {
					continue
				}
				token++
				c.kind, c.token, c.from = changeGrant, token, rapid.SampledFrom([]string{"", "w1", "w2"}).Draw(t, "from")
				wantLive[lease] = uint64(token)
			case "drain":
				if !isHeld {
					continue
				}
				c.kind, c.token, c.drainBy, ordered = changeDrain, state.Token(held), 5*time.Second, true
				wantDrain[lease] = held
			case "revoke":
				if !isHeld {
					continue
				}
				c.kind, c.token, ordered = changeRevoke, state.Token(held), true
				delete(wantLive, lease)
				delete(wantDrain, lease)
			case "flush":
				flush()
				continue
			}
			queue = append(queue, c)
		}
		flush()
		if fmt.Sprint(gotLive) != fmt.Sprint(wantLive) || fmt.Sprint(gotDrain) != fmt.Sprint(wantDrain) {
			t.Fatalf("live %v, want %v; draining %v, want %v", gotLive, wantLive, gotDrain, wantDrain)
		}
	})
}

func TestMergePacksGrantsAndNamesPreviousOwners(t *testing.T) {
	var changes []change
	for p := range uint32(2*maxPerMessage + 5) {
		changes = append(changes, change{kind: changeGrant, keyspace: 1, partition: p, token: state.Token(p + 1), from: []string{"", "w1", "w2"}[p%3], cause: state.CauseLeave})
	}
	m := merger{term: 2, index: 7}
	messages := m.merge(changes)
	if len(messages) != 3 {
		t.Fatalf("%d messages", len(messages))
	}
	p := uint32(0)
	for _, msg := range messages {
		if n := proto.Size(msg); n > 512<<10 {
			t.Errorf("a message of %d bytes", n)
		}
		c := msg.GetChanges()
		if len(c.GetGranted()) != 1 || c.GetIndex() != 7 || c.GetTerm() != 2 || c.GetGranted()[0].GetCause() != "leave" {
			t.Fatalf("%d groups", len(c.GetGranted()))
		}
		g := c.GetGranted()[0]
		for i := range g.GetPartitions() {
			want := []string{"", "w1", "w2"}[p%3]
			got := ""
			if n := g.GetPrevious()[i]; n > 0 {
				got = g.GetPreviousOwners()[n-1]
			}
			if g.GetPartitions()[i] != p || g.GetTokens()[i] != uint64(p+1) || got != want {
				t.Fatalf("partition %d: token %d from %q", g.GetPartitions()[i], g.GetTokens()[i], got)
			}
			p++
		}
	}
}

func TestDiffWaitsAndThenRepeatsMoreSeldom(t *testing.T) {
	var d diff
	due := func(n int) (at []int) {
		for i := range n {
			if d.note(1, 2, 5) {
				at = append(at, i+1)
			}
		}
		return at
	}
	if got := fmt.Sprint(due(40)); got != "[2 4 8 16 32]" {
		t.Errorf("lists after keep-alives %s", got)
	}
	if d.note(2, 2, 5) || d.seen != 0 {
		t.Error("equal sums are no difference")
	}
	if d.note(1, 2, 5) || d.note(3, 2, 5) || d.note(3, 2, 6) {
		t.Error("a difference that changes is on its way")
	}
}

// 100,000 grants over 100 sessions, from the log's events to marshalled
// messages.
func BenchmarkHubFanOut(b *testing.B) {
	const sessions, partitions = 100, 100_000
	s := state.New()
	apply := func(cmds ...state.Command) {
		for i, r := range s.Apply(nextIndex(s), 1, &state.Batch{Commands: cmds}) {
			if r.Err != nil {
				b.Fatalf("%T: %v", cmds[i], r.Err)
			}
		}
	}
	set := state.DefaultSettings()
	set.TTL = time.Hour
	apply(&state.Bootstrap{ClusterID: "c", FirstToken: 1}, &state.CreateKeyspace{Name: "orders", Partitions: partitions, Settings: set})
	h := newHub(&Config{Clock: monotonic{time.Now()}}, &routines{})
	h.begin(1)
	streams := make([]*stream, sessions)
	for i := range streams {
		id := state.SessionID(i + 1)
		apply(&state.OpenSession{Session: id, Worker: fmt.Sprintf("w%d", i), Keyspaces: []string{"orders"}})
		streams[i] = newStream(h, id, fmt.Sprintf("w%d", i), "", false)
		streams[i].full = false
		h.attach(streams[i])
	}
	grant := func(from, to uint32) *state.Grant {
		g := &state.Grant{Term: 1, Keyspace: 1, Cause: state.CauseInitial}
		for p := from; p < to; p++ {
			ks, _ := s.Keyspace(1)
			g.Items = append(g.Items, state.GrantItem{Partition: p, LastToken: ks.Lease(p).Token, Session: state.SessionID(p%sessions + 1)})
		}
		return g
	}
	for b.Loop() {
		b.StopTimer()
		total := 0
		for at := uint32(0); at < partitions; at += 10_000 {
			from := s.Revision()
			apply(grant(at, at+10_000))
			index, _ := s.Applied()
			b.StartTimer()
			h.onApply(s, from, s.Revision(), index)
			b.StopTimer()
		}
		b.StartTimer()
		for _, st := range streams {
			o := st.take()
			err := st.sendLeases(&o, func(m *pb.AttachResponse) error {
				data, err := proto.Marshal(m)
				total += len(data)
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		if total < partitions*4 {
			b.Fatalf("%d bytes were sent", total)
		}
		for i := range streams {
			rel := &state.Release{Session: state.SessionID(i + 1), Cause: state.CauseYield}
			ks, _ := s.Keyspace(1)
			for p := range s.Held(state.SessionID(i+1), 1) {
				rel.Items = append(rel.Items, state.LeaseRef{Keyspace: 1, Partition: p, Token: ks.Lease(p).Token})
			}
			apply(rel)
		}
		b.StartTimer()
	}
}

func nextIndex(s *state.State) uint64 {
	index, _ := s.Applied()
	return index + 1
}
