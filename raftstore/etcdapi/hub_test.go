package etcdapi

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// leftBehind fails the test if goroutines are left when its clean-ups are done.
func leftBehind(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// randomRequest is a watch of some keys among those that randomOps changes.
func randomRequest(random *rand.Rand) *pb.WatchCreateRequest {
	r := &pb.WatchCreateRequest{
		PrevKv: random.IntN(2) == 0, Fragment: random.IntN(3) == 0, Key: fmt.Appendf(nil, "k%d", random.IntN(8)),
	}
	switch random.IntN(5) {
	case 0:
		r.Key, r.RangeEnd = []byte("k"), []byte("l")
	case 1:
		r.RangeEnd = []byte{0}
	case 2:
		r.RangeEnd = append([]byte(nil), r.Key...)
		r.RangeEnd[1] += 3
	}
	switch random.IntN(6) {
	case 0:
		r.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	case 1:
		r.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}
	}
	return r
}

// change does one random transaction of up to three operations.
func (m *keyModel) change(random *rand.Rand) int64 {
	var ops []mvcc.Op
	for _, i := range random.Perm(8)[:1+random.IntN(3)] {
		key := fmt.Sprintf("k%d", i)
		if random.IntN(4) == 0 {
			ops = append(ops, delOp(key, ""))
		} else {
			ops = append(ops, putOp(key, strings.Repeat("v", random.IntN(200))))
		}
	}
	return m.txn(ops...)
}

// Watches of all forms, begun at any time and at any revision of the past, the
// present and the future, while four writers write: each is told everything from
// there on, in order, once, whatever falls behind in between.
func TestWatchersAreToldEverythingOnce(t *testing.T) {
	leftBehind(t)
	m := newKeyModel(t)
	h := m.startHub(testLimits())
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		m.change(random)
	}
	var writers sync.WaitGroup
	for seed := range uint64(4) {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(seed, 5))
			for range 400 {
				m.change(random)
			}
		})
	}
	type opened struct {
		s       *testStream
		stories []*watchStory
	}
	var streams []opened
	for range 20 {
		o := opened{s: m.open(h)}
		for range 1 + random.IntN(12) {
			r := randomRequest(random)
			switch now := m.revision(); random.IntN(3) {
			case 0:
				r.StartRevision = 1 + random.Int64N(now)
			case 1:
				r.StartRevision = now + random.Int64N(20)
			}
			o.s.create(r)
			sp, _ := specOf(r)
			o.stories = append(o.stories, &watchStory{want: sp, start: r.StartRevision})
			if random.IntN(4) == 0 {
				o.s.askProgress()
			}
		}
		streams = append(streams, o)
	}
	writers.Wait()
	for range 20 { // beyond what was the future
		m.change(random)
	}
	last := m.revision()
	happened := m.all()
	messages := 0
	for _, o := range streams {
		o.s.askProgress()
		got := o.s.wait(func(got []*pb.WatchResponse) bool {
			n := len(got)
			return n > 0 && got[n-1].WatchId == allWatchers && got[n-1].Header.Revision >= last
		})
		for id, story := range o.stories {
			story.seen = of(got, int64(id))
			if err := checkWatch(story, happened, last); err != nil {
				t.Errorf("watch %+v from %d: %v", story.want, story.start, err)
			}
		}
		messages += len(got)
		o.s.end()
	}
	t.Logf("%d revisions, %d messages", last, messages)
}

