package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func grantAs(t testing.TB, s *testServer, who string, id int64) int64 {
	t.Helper()
	resp, err := s.lease().LeaseGrant(as(testContext(t), who), &pb.LeaseGrantRequest{ID: id, TTL: 600})
	if err != nil {
		t.Fatalf("grant a lease to %s: %v", who, err)
	}
	return resp.ID
}

func putAs(t testing.TB, s *testServer, who, key string, lease int64) {
	t.Helper()
	if _, err := s.kv().Put(as(testContext(t), who), &pb.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: lease}); err != nil {
		t.Fatalf("%s puts %s with lease %d: %v", who, key, lease, err)
	}
}

// renewAs sends a keep-alive for each lease on one stream and returns the TTLs that
// are answered and how the stream ends.
func renewAs(t testing.TB, s *testServer, who string, leases ...int64) (ttls map[int64]int64, end error) {
	t.Helper()
	stream, err := s.lease().LeaseKeepAlive(as(testContext(t), who))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range leases {
		_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: id}) // an error shows on the way back
	}
	_ = stream.CloseSend()
	ttls = map[int64]int64{}
	for {
		m, err := stream.Recv()
		if err != nil {
			return ttls, err
		}
		ttls[m.ID] = m.TTL
	}
}

func leasesAs(t testing.TB, s *testServer, who string) map[int64]bool {
	t.Helper()
	resp, err := s.lease().LeaseLeases(as(testContext(t), who), &pb.LeaseLeasesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int64]bool{}
	for _, l := range resp.Leases {
		ids[l.ID] = true
	}
	return ids
}

// withLease is a put under a lease, so many transactions deep.
func withLease(key string, lease int64, depth int) *pb.TxnRequest {
	return nest(&pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Lease: lease}}}, depth)
}

// O-92, someone else's lease: through whichever server B asks, also one that has not
// heard of the lease yet, B may not revoke it, renew it, ask for it and its keys,
// attach to it or stand in a queue with it, and does not see it in the list. No
// refusal tells a key.
func TestSomeoneElsesLease(t *testing.T) {
	c := startCluster(t, 3, secured())
	mine := grantAs(t, c.follower(t), "a", 0)
	putAs(t, c.follower(t), "a", "/a/secret", mine)
	putAs(t, c.follower(t), "a", "/both/shared", mine)
	ownB := grantAs(t, c.leader(t), "b", 0)
	ctx := as(testContext(t), "b")
	for _, s := range c.servers {
		for what, do := range map[string]func() error{
			"revoke": func() error { _, err := s.lease().LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: mine}); return err },
			"time to live": func() error {
				_, err := s.lease().LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: mine})
				return err
			},
			"keys": func() error {
				_, err := s.lease().LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: mine, Keys: true})
				return err
			},
			"attach": func() error {
				_, err := s.kv().Put(ctx, &pb.PutRequest{Key: []byte("/b/k"), Lease: mine})
				return err
			},
			"attach in a branch": func() error { _, err := s.kv().Txn(ctx, withLease("/both/shared", mine, 0)); return err },
			"attach deep down":   func() error { _, err := s.kv().Txn(ctx, withLease("/b/k", mine, 5)); return err },
			"lock": func() error {
				_, err := v3lockpb.NewLockClient(s.conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("/b/q"), Lease: mine})
				return err
			},
			"campaign": func() error {
				_, err := v3electionpb.NewElectionClient(s.conn).Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("/b/q"), Lease: mine})
				return err
			},
			"renew": func() error {
				ttls, err := renewAs(t, s, "b", ownB, mine)
				if len(ttls) != 1 || ttls[ownB] != 600 {
					t.Errorf("%s: b's own lease beside a's: %v", s.id, ttls)
				}
				return err
			},
		} {
			err := do()
			wantDenied(t, s.id+": "+what, err)
			if text := fmt.Sprint(status.Convert(err).Proto()); strings.Contains(text, "secret") || strings.Contains(text, "shared") {
				t.Errorf("%s: %s: the refusal tells keys: %s", s.id, what, text)
			}
		}
		eventually(t, s.id+" knows b's lease", func() bool { return leasesAs(t, s, "b")[ownB] })
		if leases := leasesAs(t, s, "b"); len(leases) != 1 {
			t.Errorf("%s lists to b %v, want its own", s.id, leases)
		}
		eventually(t, s.id+" knows both leases", func() bool { return len(leasesAs(t, s, "boss")) == 2 })
		if leases := leasesAs(t, s, "boss-a"); len(leases) != 0 {
			t.Errorf("%s lists %v to an operator of other keys", s.id, leases)
		}
	}
	// Nothing has happened to it, and its owner and who runs the cluster may do it all.
	for _, who := range []string{"a", "boss"} {
		resp, err := c.follower(t).lease().LeaseTimeToLive(as(testContext(t), who), &pb.LeaseTimeToLiveRequest{ID: mine, Keys: true})
		if err != nil || len(resp.Keys) != 2 || resp.GrantedTTL != 600 {
			t.Errorf("%s: %v, %v", who, resp, err)
		}
		if ttls, err := renewAs(t, c.follower(t), who, mine); ttls[mine] != 600 || !errors.Is(err, io.EOF) {
			t.Errorf("%s renews: %v, %v", who, ttls, err)
		}
	}
	if _, err := c.follower(t).lease().LeaseRevoke(as(testContext(t), "a"), &pb.LeaseRevokeRequest{ID: mine}); err != nil {
		t.Error(err)
	}
	// What is not there is answered alike to all.
	if _, err := c.follower(t).lease().LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: mine}); status.Code(err) != codes.NotFound {
		t.Errorf("revoke of a lease that is gone: %v", err)
	}
	if ttls, _ := renewAs(t, c.follower(t), "b", mine); ttls[mine] != 0 || len(ttls) != 1 {
		t.Errorf("renewal of a lease that is gone: %v", ttls)
	}
}

