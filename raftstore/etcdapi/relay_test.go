package etcdapi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// writers put keys of their own through one server, each key once, and remember
// what they were told.
type writers struct {
	group   sync.WaitGroup
	stop    chan struct{}
	acked   sync.Map // key → revision
	done    atomic.Int64
	unknown atomic.Int64
	odd     sync.Map // errors that no client should see
}

func (w *writers) start(s *testServer, n int) {
	for i := range n {
		w.group.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-w.stop:
					return
				default:
				}
				key := fmt.Sprintf("%s/%d/%d", s.id, i, j)
				ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
				resp, err := s.kv().Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte(key)})
				stop()
				switch {
				case err == nil:
					w.acked.Store(key, resp.Header.Revision)
					w.done.Add(1)
				case status.Code(err) == codes.Canceled:
					w.unknown.Add(1)
					return // the server was killed
				case status.Code(err) == codes.Unavailable:
					w.unknown.Add(1)
				default:
					w.odd.Store(err.Error(), key)
				}
			}
		})
	}
}

// Writes through every server, while the leadership moves and then its holder
// dies: what was acknowledged is there, and nothing was done twice.
func TestRelayUnderLeaderChanges(t *testing.T) {
	c := startCluster(t, 3, options{})
	w := &writers{stop: make(chan struct{})}
	for _, s := range c.servers {
		w.start(s, 4)
	}
	progress := func(what string) {
		t.Helper()
		from := w.done.Load()
		eventually(t, "writes go on "+what, func() bool { return w.done.Load() > from+60 })
	}
	progress("at first")
	for range 3 {
		lead, to := c.leader(t), c.follower(t)
		if err := lead.store.TransferLeadership(testContext(t), to.store.Self()); err != nil {
			t.Logf("transfer: %v", err)
		}
		c.leader(t)
		progress("after a transfer")
	}
	moved := w.unknown.Load()
	dead := c.leader(t)
	dead.kill()
	progress("after the leader's death")
	close(w.stop)
	w.group.Wait()
	w.odd.Range(func(err, key any) bool {
		t.Errorf("%s: %s", key, err)
		return true
	})
	if moved > 0 {
		t.Logf("%d writes had no outcome while the leadership moved", moved)
	}

	var s *testServer
	for _, s = range c.servers {
		if s != dead {
			break
		}
	}
	resp, err := s.kv().Range(testContext(t), &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]int64{}
	for _, kv := range resp.Kvs {
		there[string(kv.Key)] = kv.ModRevision
		if kv.Version != 1 {
			t.Errorf("%s was put %d times", kv.Key, kv.Version)
		}
	}
	n := 0
	w.acked.Range(func(key, revision any) bool {
		n++
		if there[key.(string)] != revision {
			t.Errorf("%s was acknowledged at revision %d, it is there at %d", key, revision, there[key.(string)])
		}
		return true
	})
	if int64(n) != w.done.Load() || n == 0 {
		t.Errorf("%d keys, %d acknowledged", n, w.done.Load())
	}
	t.Logf("%d writes acknowledged, %d without an outcome, %d there", n, w.unknown.Load(), len(there))
}

// stuck is a leader's store whose proposals do not come back.
type stuck struct {
	Store
	hold atomic.Bool
	in   chan struct{} // a proposal, or a question for an index, came in
}

