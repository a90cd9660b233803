package etcdapi

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A client that stops reading holds no more than the queue's bound. When it reads
// again it gets everything, and meanwhile others on the same keys miss nothing.
func TestSlowStreamHasNoHole(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, slow *testStream) {
		other := m.open(slow.h)
		random := rand.New(rand.NewPCG(6, 7))
		requests := make([]*pb.WatchCreateRequest, 5)
		for i := range requests {
			requests[i] = randomRequest(random)
			slow.create(requests[i])
			other.create(requests[i])
		}
		for range 20 {
			slow.hold(true)
			for range 30 + random.IntN(300) {
				m.change(random)
			}
			synctest.Wait()
			if n, limit := slow.bytes.Load(), int64(slow.h.limits.queue); n > limit {
				t.Errorf("%d bytes wait for a client that does not read, the bound is %d", n, limit)
			}
			slow.hold(false)
			synctest.Wait()
		}
		if slow.lagging != 0 {
			t.Errorf("%d watches are still behind", slow.lagging)
		}
		last := m.revision()
		for _, s := range []*testStream{slow, other} {
			s.askProgress()
			synctest.Wait()
			for id, r := range requests {
				sp, _ := specOf(r)
				story := &watchStory{want: sp, seen: of(s.received(), int64(id))}
				if err := checkWatch(story, m.all(), last); err != nil {
					t.Errorf("slow %t, watch %d: %v", s == slow, id, err)
				}
			}
		}
	})
}

// What was compacted while a client did not read cannot be told any more: its
// watches are cancelled, with the revision to go on from, and never go on with a
// hole. The others of the stream, that have missed nothing, go on.
func TestSlowStreamIsCancelledWhenHistoryIsCompacted(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
		s.create(&pb.WatchCreateRequest{Key: []byte("k")})
		s.create(&pb.WatchCreateRequest{Key: []byte("quiet")})
		synctest.Wait()
		s.hold(true)
		for range 200 {
			m.put("k", strings.Repeat("v", 100))
		}
		synctest.Wait()
		if _, _, behind := s.h.size(); behind != 1 {
			t.Errorf("%d watches are said to be behind, want 1", behind)
		}
		last := m.revision()
		if err := m.compact(last - 1); err != nil {
			t.Fatal(err)
		}
		s.hold(false)
		synctest.Wait()
		m.txn(putOp("k", "after"), putOp("quiet", "after"))
		synctest.Wait()
		mine := of(s.received(), 0)
		end := mine[len(mine)-1]
		if !end.Canceled || end.CompactRevision != last-1 {
			t.Errorf("ends with %v, want it cancelled with compact_revision %d", end, last-1)
		}
		if n := s.h.lost.Load(); n != 1 {
			t.Errorf("%d watches are counted as compacted away, want 1", n)
		}
		for id, key := range []string{"k", "quiet"} {
			story := &watchStory{want: spec{key: key}, start: 2, seen: of(s.received(), int64(id))}
			if err := checkWatch(story, m.all(), m.revision()); err != nil {
				t.Errorf("watch of %s: %v", key, err)
			}
		}
		// Resuming from there works.
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: end.CompactRevision})
		synctest.Wait()
		story := &watchStory{want: spec{key: "k"}, start: end.CompactRevision, seen: of(s.received(), 2)}
		if err := checkWatch(story, m.all(), m.revision()); err != nil {
			t.Errorf("resumed: %v", err)
		}
	})
}

// A server that catches up by a snapshot jumps over revisions. Where its new state
// still has them they are told; else the watches that need them are cancelled.
func TestStateThatJumps(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted %t", compacted), func(t *testing.T) {
			hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
				s.create(&pb.WatchCreateRequest{Key: []byte("k")})
				s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 300})
				m.put("k", "before")
				synctest.Wait()
				// The state is away while it changes elsewhere.
				m.mu.Lock()
				keys := m.keys
				m.mu.Unlock()
				elsewhere := newKeyModel(t)
				elsewhere.keys = keys
				for range 250 {
					elsewhere.put("k", "elsewhere")
				}
				if compacted {
					if err := elsewhere.compact(200); err != nil {
						t.Fatal(err)
					}
				}
				m.mu.Lock()
				m.happened = append(m.happened, elsewhere.happened...)
				signal(m.wake)
				m.mu.Unlock()
				synctest.Wait()
				for range 100 {
					m.put("k", "after")
				}
				synctest.Wait()
				got := s.received()
				mine := of(got, 0)
				if end := mine[len(mine)-1]; end.Canceled != compacted || compacted && end.CompactRevision != 200 {
					t.Errorf("ends with %v", end)
				}
				for id, start := range []int64{2, 300} {
					story := &watchStory{want: spec{key: "k"}, start: start, seen: of(got, int64(id))}
					if err := checkWatch(story, m.all(), m.revision()); err != nil {
						t.Errorf("from %d: %v", start, err)
					}
				}
			})
		})
	}
}

// A client that asks and does not read is not listened to for ever.
func TestRequestsOfAClientThatDoesNotRead(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
		s.hold(true)
		heard := 0
		for heard < 10*s.h.limits.controls {
			if s.controls.Load() >= int64(s.h.limits.controls) {
				break
			}
			s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: -1})
			heard++
		}
		if heard > s.h.limits.controls+1 {
			t.Errorf("%d answers wait, want at most %d", heard, s.h.limits.controls)
		}
		waited := make(chan error, 1)
		go func() { waited <- s.waitRoom(t.Context()) }()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("the next request is taken while nothing is read")
		default:
		}
		s.hold(false)
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}

// Watchers that asked are told how far they are when nothing happens for ten
// minutes; who has heard an event in that time is not.
func TestProgressIsToldToQuietWatchers(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
		s.create(&pb.WatchCreateRequest{Key: []byte("quiet"), ProgressNotify: true})
		s.create(&pb.WatchCreateRequest{Key: []byte("busy"), ProgressNotify: true})
		s.create(&pb.WatchCreateRequest{Key: []byte("quiet")})
		marks := func(id int64) (n int) {
			for _, r := range of(s.received(), id) {
				if !r.Created && len(r.Events) == 0 {
					n++
					if r.Header.Revision != m.revision() {
						t.Errorf("mark at %d, want %d", r.Header.Revision, m.revision())
					}
				}
			}
			return n
		}
		m.put("busy", "1")
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if n := marks(0); n != 0 {
			t.Errorf("%d marks after 9 minutes", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if quiet, busy, never := marks(0), marks(1), marks(2); quiet != 1 || busy != 0 || never != 0 {
			t.Errorf("after 11 minutes: %d marks for the quiet one, %d for the busy one, %d for who did not ask", quiet, busy, never)
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if quiet, busy := marks(0), marks(1); quiet != 2 || busy != 1 {
			t.Errorf("after 22 minutes: %d marks for the quiet one, %d for the other", quiet, busy)
		}
	})
}