// The answer that a watch is created comes before any event of it, and its header
// says from where on "now" is.
func TestCreatedComesFirst(t *testing.T) {
	m := newKeyModel(t)
	h := m.startHub(testLimits())
	stop, writers := make(chan struct{}), sync.WaitGroup{}
	var ahead atomic.Int64 // values that may be put until the next watch is created
	for range 2 {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if ahead.Add(-1) >= 0 {
					m.put("k", "v")
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	const watches = 40
	s := m.open(h)
	for i := range int64(watches) {
		ahead.Store(400)
		start := int64(0)
		if i%2 == 1 {
			start = m.revision()
		}
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: start, PrevKv: i%3 == 0})
	}
	close(stop)
	writers.Wait()
	last := m.put("k", "last")
	s.askProgress()
	got := s.wait(func(got []*pb.WatchResponse) bool {
		n := len(got)
		return n > 0 && got[n-1].WatchId == allWatchers && got[n-1].Header.Revision >= last
	})
	happened := m.all()
	for i := range int64(watches) {
		mine := of(got, i)
		story := &watchStory{want: spec{key: "k", prev: i%3 == 0}, seen: mine}
		if i%2 == 1 {
			story.start = mine[0].Header.Revision // at or above what was asked for
			for _, m := range mine[1:] {
				if len(m.Events) > 0 {
					story.start = min(story.start, m.Events[0].Kv.ModRevision)
				}
			}
		}
		if err := checkWatch(story, happened, last); err != nil {
			t.Errorf("watch %d: %v", i, err)
		}
	}
}

// hubStory gives a test in fake time one stream and a hub.
func hubStory(t *testing.T, test func(t *testing.T, m *keyModel, s *testStream)) {
	synctest.Test(t, func(t *testing.T) {
		m := newKeyModel(t)
		limits := testLimits()
		s := m.open(m.startHub(limits))
		test(t, m, s)
	})
}

func TestIDsAreChosenAndGiven(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
		for _, id := range []int64{0, 1, 0, 0, 7, 7, 2} {
			s.create(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: id})
		}
		synctest.Wait()
		var got []string
		for _, r := range s.received() {
			got = append(got, fmt.Sprintf("%d %t %t %s", r.WatchId, r.Created, r.Canceled, r.CancelReason))
		}
		want := []string{
			"0 true false ", "1 true false ", "2 true false ", "3 true false ", "7 true false ",
			"-1 true true " + duplicateID, "-1 true true " + duplicateID,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

func TestCancelIsAnsweredAndEndsEvents(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
		s.create(&pb.WatchCreateRequest{Key: []byte("k")})
		s.create(&pb.WatchCreateRequest{Key: []byte("k")})
		m.put("k", "1")
		synctest.Wait()
		s.stop(0)
		s.stop(9) // is none: ignored
		m.put("k", "2")
		synctest.Wait()
		mine := of(s.received(), 0)
		if n := len(mine); n != 3 || !mine[2].Canceled || mine[2].CancelReason != "" || mine[2].CompactRevision != 0 {
			t.Errorf("the cancelled watch got %v", mine)
		}
		if mine := of(s.received(), 1); len(mine) != 3 {
			t.Errorf("the other got %v", mine)
		}
		// Its id is free again, for who asks for it.
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: 1})
		s.stop(1)
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: 1})
		synctest.Wait()
		if got := s.received(); got[len(got)-1].Canceled {
			t.Errorf("an id that was cancelled: %v", got[len(got)-1])
		}
	})
}

func TestEmptyRangesAndNegativeStartsAreRefused(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("k")})
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("a")})
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: -1})
		synctest.Wait()
		for i, reason := range []string{emptyRange, emptyRange, "etcdserver: mvcc: required revision has been compacted"} {
			r := s.received()[i]
			if r.WatchId != -1 || !r.Created || !r.Canceled || r.CancelReason != reason || r.Header.Revision != 1 {
				t.Errorf("answer %d: %v, want reason %q", i, r, reason)
			}
		}
	})
}

// A watch of a future revision is told nothing below it, neither events nor marks.
func TestFutureStartHearsNothingBelowIt(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 5, ProgressNotify: true})
		for i := range 3 {
			m.put("k", fmt.Sprint(i))
		}
		s.askProgress()
		time.Sleep(12 * time.Minute)
		synctest.Wait()
		if got := s.received(); len(got) != 1 || !got[0].Created {
			t.Errorf("before its revision it got %v", got)
		}
		m.txn(putOp("k", "5"), putOp("l", "5"))
		synctest.Wait()
		story := &watchStory{want: spec{key: "k"}, start: 5, seen: s.received()}
		if err := checkWatch(story, m.all(), 5); err != nil {
			t.Error(err)
		}
	})
}

