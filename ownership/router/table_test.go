package router

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// filled is a router with a table and nobody to ask.
func filled(t testing.TB, partitions uint32) (*Router, *table) {
	t.Helper()
	r, err := New(Config{Servers: "127.0.0.1:1", Keyspaces: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tab := newTable("orders", 1, partitions, r.places, false)
	for p := range partitions {
		w := p % 100
		tab.learn(news{partition: p, index: 10, token: 1000 + uint64(p), session: uint64(w + 1), worker: "w" + strconv.Itoa(int(w)), endpoint: "10.0.0.1:9000"})
	}
	r.highest = 1000 + uint64(partitions)
	r.swapLocked("orders", tab)
	tab.show()
	close(r.ready)
	return r, tab
}

func grant(p uint32, index, token, session uint64) *pb.Event {
	return &pb.Event{Kind: "grant", Keyspace: "orders", KeyspaceId: 1, Partition: &p, Index: index, Token: token, SessionId: session, Worker: "w" + strconv.FormatUint(session-1, 10), Endpoint: "10.0.0.1:9000"}
}

func as(kind string, ev *pb.Event) *pb.Event {
	ev.Kind, ev.Endpoint = kind, ""
	return ev
}

func TestAnOlderEventNeverOverwritesANewerRow(t *testing.T) {
	for _, c := range []struct {
		name string
		ev   *pb.Event
		want string // owner, "" nobody
	}{
		{"newer token", grant(7, 21, 5001, 3), "w2"},
		{"older token at a later index", grant(7, 30, 4999, 3), "w1"},
		{"the same again", grant(7, 20, 5000, 2), "w1"},
		{"an older release", as("release", grant(7, 30, 4999, 3)), "w1"},
		{"its own release", as("release", grant(7, 21, 5000, 2)), ""},
		{"its own release, in the same entry", as("release", grant(7, 20, 5000, 2)), ""},
		{"its own expiry at an index before the list", as("expire", grant(7, 19, 5000, 2)), "w1"},
		{"the end of a lease whose grant was missed", as("expire", grant(7, 25, 5001, 3)), ""},
		{"another incarnation of the keyspace", func() *pb.Event { e := grant(7, 30, 6000, 3); e.KeyspaceId = 2; return e }(), "w1"},
		{"another keyspace", func() *pb.Event { e := grant(7, 30, 6000, 3); e.Keyspace = "bills"; return e }(), "w1"},
		{"a partition too many", grant(8, 30, 6000, 3), "w1"},
		{"no partition", &pb.Event{Kind: "grant", Keyspace: "orders", KeyspaceId: 1, Token: 6000}, "w1"},
		{"a kind of tomorrow", as("blessing", grant(7, 30, 6000, 3)), "w1"},
	} {
		r, _ := filled(t, 8)
		r.take(&pb.WatchEventsResponse{Items: []*pb.Event{grant(7, 20, 5000, 2)}})
		r.take(&pb.WatchEventsResponse{Items: []*pb.Event{c.ev}})
		at, err := r.At("orders", 7)
		if at.Owner != c.want || (err == nil) != (c.want != "") || at.Token < 5000 {
			t.Errorf("%s: %+v, %v; want owner %q", c.name, at, err, c.want)
		}
	}
}

func TestOnlyAHigherTokenCorrects(t *testing.T) {
	r, _ := filled(t, 8)
	for _, c := range []struct {
		name      string
		partition uint32
		h         Hint
		want      bool
	}{
		{"lower", 7, Hint{"b", "b:1", 1006}, false},
		{"equal", 7, Hint{"b", "b:1", 1007}, false},
		{"none", 7, Hint{"b", "b:1", 0}, false},
		{"nobody", 7, Hint{"", "b:1", 2000}, false},
		{"no such partition", 8, Hint{"b", "b:1", 2000}, false},
		{"no token any cluster had", 7, Hint{"b", "b:1", 1 << 53}, false},
		{"days ahead", 7, Hint{"b", "b:1", 1015 + tokenDay}, false},
		{"a long name", 7, Hint{string(make([]byte, 1<<20)), "b:1", 2000}, false},
		{"higher", 7, Hint{"b", "b:1", 2000}, true},
		{"the same again", 7, Hint{"b", "b:1", 2000}, false},
		{"between", 7, Hint{"c", "c:1", 1999}, false},
	} {
		before, _ := r.At("orders", 7)
		if got := r.Correct("orders", c.partition, c.h); got != c.want {
			t.Errorf("%s: accepted %v", c.name, got)
		}
		after, _ := r.At("orders", 7)
		if c.want && (after.Owner != "b" || after.Endpoint != "b:1" || after.Token != 2000) || !c.want && after != before {
			t.Errorf("%s: %+v after %+v", c.name, after, before)
		}
	}
	if r.Correct("bills", 0, Hint{"b", "b:1", 5000}) {
		t.Error("a keyspace that is not followed was corrected")
	}
	if s := r.Stats(); s.Hints != 1 || s.Refused != 11 {
		t.Errorf("stats %+v", s)
	}
}

// Whatever order a partition's events come in, and however often: the row ends
// as the last of them says, and its token never falls on the way.
func TestAnyOrderOfEventsEndsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var evs []*pb.Event
		index, token := uint64(100), uint64(5000)
		for range rapid.IntRange(1, 12).Draw(t, "leases") {
			index += rapid.Uint64Range(0, 1).Draw(t, "step") // grants and ends may share an entry
			token++
			session := rapid.Uint64Range(1, 4).Draw(t, "session")
			evs = append(evs, grant(3, index, token, session))
			if rapid.Bool().Draw(t, "drained") {
				index++
				evs = append(evs, as("drain", grant(3, index, token, session)))
			}
			if rapid.Bool().Draw(t, "ended") {
				index += rapid.Uint64Range(0, 1).Draw(t, "step")
				evs = append(evs, as("release", grant(3, index, token, session)))
			}
		}
		last := evs[len(evs)-1]
		order := rapid.Permutation(append(evs, evs...)).Draw(t, "order")
		r, err := New(Config{Servers: "127.0.0.1:1", Keyspaces: []string{"orders"}})
		if err != nil {
			t.Fatal(err)
		}
		r.swapLocked("orders", newTable("orders", 1, 8, r.places, false))
		seen := uint64(0)
		for _, ev := range order {
			r.take(&pb.WatchEventsResponse{Items: []*pb.Event{ev}})
			at, _ := r.At("orders", 3)
			if at.Token < seen {
				t.Fatalf("token fell from %d to %d", seen, at.Token)
			}
			seen = at.Token
		}
		at, _ := r.At("orders", 3)
		want := last.GetWorker()
		if last.GetKind() == "release" {
			want = ""
		}
		if at.Token != last.GetToken() || at.Owner != want || at.Draining != (last.GetKind() == "drain") {
			t.Fatalf("ends as %+v, the last event was %v", at, last)
		}
		if n := len(r.places); n > 4+2 {
			t.Fatalf("%d places for one row", n)
		}
	})
}

