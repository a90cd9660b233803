package etcdapi

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// do writes a command at whoever leads.
func (c *testCluster) do(t testing.TB, cmd state.Command) (res state.Result) {
	t.Helper()
	eventually(t, "a leader that takes a command", func() bool {
		results, err := c.leader(t).store.Propose(testContext(t), cmd)
		if err == nil {
			res = results[0]
		}
		return err == nil
	})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	return res
}

// grant opens a session.
func (c *testCluster) grant(t testing.TB, id int64) int64 {
	t.Helper()
	c.do(t, &state.GrantLease{Session: state.SessionID(id), TTL: 600})
	return id
}

func (c *testCluster) put(t testing.TB, key, value string, lease int64) {
	t.Helper()
	c.do(t, &state.Transact{Txn: mvcc.Txn{Success: []mvcc.Op{{Put: &mvcc.PutOp{Key: []byte(key), Value: []byte(value), Lease: lease}}}}})
}

// pair as the leader has it.
func (c *testCluster) pair(t testing.TB, key string) (kv *mvcc.KeyValue) {
	t.Helper()
	c.leader(t).store.View(func(s *state.State) { kv = s.Keys().Get([]byte(key)) })
	return kv
}

// locking is one Lock call on its way.
type locking struct {
	t     testing.TB
	done  chan struct{}
	resp  *v3lockpb.LockResponse
	token uint64
	err   error
}

// lock begins a call; its place is in the log when this returns.
//
//nolint:revive // t comes first in all helpers
func (c *testCluster) lock(t testing.TB, ctx context.Context, s *testServer, name string, lease int64) *locking {
	t.Helper()
	l := &locking{t: t, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		var md metadata.MD
		l.resp, l.err = v3lockpb.NewLockClient(s.conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: lease}, grpc.Header(&md))
		if v := md.Get(TokenKey); len(v) == 1 {
			l.token, _ = strconv.ParseUint(v[0], 10, 64)
		}
	}()
	if lease != 0 {
		eventually(t, "a place in the queue", func() bool {
			return c.pair(t, fmt.Sprintf("%s/%x", name, lease)) != nil
		})
	}
	return l
}

func (l *locking) wait() error {
	l.t.Helper()
	select {
	case <-l.done:
		return l.err
	case <-time.After(30 * time.Second):
		l.t.Fatal("the lock call did not end within 30 s")
		return nil
	}
}

func (l *locking) in() *locking {
	l.t.Helper()
	if err := l.wait(); err != nil {
		l.t.Fatal(err)
	}
	if l.token == 0 || l.resp.GetHeader().GetRevision() == 0 || l.resp.GetHeader().GetMemberId() == 0 {
		l.t.Fatalf("token %d, %v", l.token, l.resp)
	}
	return l
}

func (l *locking) waits() {
	l.t.Helper()
	select {
	case <-l.done:
		l.t.Fatalf("the call does not wait: %v, %v", l.resp, l.err)
	default:
	}
}

func (l *locking) fails(code codes.Code, text string) {
	l.t.Helper()
	if s := status.Convert(l.wait()); s.Code() != code || s.Message() != text {
		l.t.Fatalf("got %v, want %v %q", l.err, code, text)
	}
}

func unlock(t testing.TB, s *testServer, key []byte) {
	t.Helper()
	if _, err := v3lockpb.NewLockClient(s.conn).Unlock(testContext(t), &v3lockpb.UnlockRequest{Key: key}); err != nil {
		t.Fatal(err)
	}
}

