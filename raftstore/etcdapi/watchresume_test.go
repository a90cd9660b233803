package etcdapi

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// resumeAt is where a client goes on that has seen these messages: after the last
// revision that it was told in full.
func resumeAt(seen []*pb.WatchResponse, start int64) int64 {
	next := start
	var open int64 // a revision of which fragments are still to come
	for _, m := range seen {
		switch {
		case m.Created:
			if next == 0 {
				next = m.Header.Revision + 1
			}
			open = 0
		case m.Fragment:
			open = m.Events[0].Kv.ModRevision
		default:
			next, open = max(next, m.Header.Revision+1), 0
		}
		if open != 0 {
			next = max(next, open)
		}
	}
	return next
}

// O-55: a mark for a revision comes when all events up to it have come. A thousand
// revisions of history are watched, the mark asked for at once and the connection
// dropped at random, often right after the mark: what is resumed from there is all
// of the rest, once.
func TestO55MarkIsNotAheadOfEvents(t *testing.T) {
	m := newKeyModel(t)
	random := rand.New(rand.NewPCG(8, 9))
	for range 1000 {
		m.put("k", "v")
	}
	h := m.startHub(testLimits())
	happened, last := m.all(), m.revision()
	marks := 0
	for run := range 100 {
		story := &watchStory{want: spec{key: "k"}, start: 2}
		for next := story.start; next <= last; next = resumeAt(story.seen, story.start) {
			s := m.open(h)
			s.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: next})
			s.askProgress()
			atMark, messages := random.IntN(2) == 0, 1+random.IntN(40)
			got := s.wait(func(got []*pb.WatchResponse) bool {
				n := len(got)
				mark := n > 0 && got[n-1].WatchId == allWatchers
				return mark || !atMark && n >= messages
			})
			s.end()
			if got[len(got)-1].WatchId == allWatchers {
				marks++
			}
			story.seen = append(story.seen, of(got, 0)...)
		}
		if err := checkWatch(story, happened, last); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
	}
	if marks == 0 {
		t.Error("no connection lasted until the mark")
	}
}

// Clients that lose their connection again and again, while others write and
// compact: each goes on without a gap or a repetition, or is told that what it
// needs is gone and where it can begin again.
func TestRandomDisconnectsAndCompactions(t *testing.T) {
	leftBehind(t)
	m := newKeyModel(t)
	h := m.startHub(testLimits())
	stop, writer := make(chan struct{}), sync.WaitGroup{}
	writer.Go(func() {
		random := rand.New(rand.NewPCG(10, 11))
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if now := m.change(random); i%100 == 0 {
				_ = m.compact(now - random.Int64N(90)) // at or below the last is refused
			}
			runtime.Gosched()
		}
	})
	var clients sync.WaitGroup
	resumes, cancelled := make([]int, 6), make([]int, 6)
	for c := range 6 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 12))
			request := randomRequest(random)
			sp, _ := specOf(request)
			story := &watchStory{want: sp}
			for round := range 80 {
				over := round == 79
				if random.IntN(8) == 0 { // away for a while
					for back := m.revision() + 150; m.revision() < back; {
						runtime.Gosched()
					}
				}
				request.StartRevision = resumeAt(story.seen, story.start)
				s := m.open(h)
				s.hold(random.IntN(3) == 0)
				s.create(request)
				last := m.put("other", "") // so that its start is no longer in the future
				s.askProgress()
				messages := 1 + random.IntN(30)
				s.hold(false)
				got := s.wait(func(got []*pb.WatchResponse) bool {
					n := len(got)
					mark := n > 0 && got[n-1].WatchId == allWatchers && got[n-1].Header.Revision >= last
					return mark || n > 0 && got[n-1].Canceled || !over && n >= messages
				})
				s.end()
				mine := of(got, 0)
				if i := slices.IndexFunc(mine, (*pb.WatchResponse).GetCanceled); i >= 0 {
					mine = mine[:i+1] // marks of the stream may follow
				}
				story.seen = append(story.seen, mine...)
				resumes[c]++
				if end := mine[len(mine)-1]; end.Canceled {
					cancelled[c]++
					if err := checkWatch(story, m.all(), 0); err != nil {
						t.Errorf("client %d, %+v: %v", c, sp, err)
					}
					story = &watchStory{want: sp, start: end.CompactRevision}
				} else if over {
					if err := checkWatch(story, m.all(), last); err != nil {
						t.Errorf("client %d, %+v: %v", c, sp, err)
					}
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	writer.Wait()
	if slices.Max(cancelled) == 0 {
		t.Error("compaction met nobody")
	}
	t.Logf("streams by client %v, of which compacted %v", resumes, cancelled)
}
