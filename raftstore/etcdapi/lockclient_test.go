package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
)

// etcdClient is etcd's own, for the servers given.
func etcdClient(t testing.TB, servers ...*testServer) *clientv3.Client {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.addr)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Locks of etcd's library and of the Lock service, on three servers, exclude
// each other.
func TestBareMutexAndLockServiceExcludeEachOther(t *testing.T) {
	c := startCluster(t, 3, options{})
	ctx := testContext(t)
	var inside sync.Mutex
	total := 0
	critical := func(who string) {
		if !inside.TryLock() {
			t.Errorf("%s is inside beside another", who)
			return
		}
		total++
		inside.Unlock()
	}
	var workers sync.WaitGroup
	const rounds = 8
	for i, s := range c.servers {
		session, err := concurrency.NewSession(etcdClient(t, s), concurrency.WithTTL(60))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		workers.Go(func() {
			m := concurrency.NewMutex(session, "L")
			for range rounds {
				if err := m.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				critical("a mutex")
				if err := m.Unlock(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
		lease := c.grant(t, int64(i+1))
		workers.Go(func() {
			client := v3lockpb.NewLockClient(s.conn)
			for range rounds {
				resp, err := client.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("L"), Lease: lease})
				if err != nil {
					t.Error(err)
					return
				}
				critical("a lock")
				if _, err := client.Unlock(ctx, &v3lockpb.UnlockRequest{Key: resp.GetKey()}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	if total != 6*rounds {
		t.Errorf("%d were inside, want %d", total, 6*rounds)
	}
}

// A leader elected by etcd's library is seen and followed through the service.
func TestElectionOfEtcdsLibraryBesideTheService(t *testing.T) {
	c := startCluster(t, 1, options{})
	ctx, s := testContext(t), c.leader(t)
	session, err := concurrency.NewSession(etcdClient(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	bare := concurrency.NewElection(session, "E")
	if err := bare.Campaign(ctx, "bare"); err != nil {
		t.Fatal(err)
	}
	client := v3electionpb.NewElectionClient(s.conn)
	got, err := client.Leader(ctx, &v3electionpb.LeaderRequest{Name: []byte("E")})
	if err != nil || string(got.GetKv().GetValue()) != "bare" {
		t.Fatalf("%v, %v", got, err)
	}
	next := c.campaign(t, s, "E", "served", c.grant(t, 5))
	if err := bare.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	elected(t, next)
	resp, err := bare.Leader(ctx)
	if err != nil || string(resp.Kvs[0].Value) != "served" {
		t.Errorf("%v, %v", resp, err)
	}
}

// A caller without a lease gets one of a minute, as in etcd; one that gives up
// leaves none behind.
func TestLockWithoutALease(t *testing.T) {
	c := startCluster(t, 1, options{})
	ctx, s := testContext(t), c.leader(t)
	a := c.lock(t, ctx, s, "L", 0).in()
	leases := func() int {
		l, err := pb.NewLeaseClient(s.conn).LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(l.GetLeases())
	}
	if n := leases(); n != 1 {
		t.Errorf("%d leases", n)
	}
	var id int64
	if _, err := fmt.Sscanf(string(a.resp.GetKey()), "L/%x", &id); err != nil {
		t.Fatal(err)
	}
	ttl, err := pb.NewLeaseClient(s.conn).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id})
	if err != nil || ttl.GetGrantedTTL() != ownLeaseTTL {
		t.Errorf("%v, %v", ttl, err)
	}
	giving, cancel := context.WithCancel(ctx)
	b := c.lock(t, giving, s, "L", 0)
	eventually(t, "the wait", func() bool { return s.api.queues.Waiting() == 1 })
	cancel()
	if err := b.wait(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	eventually(t, "the end of the other lease", func() bool { return leases() == 1 })
	unlock(t, s, a.resp.GetKey())
}

// What clients send is answered with a status or done, whatever it is.
func FuzzLockAndElectionRequests(f *testing.F) {
	f.Add(byte(0), []byte("L"), []byte("L/1"), []byte("v"), int64(1), int64(2))
	f.Add(byte(1), []byte(""), []byte("/"), []byte(""), int64(0), int64(-1))
	f.Add(byte(2), []byte("a/b"), []byte("a/b/-1"), []byte("\x00"), int64(-1), int64(0))
	f.Add(byte(3), []byte("\x00"), []byte("\xff/ffffffffffffffff"), []byte("v"), int64(1<<62), int64(1<<62))
	f.Add(byte(4), []byte("L"), []byte(strings.Repeat("x", 100)), []byte("v"), int64(7), int64(7))
	f.Add(byte(5), []byte("L"), []byte("L/7"), []byte("v"), int64(7), int64(7))
	f.Add(byte(6), []byte("L"), []byte("L/7"), []byte("v"), int64(7), int64(7))
	c := startCluster(f, 1, options{})
	s := c.leader(f)
	c.grant(f, 7)
	f.Fuzz(func(t *testing.T, call byte, name, key, value []byte, lease, rev int64) {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		locks, elections := v3lockpb.NewLockClient(s.conn), v3electionpb.NewElectionClient(s.conn)
		leader := &v3electionpb.LeaderKey{Name: name, Key: key, Rev: rev, Lease: lease}
		var err error
		switch call % 7 {
		case 0:
			_, err = locks.Lock(ctx, &v3lockpb.LockRequest{Name: name, Lease: lease})
		case 1:
			_, err = locks.Unlock(ctx, &v3lockpb.UnlockRequest{Key: key})
		case 2:
			_, err = elections.Campaign(ctx, &v3electionpb.CampaignRequest{Name: name, Lease: lease, Value: value})
		case 3:
			_, err = elections.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: leader, Value: value})
		case 4:
			_, err = elections.Resign(ctx, &v3electionpb.ResignRequest{Leader: leader})
		case 5:
			_, err = elections.Leader(ctx, &v3electionpb.LeaderRequest{Name: name})
		case 6:
			var seen v3electionpb.Election_ObserveClient
			if seen, err = elections.Observe(ctx, &v3electionpb.LeaderRequest{Name: name}); err == nil {
				_, err = seen.Recv()
			}
		}
		code := status.Code(err)
		if code == codes.Internal || code == codes.Unimplemented || code == codes.Unavailable {
			t.Fatalf("call %d: %v", call%7, err)
		}
		if text := status.Convert(err).Message(); code == codes.Unknown && !strings.HasPrefix(text, "election: ") && !errors.Is(err, io.EOF) {
			t.Fatalf("call %d: %q is not in the error table", call%7, text)
		}
		if _, err := pb.NewKVClient(s.conn).Range(context.Background(), &pb.RangeRequest{Key: []byte("k")}); err != nil &&
			rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaderChanged) {
			t.Fatalf("after call %d: %v", call%7, err)
		}
	})
}