func wantDenied(t *testing.T, what string, err error) {
	t.Helper()
	if rpctypes.Error(err) != rpctypes.ErrPermissionDenied {
		t.Errorf("%s: %v, want it denied", what, err)
	}
}

// A lease that somebody else's keys are attached to, by an operator or when leases
// had no owners, is neither ended nor asked for its keys by who may not have these.
func TestForeignKeysOnOnesOwnLease(t *testing.T) {
	c := startCluster(t, 1, secured())
	s := c.leader(t)
	own := grantAs(t, s, "b", 0)
	putAs(t, s, "b", "/b/k", own)
	putAs(t, s, "boss", "/a/k", own)
	ctx := as(testContext(t), "b")
	_, err := s.lease().LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: own})
	wantDenied(t, "revoke", err)
	_, err = s.lease().LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: own, Keys: true})
	wantDenied(t, "keys", err)
	if resp, err := s.lease().LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: own}); err != nil || resp.GrantedTTL != 600 {
		t.Errorf("time to live: %v, %v", resp, err)
	}
	if _, err := s.kv().DeleteRange(as(testContext(t), "boss"), &pb.DeleteRangeRequest{Key: []byte("/a/k")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.lease().LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: own}); err != nil {
		t.Errorf("revoke without the foreign key: %v", err)
	}
}

// While a server may not know that leases have owners, none is written down.
func TestLeasesHaveNoOwnerBelowTheirLevel(t *testing.T) {
	for level, want := range map[state.Feature]string{state.FeatureAccess - 1: "", state.FeatureAccess: callers["a"].Owner()} {
		o := secured()
		o.level = level
		s := startCluster(t, 1, o).leader(t)
		id := grantAs(t, s, "a", 0)
		s.store.View(func(st *state.State) {
			if x, ok := st.Session(state.SessionID(id)); !ok || x.Owner != want {
				t.Errorf("level %d: %v, want owner %q", level, x, want)
			}
		})
	}
}

// A lock without a lease gets one, which is the caller's.
func TestLeaseOfALockIsItsCallers(t *testing.T) {
	c := startCluster(t, 3, secured())
	lock := func(s *testServer, who string) error {
		_, err := v3lockpb.NewLockClient(s.conn).Lock(as(testContext(t), who), &v3lockpb.LockRequest{Name: []byte("/a/q")})
		return err
	}
	if err := lock(c.follower(t), "a"); err != nil {
		t.Fatal(err)
	}
	wantDenied(t, "a lock under a name of a's", lock(c.follower(t), "b"))
	c.leader(t).store.View(func(st *state.State) {
		n := 0
		for x := range st.Sessions() {
			if n++; x.Owner != callers["a"].Owner() {
				t.Errorf("the lease is %q's", x.Owner)
			}
		}
		if n != 1 {
			t.Errorf("%d leases", n)
		}
	})
}