func (s *stuck) ReadIndex(ctx context.Context) (uint64, error) {
	if !s.hold.Load() {
		return s.Store.ReadIndex(ctx)
	}
	s.in <- struct{}{}
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

func (s *stuck) ReadIndexFor(ctx context.Context, server string, term uint64) (uint64, error) {
	if !s.hold.Load() {
		return s.Store.ReadIndexFor(ctx, server, term)
	}
	return s.ReadIndex(ctx)
}

func (s *stuck) Propose(ctx context.Context, cmds ...state.Command) ([]state.Result, error) {
	if !s.hold.Load() {
		return s.Store.Propose(ctx, cmds...)
	}
	s.in <- struct{}{}
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", raftstore.ErrUnknownOutcome, context.Cause(ctx))
}

// startStuck is a cluster of servers whose stores can be made to hold on.
func startStuck(t *testing.T) (lead, follower *testServer, store *stuck) {
	t.Helper()
	stores := map[string]*stuck{}
	c := startCluster(t, 3, options{api: func(cfg *Config) {
		s := &stuck{Store: cfg.Store, in: make(chan struct{}, 16)}
		stores[cfg.ServerID], cfg.Store = s, s
	}})
	lead, follower = c.leader(t), c.follower(t)
	put(t, follower.kv(), "before", "v") // the stream is there
	stores[lead.id].hold.Store(true)
	return lead, follower, stores[lead.id]
}

// A write that was under way when the connection to the leader broke has an
// unknown outcome: its caller is told so, at once, and it is not tried again.
func TestWriteUnderWayIsNotTriedAgain(t *testing.T) {
	lead, s, store := startStuck(t)
	done := make(chan error, 1)
	ctx := testContext(t)
	go func() {
		_, err := s.kv().Put(ctx, &pb.PutRequest{Key: []byte("k")})
		done <- err
	}()
	<-store.in
	lead.net.cut() // the API's connections; Raft goes on
	wantStatus(t, "put", <-done, rpctypes.ErrGRPCTimeoutDueToConnectionLost)
	select {
	case <-store.in:
		t.Error("the leader was asked again")
	default:
	}
}

// Who goes away, or has no more time, is not worked for.
func TestCancelReachesTheLeader(t *testing.T) {
	_, s, store := startStuck(t)
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		_, err := s.kv().Put(ctx, &pb.PutRequest{Key: []byte("k")})
		done <- err
	}()
	<-store.in
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("put: %v", err)
	}
	eventually(t, "the follower forgets the call", func() bool {
		st := s.api.relay.stream()
		st.mu.Lock()
		defer st.mu.Unlock()
		return len(st.sent) == 0 && len(st.cancels) == 0
	})
	store.hold.Store(false)
	put(t, s.kv(), "after", "v")
}

// The leader never hands on: what reaches one that leads no more comes back.
func TestFollowerAnswersNotDone(t *testing.T) {
	c := startCluster(t, 3, options{})
	s := c.follower(t)
	st := newRelayStream(s.api, s.id, s.addr) // to itself, who does not lead
	go st.run()
	defer st.retire()
	if a := st.ask(testContext(t), methodPut, nil); a.err != errNotDone {
		t.Errorf("answer %v, want %v", a.err, errNotDone)
	}
	if a := st.ask(testContext(t), 99, nil); status.Code(a.err) != codes.Unavailable || !strings.Contains(a.err.Error(), "not all servers") {
		t.Errorf("a method that is not known: %v", a.err)
	}
}

// A question that has been sent may be answered with what was before the read.
func TestReaderDoesNotJoinAQuestionThatWasSent(t *testing.T) {
	_, s, store := startStuck(t)
	ctx, cancel := context.WithCancel(testContext(t))
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() { _ = s.api.read(ctx, func(*state.State) {}) })
		select {
		case <-store.in:
		case <-ctx.Done():
			t.Error("the leader was not asked")
		}
	}
	cancel()
	group.Wait()
	store.hold.Store(false)
}

// Readers that wait share questions to the leader.
func TestReadersShareQuestions(t *testing.T) {
	c := startCluster(t, 3, options{})
	s := c.follower(t)
	put(t, s.kv(), "k", "v")
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for range 20 {
				if err := s.api.read(testContext(t), func(*state.State) {}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	st := s.api.relay.stream()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lastID > 700 {
		t.Errorf("%d calls to the leader for 1280 reads by 64 readers", st.lastID)
	}
}
