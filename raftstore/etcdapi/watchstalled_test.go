package etcdapi

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// O-56: a hundred streams watch one prefix, and one is never read, while 50,000
// values of 1 KB are written. What the server keeps for it stays within the stated
// 4 MiB of queue, the others get everything (one is looked at in full), and writing takes no longer than
// without it. Read at last, it catches up without a hole.
func TestO56SubscriberThatNeverReads(t *testing.T) {
	leftBehind(t)
	const values, watchers = 50_000, 100
	m := newKeyModel(t)
	h := m.startHub(defaultLimitsForTest())
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() { stop(); group.Wait() })

	var told sync.WaitGroup // the readers that have seen the last value
	for range watchers - 2 {
		s := h.newStream(access.Anybody())
		t.Cleanup(func() { h.drop(s) })
		told.Add(1)
		seen := 0
		group.Go(func() {
			_ = s.send(ctx, func(m *pb.WatchResponse) error {
				if n := countEvents(m); n > 0 {
					if seen += n; seen == values {
						told.Done()
					}
				}
				return nil
			})
		})
		h.create(s, &pb.WatchCreateRequest{Key: []byte("p/"), RangeEnd: []byte("p0")})
	}

	write := func(n int) (slowest time.Duration) {
		value := strings.Repeat("v", 1024)
		for i := range n {
			began := time.Now()
			m.put(fmt.Sprintf("p/%d", i%1000), value)
			slowest = max(slowest, time.Since(began))
			if i%64 == 0 {
				runtime.Gosched()
			}
		}
		return slowest
	}
	checked := m.open(h)
	checked.create(&pb.WatchCreateRequest{Key: []byte("p/"), RangeEnd: []byte("p0")})
	free := write(values / 2)
	stalled := m.open(h)
	stalled.hold(true)
	stalled.create(&pb.WatchCreateRequest{Key: []byte("p/"), RangeEnd: []byte("p0"), StartRevision: 2})
	beside := write(values / 2)
	told.Wait()

	if n, limit := stalled.bytes.Load(), int64(4<<20); n > limit {
		t.Errorf("%d bytes wait for the stream that is not read, want at most %d", n, limit)
	}
	t.Logf("slowest write without it %v, beside it %v", free, beside)
	if beside > max(10*free, 5*time.Second) {
		t.Errorf("the slowest write took %v beside a stream that is not read, and %v without", beside, free)
	}
	stalled.hold(false)
	last := m.revision()
	for _, s := range []*testStream{checked, stalled} {
		story := &watchStory{want: spec{key: "p/", end: "p0", ranged: true}, start: 2, seen: of(s.wait(reached(0, last)), 0)}
		if err := checkWatch(story, m.all(), last); err != nil {
			t.Errorf("stalled %t: %v", s == stalled, err)
		}
	}
}

// countEvents counts without decoding.
func countEvents(m *pb.WatchResponse) (n int) {
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, _, size := protowire.ConsumeField(b)
		if size < 0 {
			panic(protowire.ParseError(size))
		}
		if number == fieldEvents {
			n++
		}
		b = b[size:]
	}
	return n
}

// A large value for many watchers of a stream is in its queue once.
func TestSharedBytesCountOnce(t *testing.T) {
	m := newKeyModel(t)
	h := newHub(m.view, defaultLimitsForTest())
	s := h.newStream(access.Anybody())
	for range 1000 {
		h.create(s, &pb.WatchCreateRequest{Key: []byte("k")})
	}
	value := strings.Repeat("v", 1<<20)
	for range 3 {
		m.put("k", value)
	}
	for h.step() {
	}
	if s.lagging > 0 {
		t.Errorf("three values of 1 MiB made %d of 1,000 watchers fall behind", s.lagging)
	}
}

// What a batch holds is bounded, however large the values are.
func TestHubReadsLargeValuesInPieces(t *testing.T) {
	m := newKeyModel(t)
	h := newHub(m.view, defaultLimitsForTest())
	s := h.newStream(access.Anybody())
	h.create(s, &pb.WatchCreateRequest{Key: []byte("k")})
	value := strings.Repeat("v", 1<<20)
	for range 50 {
		m.txn(mvcc.Op{Put: &mvcc.PutOp{Key: []byte("k"), Value: []byte(value)}})
	}
	steps := 1
	for ; h.step(); steps++ {
		if h.revision > int64(6*steps+1) {
			t.Fatalf("%d values of 1 MiB in %d steps", h.revision-1, steps)
		}
	}
	if h.revision != 51 {
		t.Errorf("the hub is at %d", h.revision)
	}
}