// A reader never sees one grant's owner with another's token. Run with -race.
func TestRowsAreNeverTorn(t *testing.T) {
	r, _ := filled(t, 300)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			last := make([]uint64, 300)
			for !stop.Load() {
				for p := range uint32(300) {
					at, err := r.At("orders", p)
					if err != nil || at.Token < last[p] {
						t.Errorf("%+v, %v after token %d", at, err, last[p])
						return
					}
					last[p] = at.Token
					if at.Token >= 1<<20 && at.Owner != "w"+strconv.FormatUint(at.Token%64, 10) {
						t.Errorf("torn: %+v", at)
						return
					}
				}
			}
		})
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for token := uint64(1 << 20); token < 1<<20+20_000; token++ {
		p := uint32(rnd.IntN(300))
		if token%2 == 0 {
			r.take(&pb.WatchEventsResponse{Items: []*pb.Event{grant(p, token, token, token%64+1)}})
		} else {
			r.Correct("orders", p, Hint{"w" + strconv.FormatUint(token%64, 10), "10.0.0.1:9000", token})
		}
	}
	stop.Store(true)
	readers.Wait()
}

func TestLookupAllocatesNothing(t *testing.T) {
	r, _ := filled(t, 65_536)
	key := []byte("customer-4711")
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := r.Lookup("orders", key); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestHoldings(t *testing.T) {
	var h Holdings
	if _, ok := h.Holds("orders", 1); ok {
		t.Error("an empty one holds")
	}
	ended := errors.New("over")
	var err error
	first := h.Add("orders", 1, 33, func() error { return err })
	if token, ok := h.Holds("orders", 1); !ok || token != 33 {
		t.Error("does not hold what was added")
	}
	err = ended
	if _, ok := h.Holds("orders", 1); ok {
		t.Error("holds a lease that its clock says is over")
	}
	second := h.Add("orders", 1, 40, nil)
	h.Add("orders", 1, 39, nil) // late
	first()                     // late, too
	if token, ok := h.Holds("orders", 1); !ok || token != 40 {
		t.Errorf("holds %d, %v", token, ok)
	}
	second()
	second()
	if _, ok := h.Holds("orders", 1); ok {
		t.Error("holds what was removed")
	}
}

var sink Route

func BenchmarkLookup(b *testing.B) {
	for _, n := range []uint32{256, 65_536, 1 << 20} {
		r, _ := filled(b, n)
		keys := make([][]byte, 1024)
		for i := range keys {
			keys[i] = fmt.Appendf(nil, "customer-%d", i*7919)
		}
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				sink, _ = r.Lookup("orders", keys[i&1023])
				i++
			}
		})
		b.Run(fmt.Sprintf("partitions=%d/parallel", n), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				var at Route
				for i := 0; pb.Next(); i++ {
					at, _ = r.Lookup("orders", keys[i&1023])
				}
				_ = at
			})
		})
	}
}

// BenchmarkApplyMove is one handoff, a release and a grant in one message.
func BenchmarkApplyMove(b *testing.B) {
	for _, n := range []uint32{65_536, 1 << 20} {
		r, _ := filled(b, n)
		i := uint64(0) // on and on: tokens only rise
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				i++
				p := uint32(i*40_503) % n
				at, _ := r.At("orders", p)
				r.take(&pb.WatchEventsResponse{Items: []*pb.Event{
					as("release", grant(p, 100+i, at.Token, 1)),
					grant(p, 100+i, 1<<30+i, i%100+1),
				}})
			}
		})
	}
}
