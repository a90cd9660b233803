package etcdapi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// keyModel is a store of keys under a lock, as the state is, and everything that
// ever happened in it.
type keyModel struct {
	t    testing.TB
	wake chan struct{}

	mu       sync.RWMutex
	keys     *mvcc.Store
	happened []mvcc.Event
}

func newKeyModel(t testing.TB) *keyModel {
	return &keyModel{t: t, keys: mvcc.New(), wake: make(chan struct{}, 1)}
}

func (m *keyModel) view(fn func(past)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	fn(m.keys)
}

func (m *keyModel) txn(ops ...mvcc.Op) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	u, err := m.keys.Txn(&mvcc.Txn{Success: ops}, func(int64) bool { return true }, 0)
	if err != nil {
		m.t.Error(err)
	}
	m.happened = append(m.happened, u.Events...)
	signal(m.wake)
	return m.keys.Revision()
}

func putOp(key, value string) mvcc.Op {
	return mvcc.Op{Put: &mvcc.PutOp{Key: []byte(key), Value: []byte(value)}}
}

func delOp(key, end string) mvcc.Op {
	return mvcc.Op{Delete: &mvcc.DeleteOp{Key: []byte(key), End: []byte(end)}}
}

func (m *keyModel) put(key, value string) int64 { return m.txn(putOp(key, value)) }

func (m *keyModel) compact(revision int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer signal(m.wake)
	return m.keys.Compact(revision)
}

func (m *keyModel) revision() (r int64) {
	m.view(func(p past) { r = p.Revision() })
	return r
}

func (m *keyModel) all() []mvcc.Event {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.happened)
}

// testLimits are small, so that little is needed to reach them.
func testLimits() hubLimits {
	limits := defaultLimits()
	limits.events, limits.revisions, limits.queue = 16, 32, 4096
	limits.packing = packing{
		header:  func(r int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: r} },
		message: 512, fragment: 1024,
	}
	return limits
}

// startHub runs a hub until the test ends.
func (m *keyModel) startHub(limits hubLimits) *hub {
	h := newHub(m.view, limits)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { h.run(ctx, m.wake) })
	m.t.Cleanup(func() { cancel(); group.Wait() })
	return h
}

// testStream is a stream whose client is a slice. hold makes the client stop
// reading.
type testStream struct {
	*watchStream
	end func()

	mu   sync.Mutex
	more *sync.Cond
	got  []*pb.WatchResponse
	held bool
	gone bool
}

var errTestEnded = fmt.Errorf("the client has gone")

// open opens a stream; end ends it, as the test's end does.
func (m *keyModel) open(h *hub) *testStream {
	s := &testStream{watchStream: h.newStream(access.Anybody())}
	s.more = sync.NewCond(&s.mu)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = s.send(ctx, s.take1) })
	s.end = sync.OnceFunc(func() {
		cancel()
		s.mu.Lock()
		s.gone = true
		s.more.Broadcast()
		s.mu.Unlock()
		group.Wait()
		h.drop(s.watchStream)
	})
	m.t.Cleanup(s.end)
	return s
}

// take1 is the client: it decodes what it is sent, as a client does.
func (s *testStream) take1(m *pb.WatchResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held && !s.gone {
		s.more.Wait()
	}
	if s.gone {
		return errTestEnded
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	decoded := &pb.WatchResponse{}
	if err := proto.Unmarshal(b, decoded); err != nil {
		return err
	}
	s.got = append(s.got, decoded)
	s.more.Broadcast()
	return nil
}

func (s *testStream) hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	s.more.Broadcast()
}

// wait returns what has come when enough says so, or after a long while: then what
// is missing is for the caller to find.
func (s *testStream) wait(enough func(got []*pb.WatchResponse) bool) []*pb.WatchResponse {
	const long = time.Minute
	end := time.Now().Add(long)
	defer time.AfterFunc(long, s.more.Broadcast).Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !enough(s.got) && time.Now().Before(end) {
		s.more.Wait()
	}
	return slices.Clone(s.got)
}

// received is what has come so far.
func (s *testStream) received() []*pb.WatchResponse {
	return s.wait(func([]*pb.WatchResponse) bool { return true })
}

func (s *testStream) create(r *pb.WatchCreateRequest) {
	s.h.request(s.watchStream, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
}

func (s *testStream) askProgress() {
	s.h.request(s.watchStream, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (s *testStream) stop(id int64) {
	s.h.request(s.watchStream, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

// of are the messages of one watch. Marks for all watches count for each, once it is
// created.
func of(got []*pb.WatchResponse, id int64) (mine []*pb.WatchResponse) {
	for _, m := range got {
		if m.WatchId == id || len(mine) > 0 && m.WatchId == allWatchers && !m.Created {
			mine = append(mine, m)
		}
	}
	return mine
}

// reached says that a watch has been told an event of a revision.
func reached(id, revision int64) func([]*pb.WatchResponse) bool {
	return func(got []*pb.WatchResponse) bool {
		for _, m := range got {
			if m.WatchId == id && len(m.Events) > 0 && !m.Fragment && m.Events[len(m.Events)-1].Kv.ModRevision >= revision {
				return true
			}
		}
		return false
	}
}