// The ids that servers draw cannot be guessed: each of 63 bits is as often set as
// not, and no two are alike.
func TestDrawnLeaseIDsAreRandom(t *testing.T) {
	s := startCluster(t, 1, options{}).leader(t)
	const draws = 100
	var set [64]int
	seen := map[int64]bool{}
	for range draws {
		id := grant(t, s, 0, 600).ID
		seen[id] = true
		for bit := range set {
			set[bit] += int(uint64(id) >> bit & 1)
		}
	}
	if len(seen) != draws {
		t.Errorf("%d ids in %d draws", len(seen), draws)
	}
	for bit, n := range set[:63] {
		if n == 0 || n == draws { // by chance once in 2^92
			t.Errorf("bit %d was set %d times in %d draws", bit, n, draws)
		}
	}
	if set[63] != 0 {
		t.Error("an id is negative")
	}
}

// What a follower says of a caller is believed; what it asks for nobody is not done,
// unless it is its own question. Others than servers have no relay.
func TestRelayWantsACaller(t *testing.T) {
	c := startCluster(t, 1, secured())
	s := c.leader(t)
	put, err := proto.Marshal(&pb.PutRequest{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	ask, _ := proto.Marshal(&relaypb.ReadIndexRequest{})
	for _, tc := range []struct {
		who, identity string
		method        method
		body          []byte
		want          codes.Code
	}{
		{"server", callers["a"].Encode(), methodPut, put, codes.OK},
		{"server", "", methodPut, put, codes.PermissionDenied},
		{"server", access.Anybody().Encode(), methodPut, put, codes.PermissionDenied},
		{"server", "{}", methodPut, put, codes.PermissionDenied},
		{"server", "", methodReadIndex, ask, codes.OK},
	} {
		if answer := exchangeAs(t, s, tc.who, &relaypb.Call{Id: 1, Method: uint32(tc.method), Body: tc.body, Identity: tc.identity}); status.Code(answer) != tc.want {
			t.Errorf("%s asks method %d for %q: %v, want %v", tc.who, tc.method, tc.identity, answer, tc.want)
		}
	}
	for _, who := range []string{"a", "boss", "worker", "reader"} {
		wantDenied(t, who, exchangeAs(t, s, who, &relaypb.Call{Id: 1, Method: uint32(methodPut), Body: put, Identity: callers["boss"].Encode()}))
	}
}

// exchangeAs makes one call through the relay of a server.
func exchangeAs(t *testing.T, s *testServer, who string, call *relaypb.Call) error {
	t.Helper()
	ctx, stop := context.WithCancel(as(testContext(t), who))
	defer stop()
	stream, err := relaypb.NewRelayServiceClient(s.conn).Exchange(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(&relaypb.ExchangeRequest{Calls: []*relaypb.Call{call}}) // an error shows on the way back
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	return answerOf(m.Answers[0]).err
}

// A gRPC server that forgets to ask who calls does nothing for anybody, whatever the
// method.
func TestHandlersWantACaller(t *testing.T) {
	s := startCluster(t, 1, options{}).leader(t)
	g, ln := grpc.NewServer(), listen(t)
	s.api.Register(g)
	go func() { _ = g.Serve(ln) }()
	defer g.Stop()
	conn, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, method := range registered(t) {
		ctx, stop := context.WithTimeout(testContext(t), 10*time.Second) // what is served may wait
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err == nil {
			_ = stream.SendMsg(&emptypb.Empty{}) // an error shows on the way back
			_ = stream.CloseSend()
			err = stream.RecvMsg(&emptypb.Empty{})
		}
		switch status.Code(err) {
		case codes.PermissionDenied, codes.Unimplemented, codes.FailedPrecondition: // the last: authentication is not enabled
		default:
			t.Errorf("%s: %v", method, err)
		}
		stop()
	}
}
