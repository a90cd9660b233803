package etcdapi

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// deafConn loses what comes in while it is deaf.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

// loses makes a call whose answer never arrives, and returns when it has been done
// at the server and its caller has given up.
func (s *testServer) loses(t *testing.T, what string, done func() bool, call func(context.Context, *grpc.ClientConn) error) {
	t.Helper()
	var deaf atomic.Bool
	conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			return deafConn{c, &deaf}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := pb.NewKVClient(conn).Range(testContext(t), &pb.RangeRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	deaf.Store(true)
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() { ended <- call(ctx, conn) }()
	eventually(t, what, done)
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Fatalf("%s: the answer was not lost: %v", what, err)
	}
}

// O-62: the answers to a grant of a lease, a lock, a renewal, an unlock and a revoke
// are lost, and each is asked for again, with the same id and with a new one: the
// same lease, key and token, the counter one higher, and nobody waits for a TTL.
func TestO62LostRepliesAreAskedForAgain(t *testing.T) {
	c := startCluster(t, 1, options{})
	s, ctx := c.servers[0], testContext(t)
	locks := v3lockpb.NewLockClient(s.conn)
	session := func(id state.SessionID) (x state.Session, ok bool) {
		s.store.View(func(st *state.State) {
			var p *state.Session
			if p, ok = st.Session(id); ok {
				x = *p
			}
		})
		return x, ok
	}
	first := c.lock(t, ctx, s, "before", c.grant(t, 1)).in()

	s.loses(t, "a grant", func() bool { _, ok := session(7); return ok }, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 600})
		return err
	})
	if _, err := s.lease().LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 600}); !sameStatus(err, rpctypes.ErrGRPCLeaseExist) {
		t.Errorf("granted again: %v", err)
	}
	// With a new id there is a stray lease, which holds nothing.
	next := grant(t, s, 8, 600).ID

	// Whoever gives up while it waits gives up its place: it has the lock at once, and
	// has been told so before its caller goes.
	had := s.api.queues.Delivered()
	s.loses(t, "a lock", func() bool { return c.pair(t, "L/7") != nil && s.api.queues.Delivered() > had }, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := v3lockpb.NewLockClient(conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("L"), Lease: 7})
		return err
	})
	if kv := c.pair(t, "L/7"); kv == nil || kv.Token != first.token+1 {
		t.Fatalf("after the lost answer the place is %+v, want token %d", kv, first.token+1)
	}
	for range 2 {
		if again := c.lock(t, ctx, s, "L", 7).in(); again.token != first.token+1 || string(again.resp.GetKey()) != "L/7" {
			t.Errorf("locked again: token %d, want %d; %v", again.token, first.token+1, again.resp)
		}
	}
	waiter := c.lock(t, ctx, s, "L", next)
	waiter.waits()

	before, _ := session(7)
	s.loses(t, "a renewal", func() bool { x, _ := session(7); return x.Deadline > before.Deadline }, func(ctx context.Context, conn *grpc.ClientConn) error {
		stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
			if ctx.Err() != nil {
				return status.FromContextError(ctx.Err()).Err()
			}
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: 7}); err != nil {
				return stream.RecvMsg(&pb.LeaseKeepAliveResponse{})
			}
		}
	})
	if left := timeToLive(t, s, 7); left.TTL < 590 || len(left.Keys) != 1 {
		t.Errorf("after the lost renewal: %v", left)
	}

	s.loses(t, "an unlock", func() bool { return c.pair(t, "L/7") == nil }, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := v3lockpb.NewLockClient(conn).Unlock(ctx, &v3lockpb.UnlockRequest{Key: []byte("L/7")})
		return err
	})
	if got := waiter.in(); got.token != first.token+2 {
		t.Errorf("the next has token %d after %d", got.token, first.token+1)
	}
	if _, err := locks.Unlock(ctx, &v3lockpb.UnlockRequest{Key: []byte("L/7")}); err != nil {
		t.Errorf("unlocked again: %v", err)
	}
	if c.pair(t, "L/8") == nil {
		t.Error("the second unlock took the lock away from the next one")
	}

	s.loses(t, "a revoke", func() bool { _, ok := session(8); return !ok }, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := pb.NewLeaseClient(conn).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 8})
		return err
	})
	if err := revoke(s, 8); !sameStatus(err, rpctypes.ErrGRPCLeaseNotFound) {
		t.Errorf("revoked again: %v", err)
	}
	if got := c.lock(t, ctx, s, "L", 7).in(); got.token != first.token+3 {
		t.Errorf("the lock is free with token %d, want %d", got.token, first.token+3)
	}
}
