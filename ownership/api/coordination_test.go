package api

import (
	"bytes"
	"context"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// startCoordination is a cluster at the level at which there are keys.
func startCoordination(t *testing.T, n int, change ...func(*Config)) *testCluster {
	t.Helper()
	c := startCluster(t, n, change...)
	c.raise(t)
	return c
}

// raise the feature level to the highest.
func (c *testCluster) raise(t *testing.T) {
	t.Helper()
	c.propose(t, func(s *server) state.Command {
		return &state.RaiseFeature{Term: s.store.Status().Term, Level: state.MaxFeature}
	})
}

// propose writes a command at whoever leads.
func (c *testCluster) propose(t *testing.T, cmd func(*server) state.Command) (res state.Result) {
	t.Helper()
	eventually(t, "leader that takes a command", func() bool {
		s := c.leader(t)
		results, err := s.store.Propose(t.Context(), cmd(s))
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

func (c *testCluster) open(t *testing.T, id uint64) uint64 {
	t.Helper()
	c.propose(t, func(*server) state.Command { return &state.GrantLease{Session: state.SessionID(id), TTL: 60} })
	return id
}

func (c *testCluster) leave(t *testing.T, r *pb.AcquireResponse) {
	t.Helper()
	c.propose(t, func(*server) state.Command { return queue.LeaveTxn(r.GetKey(), r.GetRevision()) })
}

// place is the key of a session in the log, as the leader has it.
func (c *testCluster) token(t *testing.T, name string, id uint64) (token uint64) {
	t.Helper()
	c.leader(t).store.View(func(s *state.State) {
		if kv := s.Keys().Get(state.QueueKey([]byte(name), state.SessionID(id))); kv != nil {
			token = kv.Token
		}
	})
	return token
}

type acquired struct {
	resp *pb.AcquireResponse
	err  error
}

// acquire begins a call; the place is in the log when it returns.
//
//nolint:revive // t comes first in all helpers
func (c *testCluster) acquire(t *testing.T, ctx context.Context, conn *grpc.ClientConn, name string, id uint64) <-chan acquired {
	t.Helper()
	done := make(chan acquired, 1)
	go func() {
		resp, err := pb.NewCoordinationServiceClient(conn).Acquire(ctx, &pb.AcquireRequest{Name: name, SessionId: id})
		done <- acquired{resp, err}
	}()
	eventually(t, "place in the queue", func() bool { return c.token(t, name, id) != 0 })
	return done
}

func (c *testCluster) in(t *testing.T, done <-chan acquired) *pb.AcquireResponse {
	t.Helper()
	select {
	case a := <-done:
		if a.err != nil || !a.resp.GetAcquired() {
			t.Fatalf("%v, %v", a.resp, a.err)
		}
		return a.resp
	case <-time.After(patience):
		t.Fatalf("not let in within %v", patience)
		return nil
	}
}

// lossyProxy hands bytes on to a server; when it is told to, it lets no answer
// through any more.
func lossyProxy(t *testing.T, to string, deaf <-chan struct{}) string {
	ln := listen(t)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			down, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				_ = down.Close()
				return
			}
			t.Cleanup(func() { _, _ = down.Close(), up.Close() })
			go pipe(up, down, nil)
			go pipe(down, up, deaf)
		}
	}()
	return ln.Addr().String()
}

func pipe(to, from net.Conn, deaf <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-deaf: // a nil channel is never ready
		default:
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// O-62: the answer to a grant is lost. Asked again, it is the same token, the
// counter rose by one, and nobody holds the lock who does not know it.
func TestLostAnswerOfAnAcquireIsAskedForAgain(t *testing.T) {
	c := startCoordination(t, 1)
	s := c.leader(t)
	c.open(t, 1)
	c.open(t, 2)
	deaf := make(chan struct{})
	proxied := &server{addr: lossyProxy(t, s.addr, deaf)}
	conn := proxied.dialWith(t)
	client := pb.NewCoordinationServiceClient(conn)
	before, err := client.Acquire(t.Context(), &pb.AcquireRequest{Name: "other", SessionId: 2})
	if err != nil {
		t.Fatal(err)
	}
	close(deaf)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := client.Acquire(ctx, &pb.AcquireRequest{Name: "lock", SessionId: 1}); status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("the answer was not lost: %v", err)
	}
	direct := s.dial(t)
	for range 2 {
		again, err := pb.NewCoordinationServiceClient(direct).Acquire(t.Context(), &pb.AcquireRequest{Name: "lock", SessionId: 1})
		if err != nil || again.GetToken() != before.GetToken()+1 {
			t.Fatalf("asked again: %v, %v, want token %d", again, err, before.GetToken()+1)
		}
	}
	next := c.acquire(t, t.Context(), direct, "lock", 2)
	c.propose(t, func(*server) state.Command { return &state.RevokeLease{Session: 1} })
	if got := c.in(t, next); got.GetToken() != before.GetToken()+2 {
		t.Errorf("the next has token %d after %d", got.GetToken(), before.GetToken()+1)
	}
}

// A wait lasts longer than other calls may, at a follower as at the leader.
func TestAcquireWaitsLongerThanOtherCalls(t *testing.T) {
	const others = 2 * time.Second
	c := startCoordination(t, 3, func(cfg *Config) { cfg.CallTimeout = others })
	conn := c.leader(t).dialWith(t)
	held := c.in(t, c.acquire(t, t.Context(), conn, "lock", c.open(t, 1)))
	second := c.acquire(t, t.Context(), c.follower(t).dialWith(t), "lock", c.open(t, 2))
	third := c.acquire(t, t.Context(), conn, "lock", c.open(t, 3))
	select {
	case a := <-second:
		t.Fatalf("the wait at a follower ended: %v, %v", a.resp, a.err)
	case a := <-third:
		t.Fatalf("the wait at the leader ended: %v, %v", a.resp, a.err)
	case <-time.After(others + time.Second):
	}
	c.leave(t, held)
	two := c.in(t, second)
	c.leave(t, two)
	if three := c.in(t, third); three.GetToken() <= two.GetToken() || two.GetToken() <= held.GetToken() {
		t.Errorf("tokens %d, %d, %d", held.GetToken(), two.GetToken(), three.GetToken())
	}
}

func TestWaiterFindsItsPlaceAgainAfterALeaderChange(t *testing.T) {
	c := startCoordination(t, 3)
	old := c.leader(t)
	held := c.in(t, c.acquire(t, t.Context(), old.dial(t), "lock", c.open(t, 1)))
	raw := c.acquire(t, t.Context(), old.dialWith(t), "lock", c.open(t, 2))
	patient := c.acquire(t, t.Context(), c.follower(t).dial(t), "lock", c.open(t, 3))
	two, three := c.token(t, "lock", 2), c.token(t, "lock", 3)
	transfer(t, old)
	select {
	case a := <-raw:
		if !pb.DetailOf(a.err).Retryable() {
			t.Errorf("the deposed leader answered %v, %v", a.resp, a.err)
		}
	case <-time.After(patience):
		t.Fatal("the deposed leader lets its caller wait")
	}
	again := c.acquire(t, t.Context(), c.leader(t).dial(t), "lock", 2)
	c.leave(t, held)
	got := c.in(t, again)
	if got.GetToken() != two {
		t.Errorf("token %d, had %d", got.GetToken(), two)
	}
	c.leave(t, got)
	if got := c.in(t, patient); got.GetToken() != three {
		t.Errorf("token %d, had %d", got.GetToken(), three)
	}
}

func TestCancelledAcquireIsTakenBackThroughAFollower(t *testing.T) {
	c := startCoordination(t, 3)
	conn := c.follower(t).dialWith(t)
	c.in(t, c.acquire(t, t.Context(), conn, "lock", c.open(t, 1)))
	ctx, cancel := context.WithCancel(t.Context())
	c.open(t, 2)
	waiting := c.acquire(t, ctx, conn, "lock", 2)
	cancel()
	if a := <-waiting; status.Code(a.err) != codes.Canceled {
		t.Errorf("%v, %v", a.resp, a.err)
	}
	eventually(t, "end of the cancelled call's place", func() bool { return c.token(t, "lock", 2) == 0 })
	c.open(t, 3)
	resp, err := pb.NewCoordinationServiceClient(conn).Acquire(t.Context(), &pb.AcquireRequest{Name: "lock", SessionId: 3, NoWait: true})
	if err != nil || resp.GetAcquired() || resp.GetAhead() != 1 || c.token(t, "lock", 3) != 0 {
		t.Errorf("%v, %v; its key has token %d", resp, err, c.token(t, "lock", 3))
	}
}

func TestSessionOfANativeWaiterEnds(t *testing.T) {
	c := startCoordination(t, 1)
	conn := c.leader(t).dial(t)
	c.in(t, c.acquire(t, t.Context(), conn, "lock", c.open(t, 1)))
	waiting := c.acquire(t, t.Context(), conn, "lock", c.open(t, 2))
	c.propose(t, func(*server) state.Command { return &state.RevokeLease{Session: 2} })
	a := <-waiting
	if d := pb.DetailOf(a.err); d.GetReason() != pb.ReasonExpired || d.GetField() != "session_id" || d.GetValue() != "2" {
		t.Errorf("%v, %v", a.resp, a.err)
	}
}

func TestBadRequestsToAcquireAndCreateSequential(t *testing.T) {
	c := startCoordination(t, 1)
	client := pb.NewCoordinationServiceClient(c.leader(t).dial(t))
	refused := func(err error, reason, field string) {
		t.Helper()
		d := pb.DetailOf(err)
		if d.GetReason() != reason || d.GetField() != field || d.GetReason() == pb.ReasonInvalid && d.GetLimit() == "" {
			t.Errorf("want %s of %s, got %v", reason, field, err)
		}
	}
	for _, bad := range []struct {
		r             *pb.AcquireRequest
		reason, field string
	}{
		{&pb.AcquireRequest{SessionId: 1}, pb.ReasonInvalid, "name"},
		{&pb.AcquireRequest{Name: strings.Repeat("x", maxQueueName+1), SessionId: 1}, pb.ReasonInvalid, "name"},
		{&pb.AcquireRequest{Name: "l"}, pb.ReasonInvalid, "session_id"},
		{&pb.AcquireRequest{Name: "l", SessionId: 1 << 63}, pb.ReasonInvalid, "session_id"},
		{&pb.AcquireRequest{Name: "l", SessionId: 1, Slots: math.MaxUint32}, pb.ReasonInvalid, "slots"},
		{&pb.AcquireRequest{Name: "l", SessionId: 77}, pb.ReasonExpired, "session_id"},
	} {
		_, err := client.Acquire(t.Context(), bad.r)
		refused(err, bad.reason, bad.field)
	}
	for _, bad := range []struct {
		r             *pb.CreateSequentialRequest
		reason, field string
	}{
		{&pb.CreateSequentialRequest{}, pb.ReasonInvalid, "prefix"},
		{&pb.CreateSequentialRequest{Prefix: strings.Repeat("x", state.MaxPrefixLen+1)}, pb.ReasonInvalid, "prefix"},
		{&pb.CreateSequentialRequest{Prefix: "p", SessionId: 1 << 63}, pb.ReasonInvalid, "session_id"},
		{&pb.CreateSequentialRequest{Prefix: "p", SessionId: 77}, pb.ReasonExpired, "session_id"},
		{&pb.CreateSequentialRequest{Prefix: "p", After: math.MaxInt64}, pb.ReasonNumbersSpent, "after"},
	} {
		_, err := client.CreateSequential(t.Context(), bad.r)
		refused(err, bad.reason, bad.field)
	}
}

func TestNoRoomForAPlace(t *testing.T) {
	c := startCoordination(t, 1, func(cfg *Config) {
		cfg.Room = func(_ context.Context, bytes int64) error {
			if bytes > 100 {
				return mvcc.ErrNoSpace
			}
			return nil
		}
	})
	c.open(t, 1)
	client := pb.NewCoordinationServiceClient(c.leader(t).dial(t))
	long := strings.Repeat("x", 101)
	if _, err := client.Acquire(t.Context(), &pb.AcquireRequest{Name: long, SessionId: 1}); pb.ReasonOf(err) != pb.ReasonNoSpace {
		t.Error(err)
	}
	if _, err := client.CreateSequential(t.Context(), &pb.CreateSequentialRequest{Prefix: long}); pb.ReasonOf(err) != pb.ReasonNoSpace {
		t.Error(err)
	}
	if _, err := client.Acquire(t.Context(), &pb.AcquireRequest{Name: "short", SessionId: 1}); err != nil {
		t.Error(err)
	}
}

func TestBelowTheLevelOfKeysNothingIsTaken(t *testing.T) {
	c := startCluster(t, 1)
	_, err := pb.NewCoordinationServiceClient(c.leader(t).dial(t)).Acquire(t.Context(), &pb.AcquireRequest{Name: "l", SessionId: 1})
	if pb.ReasonOf(err) != pb.ReasonFeature {
		t.Error(err)
	}
}

// O-66: numbers grow past every width, in the order of bytes, and are never
// used twice.
func TestSequentialKeysPastAWidth(t *testing.T) {
	c := startCoordination(t, 3)
	client := pb.NewCoordinationServiceClient(c.follower(t).dial(t))
	last := &pb.CreateSequentialResponse{}
	next := func(after, want uint64) {
		t.Helper()
		got, err := client.CreateSequential(t.Context(), &pb.CreateSequentialRequest{Prefix: "jobs/", After: after})
		if err != nil || got.GetNumber() != want || bytes.Compare(got.GetKey(), last.GetKey()) <= 0 {
			t.Fatalf("after %d: %v, %v, want %d, behind %q", after, got, err, want, last.GetKey())
		}
		last = got
	}
	for _, edge := range []uint64{0, 9, 99, 9_999_999_999, math.MaxInt32, math.MaxInt64 - 1} {
		if edge > last.GetNumber() {
			next(edge, edge+1)
		} else {
			next(0, last.GetNumber()+1)
		}
		if edge != math.MaxInt64-1 {
			next(0, last.GetNumber()+1)
		}
	}
	// The last one is deleted and the leader changes: its number does not come back.
	c.propose(t, func(*server) state.Command { return queue.LeaveTxn(last.GetKey(), last.GetRevision()) })
	transfer(t, c.leader(t))
	if got, err := client.CreateSequential(t.Context(), &pb.CreateSequentialRequest{Prefix: "jobs/"}); pb.ReasonOf(err) != pb.ReasonNumbersSpent {
		t.Errorf("beyond the last number: %v, %v", got, err)
	}
}

func TestAcquireAsJSON(t *testing.T) {
	c := startCoordination(t, 1)
	c.open(t, 0xab)
	s := c.leader(t)
	code, _, m := post(t, s, pb.CoordinationService_Acquire_FullMethodName, `{"name":"lock","session_id":"171","slots":2}`)
	if code != http.StatusOK || m["acquired"] != true || m["key"] != "bG9jay9hYg==" || m["token"] == nil {
		t.Errorf("%d %v", code, m)
	}
	code, _, m = post(t, s, pb.CoordinationService_CreateSequential_FullMethodName, `{"prefix":"n/"}`)
	if code != http.StatusOK || m["number"] != "1" {
		t.Errorf("%d %v", code, m)
	}
}
