package session

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servers answer as a test says.
type servers struct {
	pb.LeaseClient
	clock   bootclock.Clock
	grant   time.Duration                                // how long the answer to a grant takes
	answer  func(n int) (after time.Duration, ttl int64) // to the nth keep-alive; after below 0: never
	sent    []time.Duration                              // when keep-alives were sent
	revoked bool
}

func (s *servers) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest, _ ...grpc.CallOption) (*pb.LeaseGrantResponse, error) {
	time.Sleep(s.grant)
	return &pb.LeaseGrantResponse{ID: 7, TTL: r.GetTTL()}, nil
}

func (s *servers) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest, _ ...grpc.CallOption) (*pb.LeaseRevokeResponse, error) {
	s.revoked = r.GetID() == 7
	return &pb.LeaseRevokeResponse{}, nil
}

func (s *servers) LeaseKeepAlive(ctx context.Context, _ ...grpc.CallOption) (pb.Lease_LeaseKeepAliveClient, error) {
	return &stream{ctx: ctx, s: s}, nil
}

type stream struct {
	grpc.ClientStream
	ctx context.Context
	s   *servers
}

func (k *stream) Send(*pb.LeaseKeepAliveRequest) error {
	k.s.sent = append(k.s.sent, k.s.clock.Now())
	return nil
}

func (k *stream) Recv() (*pb.LeaseKeepAliveResponse, error) {
	after, ttl := k.s.answer(len(k.s.sent))
	if after < 0 {
		<-k.ctx.Done()
		return nil, k.ctx.Err()
	}
	select {
	case <-time.After(after):
		return &pb.LeaseKeepAliveResponse{ID: 7, TTL: ttl}, nil
	case <-k.ctx.Done():
		return nil, k.ctx.Err()
	}
}

func (k *stream) CloseSend() error { return nil }

// open opens a session of 10 s with a grace of 1 s inside a bubble.
func open(t *testing.T, s *servers) *Session {
	t.Helper()
	s.clock = bootclock.Monotonic()
	x, err := Open(t.Context(), Config{Leases: s, TTL: 10 * time.Second, Grace: time.Second, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// The deadline counts from when the last acknowledged keep-alive was sent, not from its
// answer: TTL 10 s less a margin of 0.5 s and a grace of 1 s.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{grant: 300 * time.Millisecond, answer: func(n int) (time.Duration, int64) {
			if n > 3 {
				return -1, 0
			}
			return 2 * time.Second, 10
		}}
		x := open(t, s)
		var proven []time.Duration
		x.OnProven(func(sent time.Duration) { proven = append(proven, sent) })
		<-x.Lost().Done()
		late := s.clock.Now() - (s.sent[2] + 8500*time.Millisecond)
		if late < 0 || late > 100*time.Millisecond {
			t.Errorf("lost %v after the third keep-alive was sent", s.clock.Now()-s.sent[2])
		}
		var unproven *UnprovenError
		if err := context.Cause(x.Lost()); !errors.As(err, &unproven) || !strings.Contains(err.Error(), "the TTL is 10s") {
			t.Errorf("cause %v", err)
		}
		if len(proven) != 4 || proven[0] != 0 || proven[3] != s.sent[2] {
			t.Errorf("proven at %v, sent at %v", proven, s.sent)
		}
		x.Abandon()
	})
}

// Without any answer it is the asking for the session that counts.
func TestDeadlineCountsFromTheAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{grant: 3 * time.Second, answer: func(int) (time.Duration, int64) { return -1, 0 }}
		x := open(t, s)
		<-x.Lost().Done()
		if at := s.clock.Now(); at < 8500*time.Millisecond || at > 8600*time.Millisecond {
			t.Errorf("lost at %v", at)
		}
		x.Abandon()
	})
}

// A session that the servers do not know is over at once.
func TestGoneIsLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{answer: func(n int) (time.Duration, int64) { return 0, int64(10 - 10*(n/2)) }} // the second one
		x := open(t, s)
		<-x.Lost().Done()
		if err := context.Cause(x.Lost()); !errors.Is(err, ErrGone) || len(s.sent) != 2 || s.clock.Now() != s.sent[1] {
			t.Errorf("%v at %v, sent at %v", err, s.clock.Now(), s.sent)
		}
		x.Abandon()
	})
}

// A server that hangs has cost one try; the next one is somebody else's.
func TestAHangingServerCostsOneTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{answer: func(n int) (time.Duration, int64) { return time.Duration(-(n % 2)), 10 }}
		x := open(t, s)
		time.Sleep(2 * time.Minute)
		if x.Lost().Err() != nil {
			t.Errorf("lost: %v", context.Cause(x.Lost()))
		}
		if err := x.Close(t.Context()); err != nil || !s.revoked || !errors.Is(context.Cause(x.Lost()), ErrClosed) {
			t.Errorf("close: %v, revoked %v, cause %v", err, s.revoked, context.Cause(x.Lost()))
		}
	})
}

func TestTTLHasLimits(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Second, 2500 * time.Millisecond} {
		if _, err := Open(t.Context(), Config{TTL: ttl}); err == nil || !strings.Contains(err.Error(), ttl.String()) || !strings.Contains(err.Error(), "2s") {
			t.Errorf("%v: %v", ttl, err)
		}
	}
}