// A batch of events may begin below the start of a watch, and end above it.
func TestFutureStartWithinABatch(t *testing.T) {
	m := newKeyModel(t)
	h := newHub(m.view, testLimits())
	s := m.open(h)
	s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 4})
	s.create(&pb.WatchCreateRequest{Key: []byte("k")})
	for range 5 {
		m.put("k", "v")
	}
	for h.step() {
	}
	got := s.wait(func(got []*pb.WatchResponse) bool { return reached(0, 6)(got) && reached(1, 6)(got) })
	for id, start := range []int64{4, 2} {
		story := &watchStory{want: spec{key: "k"}, start: start, seen: of(got, int64(id))}
		if err := checkWatch(story, m.all(), 6); err != nil {
			t.Errorf("from %d: %v", start, err)
		}
	}
}

func TestPreviousPairs(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
		for _, prev := range []bool{true, false} {
			s.create(&pb.WatchCreateRequest{Key: []byte("k"), PrevKv: prev})
		}
		m.put("k", "1")
		m.put("k", "2")
		m.txn(delOp("k", ""))
		synctest.Wait()
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), PrevKv: true, StartRevision: 2})
		synctest.Wait()
		values := func(id int64) (got []string) {
			for _, r := range of(s.received(), id) {
				for _, e := range r.Events {
					got = append(got, fmt.Sprintf("%s:%s", e.PrevKv.GetValue(), e.Kv.Value))
				}
			}
			return got
		}
		for id, want := range []string{"[:1 1:2 2:]", "[:1 :2 :]", "[:1 1:2 2:]"} {
			if got := fmt.Sprint(values(int64(id))); got != want {
				t.Errorf("watch %d got %s, want %s", id, got, want)
			}
		}
	})
}

// Only who asks for fragments gets the events of a revision in more than one
// message, and its last one says so.
func TestFragments(t *testing.T) {
	hubStory(t, func(t *testing.T, m *keyModel, s *testStream) {
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), Fragment: true})
		s.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l")})
		var ops []mvcc.Op
		for i := range 8 {
			ops = append(ops, putOp(fmt.Sprintf("k%d", i), strings.Repeat("v", 400)))
		}
		m.txn(ops...)
		synctest.Wait()
		parts := of(s.received(), 0)[1:]
		if len(parts) != 4 {
			t.Fatalf("3,200 bytes in fragments of 1,024 came in %d", len(parts))
		}
		events := 0
		for i, p := range parts {
			if events += len(p.Events); p.Fragment != (i < len(parts)-1) || p.Header.Revision != 2 {
				t.Errorf("part %d: fragment %t, revision %d", i, p.Fragment, p.Header.Revision)
			}
		}
		whole := of(s.received(), 1)[1:]
		if events != 8 || len(whole) != 1 || len(whole[0].Events) != 8 || whole[0].Fragment {
			t.Errorf("%d events in parts, %d messages for who did not ask", events, len(whole))
		}
	})
}

// Watchers that want the same are given the same bytes: an event is encoded once,
// however many watch it.
func TestOneEncodingForAllWatchers(t *testing.T) {
	m := newKeyModel(t)
	h := newHub(m.view, defaultLimitsForTest())
	streams := []*watchStream{h.newStream(access.Anybody()), h.newStream(access.Anybody())}
	for i := range 1000 {
		h.create(streams[i%2], &pb.WatchCreateRequest{Key: []byte("k")})
	}
	m.put("k", strings.Repeat("v", 10_000))
	for h.step() {
	}
	seen := map[*payload]int{}
	for _, s := range streams {
		for _, it := range s.queue {
			if it.payload != nil {
				seen[it.payload]++
			}
		}
		if n := s.bytes.Load(); n > 100_000 {
			t.Errorf("10 KB for 500 watchers of a stream count as %d bytes", n)
		}
	}
	if len(seen) != 1 {
		t.Errorf("one event for 1,000 watchers is encoded %d times", len(seen))
	}
	for _, n := range seen {
		if n != 1000 {
			t.Errorf("%d of 1,000 watchers have it", n)
		}
	}
}

func defaultLimitsForTest() hubLimits {
	limits := defaultLimits()
	limits.packing.header, limits.packing.fragment = testLimits().packing.header, 2<<20
	return limits
}