func TestLockThroughEveryServer(t *testing.T) {
	c := startCluster(t, 3, options{})
	ctx := testContext(t)
	var calls []*locking
	for i := range 6 {
		calls = append(calls, c.lock(t, ctx, c.servers[i%3], "L", c.grant(t, int64(i+0x10))))
	}
	var last uint64
	for i, l := range calls {
		l.in()
		if want := fmt.Sprintf("L/%x", i+0x10); string(l.resp.GetKey()) != want || l.token <= last {
			t.Fatalf("key %q, want %q; token %d after %d", l.resp.GetKey(), want, l.token, last)
		}
		last = l.token
		if i+1 < len(calls) {
			calls[i+1].waits()
		}
		// Locked twice by the same lease is locked once.
		if again := c.lock(t, ctx, c.servers[(i+1)%3], "L", int64(i+0x10)).in(); again.token != l.token {
			t.Fatalf("token %d, then %d", l.token, again.token)
		}
		unlock(t, c.servers[(i+2)%3], l.resp.GetKey())
	}
	for _, s := range c.servers {
		if n := s.api.queues.Waiting(); n != 0 {
			t.Errorf("%d calls wait on %s", n, s.id)
		}
	}
}

// O-60, through a follower: B's session runs out while it waits.
func TestLeaseOfALockWaiterEnds(t *testing.T) {
	t.Parallel() // it mostly waits
	c := startCluster(t, 3, options{})
	ctx, f := testContext(t), c.follower(t)
	a := c.lock(t, ctx, f, "L", c.grant(t, 1)).in()
	granting := time.Now()
	c.do(t, &state.GrantLease{Session: 2, TTL: state.MinLeaseTTL}) // nobody renews it
	b := c.lock(t, ctx, f, "L", 2)
	third := c.lock(t, ctx, f, "L", c.grant(t, 3))
	b.fails(codes.NotFound, "etcdserver: requested lease not found")
	if took, least := time.Since(granting), state.MinLeaseTTL*time.Second; took < least || took > least+8*time.Second {
		t.Errorf("B waited for %v with a session of %v", took, least)
	}
	third.waits()
	unlock(t, f, a.resp.GetKey())
	if third.in(); third.token <= a.token {
		t.Errorf("token %d after %d", third.token, a.token)
	}
	_, err := v3lockpb.NewLockClient(f.conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("L"), Lease: 0x77777})
	expectText(t, err, codes.NotFound, "etcdserver: requested lease not found")
}

// O-61: names that are prefixes of each other and ordinary keys below them.
func TestLockNamesArePrefixesOfKeys(t *testing.T) {
	c := startCluster(t, 1, options{})
	ctx, s := testContext(t), c.leader(t)
	c.put(t, "path/1", "v", 0)
	first := c.lock(t, ctx, s, "path", c.grant(t, 0x10)).in()
	var held []*locking
	for i, name := range []string{"a", "a/", "a/b", "ab"} {
		held = append(held, c.lock(t, ctx, s, name, c.grant(t, int64(0x20+i))).in())
	}
	unlock(t, s, held[0].resp.GetKey())
	for _, l := range held[1:] {
		if c.pair(t, string(l.resp.GetKey())) == nil {
			t.Errorf("unlock of %q removed %q", held[0].resp.GetKey(), l.resp.GetKey())
		}
	}
	// Unlock takes nothing that is not a lock's.
	client := v3lockpb.NewLockClient(s.conn)
	for _, key := range []string{"path/1", "path", "path/x", "path/010"} {
		_, err := client.Unlock(ctx, &v3lockpb.UnlockRequest{Key: []byte(key)})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("unlock %q: %v", key, err)
		}
	}
	if c.pair(t, "path/1") == nil {
		t.Error("unlock deleted an ordinary key")
	}
	if _, err := client.Unlock(ctx, &v3lockpb.UnlockRequest{}); err == nil || status.Convert(err).Message() != "etcdserver: key is not provided" {
		t.Error(err)
	}
	unlock(t, s, first.resp.GetKey())
	unlock(t, s, first.resp.GetKey()) // what is gone is unlocked
	// An ordinary key where the session's place would be.
	c.put(t, "own/10", "v", 0)
	if _, err := client.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("own"), Lease: 0x10}); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}

func TestCancelledLockIsTakenBack(t *testing.T) {
	c := startCluster(t, 3, options{})
	f := c.follower(t)
	a := c.lock(t, testContext(t), f, "L", c.grant(t, 1)).in()
	ctx, cancel := context.WithCancel(testContext(t))
	b := c.lock(t, ctx, f, "L", c.grant(t, 2))
	cancel()
	if err := b.wait(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	eventually(t, "the end of the cancelled call's place", func() bool { return c.pair(t, "L/2") == nil })
	if c.pair(t, string(a.resp.GetKey())) == nil {
		t.Error("the holder's key went, too")
	}
}

// The leader is killed while two wait, one of them at a follower whose wait goes
// on, and the holder lets go afterwards.
func TestLockWaitOutlivesItsLeader(t *testing.T) {
	c := startCluster(t, 3, options{})
	lead := c.leader(t)
	ctx, f := testContext(t), c.follower(t)
	a := c.lock(t, ctx, f, "L", c.grant(t, 1)).in()
	b := c.lock(t, ctx, f, "L", c.grant(t, 2))
	atLeader := c.lock(t, ctx, lead, "L", c.grant(t, 3))
	token := c.pair(t, "L/3").Token
	c.servers = survivors(c.servers, lead)
	lead.kill()
	if err := atLeader.wait(); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("the killed leader's waiter: %v", err)
	}
	b.waits()
	again := c.lock(t, ctx, f, "L", 3)
	unlock(t, f, a.resp.GetKey())
	if b.in(); b.token <= a.token {
		t.Errorf("token %d after %d", b.token, a.token)
	}
	unlock(t, f, b.resp.GetKey())
	if again.in(); again.token != token {
		t.Errorf("token %d after the leader's end, %d before", again.token, token)
	}
}

func survivors(all []*testServer, one *testServer) (rest []*testServer) {
	for _, s := range all {
		if s != one {
			rest = append(rest, s)
		}
	}
	return rest
}

// On a server that is cut off, who asked for a leader is told; who did not waits
// on, and is not let in by an old state.
func TestLockWaitOnAServerThatIsCutOff(t *testing.T) {
	c := startCluster(t, 3, options{})
	f := c.follower(t)
	a := c.lock(t, testContext(t), c.leader(t), "L", c.grant(t, 1)).in()
	led := metadata.AppendToOutgoingContext(testContext(t), rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	asks := c.lock(t, led, f, "L", c.grant(t, 2))
	patient, cancel := context.WithCancel(testContext(t))
	defer cancel()
	waits := c.lock(t, patient, f, "L", c.grant(t, 3))
	eventually(t, "both waiting", func() bool { return f.api.queues.Waiting() == 2 })
	f.raft.cut()
	asks.fails(codes.Unavailable, "etcdserver: no leader")
	c.servers = survivors(c.servers, f)
	unlock(t, c.leader(t), a.resp.GetKey())
	waits.waits()
	if kv := c.pair(t, "L/2"); kv == nil {
		t.Error("the place of one who was told that there is no leader is gone")
	}
}

func TestStoppingServerKeepsPlaces(t *testing.T) {
	c := startCluster(t, 3, options{})
	f := c.follower(t)
	c.lock(t, testContext(t), f, "L", c.grant(t, 1)).in()
	b := c.lock(t, testContext(t), f, "L", c.grant(t, 2))
	eventually(t, "the call waiting", func() bool { return f.api.queues.Waiting() == 1 })
	f.api.stop(errStopped)
	b.fails(codes.Unavailable, "etcdserver: server stopped")
	if c.pair(t, "L/2") == nil {
		t.Error("the place is gone")
	}
}

// A thousand wait on one server: a release answers one call.
func TestOneReleaseAnswersOneOfAThousandCalls(t *testing.T) {
	c := startCluster(t, 1, options{})
	s := c.leader(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const n = 1000
	var grants []state.Command
	for i := range n {
		grants = append(grants, &state.GrantLease{Session: state.SessionID(i + 1), TTL: 600})
	}
	if _, err := s.store.Propose(testContext(t), grants...); err != nil {
		t.Fatal(err)
	}
	answers := make(chan *v3lockpb.LockResponse, n)
	var calls sync.WaitGroup
	client := v3lockpb.NewLockClient(s.conn)
	for i := range n {
		calls.Go(func() {
			if resp, err := client.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("L"), Lease: int64(i + 1)}); err == nil {
				answers <- resp
			}
		})
	}
	held := <-answers
	eventually(t, "999 waiting", func() bool { return s.api.queues.Waiting() == n-1 })
	for range 5 {
		had := s.api.queues.Delivered()
		unlock(t, s, held.GetKey())
		held = <-answers
		if woken := s.api.queues.Delivered() - had; woken != 1 || len(answers) != 0 {
			t.Fatalf("one release: %d woken, %d more answers", woken, len(answers))
		}
	}
	cancel()
	calls.Wait()
	eventually(t, "the end of all waits", func() bool { return s.api.queues.Waiting() == 0 })
}

// Keys that etcd's library would make stand in the same queue.
func TestLocksAndBareKeysInterleaved(t *testing.T) {
	c := startCluster(t, 1, options{})
	ctx, s := testContext(t), c.leader(t)
	c.put(t, "L/a1", "", c.grant(t, 0xa1))
	ours := c.lock(t, ctx, s, "L", c.grant(t, 0xa2))
	c.put(t, "L/a3", "", c.grant(t, 0xa3))
	last := c.lock(t, ctx, s, "L", c.grant(t, 0xa4))
	ours.waits()
	unlock(t, s, []byte("L/a1"))
	ours.in()
	unlock(t, s, ours.resp.GetKey())
	last.waits()
	c.do(t, &state.RevokeLease{Session: 0xa3})
	last.in()
	// A place that the library made has no token.
	c.put(t, "M/a4", "", 0xa4)
	if l := c.lock(t, ctx, s, "M", 0xa4); l.wait() != nil || l.token != 0 {
		t.Errorf("token %d, %v", l.token, l.err)
	}
}

func TestKeyOfALockIsThatOfTheQueue(t *testing.T) {
	if got := string(queue.KeyOf([]byte("x/y"), 0xabc)); got != "x/y/abc" {
		t.Error(got)
	}
}

// O-65: B waits between A and C, and its process dies before, or just after, A
// releases. C gets the lock at once, or when B's lease has run out: once.
func TestLockWaiterInTheMiddleIsKilled(t *testing.T) {
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before the release %v", before), func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, 1, options{})
			s, ctx := c.leader(t), testContext(t)
			a := c.lock(t, ctx, s, "L", c.grant(t, 1)).in()
			const ttl = 5                                    // all until B is killed must be done within it
			c.do(t, &state.GrantLease{Session: 2, TTL: ttl}) // nobody renews it
			own, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			b := c.lock(t, ctx, &testServer{conn: own}, "L", 2)
			third, last := c.lock(t, ctx, s, "L", c.grant(t, 3)), c.lock(t, ctx, s, "L", c.grant(t, 4))
			if before {
				_ = own.Close()
				eventually(t, "the end of B's place", func() bool { return c.pair(t, "L/2") == nil })
				third.waits() // A has it still
				unlock(t, s, a.resp.GetKey())
			} else {
				unlock(t, s, a.resp.GetKey())
				b.in()
				_ = own.Close()
				third.waits()
			}
			began := time.Now()
			if third.in(); third.token <= a.token {
				t.Errorf("token %d after %d", third.token, a.token)
			}
			if took := time.Since(began); !before && took > (ttl+8)*time.Second {
				t.Errorf("C waited %v for the lease of B", took)
			}
			last.waits()
			if again := c.lock(t, ctx, s, "L", 3).in(); again.token != third.token {
				t.Errorf("asked again: token %d, had %d", again.token, third.token)
			}
		})
	}
}
