package etcdapi

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func (s *testServer) lease() pb.LeaseClient { return pb.NewLeaseClient(s.conn) }

func grant(t testing.TB, s *testServer, id, ttl int64) *pb.LeaseGrantResponse {
	t.Helper()
	resp, err := s.lease().LeaseGrant(testContext(t), &pb.LeaseGrantRequest{ID: id, TTL: ttl})
	if err != nil {
		t.Fatalf("grant lease %d: %v", id, err)
	}
	return resp
}

func putWith(t testing.TB, s *testServer, key string, lease int64) {
	t.Helper()
	if _, err := s.kv().Put(testContext(t), &pb.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: lease}); err != nil {
		t.Fatalf("put %s with lease %d: %v", key, lease, err)
	}
}

func revoke(s *testServer, id int64) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	_, err := s.lease().LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
	return err
}

func timeToLive(t testing.TB, s *testServer, id int64) *pb.LeaseTimeToLiveResponse {
	t.Helper()
	resp, err := s.lease().LeaseTimeToLive(testContext(t), &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	if err != nil {
		t.Fatalf("time to live of lease %d on %s: %v", id, s.id, err)
	}
	return resp
}

func has(t testing.TB, s *testServer, key string) bool {
	t.Helper()
	resp, err := s.kv().Range(testContext(t), &pb.RangeRequest{Key: []byte(key)})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Count > 0
}

// Every server serves leases, with etcd's answers and refusals.
func TestLeasesOnEveryServer(t *testing.T) {
	c := startCluster(t, 3, options{})
	for i, s := range c.servers {
		chosen := grant(t, s, 0, 100)
		if chosen.ID <= 0 || chosen.TTL != 100 || chosen.Header.Revision != 1 || chosen.Header.MemberId != s.api.self.member {
			t.Errorf("%s grants %v", s.id, chosen)
		}
		for _, ttl := range []int64{1, 0, -5} {
			if small := grant(t, s, 0, ttl); small.TTL != state.MinLeaseTTL {
				t.Errorf("%s: a TTL of %d became %d, want %d", s.id, ttl, small.TTL, state.MinLeaseTTL)
			}
		}
		if long := grant(t, s, 0, state.MaxLeaseTTL); timeToLive(t, s, long.ID).GrantedTTL != state.MaxLeaseTTL {
			t.Errorf("%s: the longest TTL is not kept", s.id)
		}
		grant(t, s, int64(1000+i), 100)
		for _, test := range []struct {
			id, ttl int64
			want    error
		}{
			{1000 + int64(i), 100, rpctypes.ErrGRPCLeaseExist},
			{1000 + int64(i), state.MaxLeaseTTL + 1, rpctypes.ErrGRPCLeaseTTLTooLarge},
			{0, state.MaxLeaseTTL + 1, rpctypes.ErrGRPCLeaseTTLTooLarge},
		} {
			_, err := s.lease().LeaseGrant(testContext(t), &pb.LeaseGrantRequest{ID: test.id, TTL: test.ttl})
			if !sameStatus(err, test.want) {
				t.Errorf("%s: grant %d for %d s: %v, want %v", s.id, test.id, test.ttl, err, test.want)
			}
		}
		if err := revoke(s, 999); !sameStatus(err, rpctypes.ErrGRPCLeaseNotFound) {
			t.Errorf("%s: revoke what is none: %v", s.id, err)
		}
		if x := timeToLive(t, s, 999); x.TTL != -1 || x.GrantedTTL != 0 || x.ID != 999 || len(x.Keys) > 0 {
			t.Errorf("%s: time to live of what is none: %v", s.id, x)
		}
		if x := timeToLive(t, s, chosen.ID); x.TTL < 90 || x.TTL > 100 || x.GrantedTTL != 100 {
			t.Errorf("%s: time to live just after the grant: %v", s.id, x)
		}
		if err := revoke(s, chosen.ID); err != nil {
			t.Errorf("%s: %v", s.id, err)
		}
	}
	for _, s := range c.servers {
		eventually(t, s.id+" lists 15 leases", func() bool {
			resp, err := s.lease().LeaseLeases(testContext(t), &pb.LeaseLeasesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return len(resp.Leases) == 15
		})
	}
}

func sameStatus(got, want error) bool {
	return status.Code(got) == status.Code(want) && status.Convert(got).Message() == status.Convert(want).Message()
}

// O-09: a key dies with the lease that it was put with last, and with none after a
// put without one.
func TestO09KeyMovesBetweenLeases(t *testing.T) {
	s := startCluster(t, 1, options{}).servers[0]
	a, b := grant(t, s, 0, 100).ID, grant(t, s, 0, 100).ID
	events := watchFrom(t, s, "k", 1)
	end := func(id int64) {
		t.Helper()
		if err := revoke(s, id); err != nil {
			t.Fatal(err)
		}
	}
	putWith(t, s, "k", a)
	putWith(t, s, "k", b)
	if keys := timeToLive(t, s, a).Keys; len(keys) != 0 {
		t.Errorf("the first lease still has %q", keys)
	}
	if end(a); !has(t, s, "k") {
		t.Error("the key died with the lease that it had left")
	}
	if end(b); has(t, s, "k") {
		t.Error("the key outlived its lease")
	}
	a = grant(t, s, 0, 100).ID
	putWith(t, s, "k", a)
	putWith(t, s, "k", a) // the same again
	putWith(t, s, "k", 0)
	if end(a); !has(t, s, "k") {
		t.Error("the key died with the lease that a put without one had taken it from")
	}
	putWith(t, s, "last", 0)
	want := []string{"PUT 2", "PUT 3", "DELETE 4", "PUT 5", "PUT 6", "PUT 7"}
	if got := events(len(want)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// watchFrom watches a key; the function it returns waits for so many events and
// describes them.
func watchFrom(t testing.TB, s *testServer, key string, revision int64) func(n int) []string {
	t.Helper()
	stream := openWatch(t, s, &pb.WatchCreateRequest{Key: []byte(key), StartRevision: revision})
	return func(n int) (got []string) {
		t.Helper()
		for len(got) < n {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range m.Events {
				got = append(got, fmt.Sprintf("%s %d", e.Type, e.Kv.ModRevision))
			}
		}
		return got
	}
}

// openWatch opens a stream with one watch, and takes the answer that it is created.
func openWatch(t testing.TB, s *testServer, r *pb.WatchCreateRequest) pb.Watch_WatchClient {
	t.Helper()
	stream, err := pb.NewWatchClient(s.conn).Watch(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || !m.Created {
		t.Fatalf("created: %v, %v", m, err)
	}
	return stream
}

// O-10: whoever asks for a lease's time while it runs out is told a number of whole
// seconds that is never below 0, and then -1 without keys, on every server.
func TestO10TimeToLiveWhileItExpires(t *testing.T) {
	t.Parallel() // it mostly waits
	c := startCluster(t, 3, options{})
	start := time.Now()
	id := grant(t, c.servers[0], 0, 2).ID
	putWith(t, c.servers[0], "k", id)
	over := make([]bool, 3)
	for time.Since(start) < 30*time.Second && !(over[0] && over[1] && over[2]) {
		for i, s := range c.servers {
			x := timeToLive(t, s, id)
			switch {
			case x.TTL == -1:
				if len(x.Keys) > 0 || x.GrantedTTL != 0 {
					t.Fatalf("%s: gone, and yet %v", s.id, x)
				}
				if time.Since(start) < 2*time.Second {
					t.Fatalf("%s: gone after %v", s.id, time.Since(start))
				}
				over[i] = true
			case over[i]:
				t.Fatalf("%s: gone, and there again: %v", s.id, x)
			case x.TTL < 0 || x.TTL > 2 || len(x.Keys) != 1 || x.GrantedTTL != 2:
				t.Fatalf("%s: %v", s.id, x)
			}
		}
	}
	t.Logf("gone after %v", time.Since(start))
	for i, s := range c.servers {
		if !over[i] {
			t.Errorf("%s: still there after %v", s.id, time.Since(start))
		}
		if has(t, s, "k") {
			t.Errorf("%s: the key is still there", s.id)
		}
	}
}

func keepAlive(t testing.TB, s *testServer) (ask func(ids ...int64) []*pb.LeaseKeepAliveResponse) {
	t.Helper()
	stream, err := s.lease().LeaseKeepAlive(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stream.CloseSend()
		if _, err := stream.Recv(); err != nil && err != io.EOF && status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
			t.Errorf("the stream of keep-alives ended with %v", err)
		}
	})
	return func(ids ...int64) (got []*pb.LeaseKeepAliveResponse) {
		t.Helper()
		for _, id := range ids {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		for range ids {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m)
		}
		return got
	}
}

// One stream serves any number of leases, on every server. One that is none is
// answered with 0, and the stream goes on.
func TestKeepAliveOfManyLeases(t *testing.T) {
	c := startCluster(t, 3, options{})
	for _, s := range c.servers {
		a, b := grant(t, s, 0, 50).ID, grant(t, s, 0, 60).ID
		ask := keepAlive(t, s)
		for range 2 {
			want := []string{fmt.Sprint(a, 50), fmt.Sprint(999, 0), fmt.Sprint(b, 60), fmt.Sprint(a, 50)}
			var got []string
			for _, m := range ask(a, 999, b, a) {
				got = append(got, fmt.Sprint(m.ID, m.TTL))
				if m.Header.MemberId != s.api.self.member || m.Header.Revision != 1 {
					t.Errorf("%s: header %v", s.id, m.Header)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: answers %v, want %v", s.id, got, want)
			}
		}
	}
}

// A keep-alive in time keeps a lease, and its keys, beyond its TTL.
func TestKeepAliveKeeps(t *testing.T) {
	t.Parallel() // it mostly waits
	s := startCluster(t, 1, options{}).servers[0]
	id := grant(t, s, 0, 2).ID
	putWith(t, s, "k", id)
	ask := keepAlive(t, s)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if m := ask(id)[0]; m.TTL != 2 {
			t.Fatalf("renewed: %v", m)
		}
	}
	if !has(t, s, "k") {
		t.Error("the key is gone")
	}
}

// revokedOnceRenewed is a store in which a lease is revoked after it has been
// renewed and before whoever renewed it hears so.
type revokedOnceRenewed struct{ Store }

func (s revokedOnceRenewed) KeepAliveAsync(id state.SessionID, fn func(raftstore.KeepAlive, error)) {
	s.Store.KeepAliveAsync(id, func(k raftstore.KeepAlive, err error) {
		go func() {
			_, _ = s.Propose(context.Background(), &state.RevokeLease{Session: id})
			fn(k, err)
		}()
	})
}

// The revision that a keep-alive's answer has was there before the lease was
// renewed: a client never hears that its lease was renewed at a revision at which
// it was gone.
func TestKeepAliveHeaderIsOfBefore(t *testing.T) {
	c := startCluster(t, 1, options{api: func(cfg *Config) { cfg.Store = revokedOnceRenewed{cfg.Store} }})
	s := c.servers[0]
	id := grant(t, s, 0, 100).ID
	putWith(t, s, "k", id)
	m := keepAlive(t, s)(id)[0]
	if has(t, s, "k") {
		t.Fatal("the lease was not revoked")
	}
	if m.TTL != 100 || m.Header.Revision != 2 {
		t.Errorf("renewed for %d s at revision %d, revoked at 3", m.TTL, m.Header.Revision)
	}
}

// The keep-alives that a client sends together are one entry of the log.
func TestKeepAlivesShareEntries(t *testing.T) {
	c := startCluster(t, 3, options{})
	for _, s := range []*testServer{c.leader(t), c.follower(t)} {
		ids := make([]int64, 500)
		cmds := make([]state.Command, len(ids))
		for i := range ids {
			ids[i] = int64(1+i) + 1000*int64(s.id[1])
			cmds[i] = &state.GrantLease{Session: state.SessionID(ids[i]), TTL: 60}
		}
		eventually(t, "leases", func() bool { // they may be there already, and the leader may be another
			_, err := c.leader(t).store.Propose(testContext(t), cmds...)
			return err == nil
		})
		ask := keepAlive(t, s)
		before := c.leader(t).store.AppliedIndex()
		for _, m := range ask(ids...) {
			if m.TTL != 60 {
				t.Fatalf("renewed: %v", m)
			}
		}
		if n := c.leader(t).store.AppliedIndex() - before; n > 20 {
			t.Errorf("500 keep-alives through %s took %d entries", s.id, n)
		}
	}
}

// The sessions of workers hold keys and are seen, but no client of etcd's can end
// or keep them.
func TestWorkersSessions(t *testing.T) {
	t.Parallel() // it mostly waits
	s := startCluster(t, 1, options{}).servers[0]
	_, err := s.store.Propose(testContext(t),
		&state.CreateKeyspace{Name: "jobs", Partitions: 4, Settings: state.Settings{TTL: 2 * time.Second, Takeover: state.Strict}})
	if err != nil {
		t.Fatal(err)
	}
	results, err := s.store.Propose(testContext(t), &state.OpenSession{Session: 77, Worker: "w1", Keyspaces: []string{"jobs"}})
	if err != nil || results[0].Err != nil {
		t.Fatal(err, results)
	}
	putWith(t, s, "k", 77)
	if err := revoke(s, 77); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("revoke a worker's session: %v", err)
	}
	if x := timeToLive(t, s, 77); x.GrantedTTL != 2 || x.TTL < 0 || len(x.Keys) != 1 {
		t.Errorf("time to live %v", x)
	}
	ask := keepAlive(t, s)
	for {
		m := ask(77)[0]
		if m.TTL == 0 {
			break // it ran out, whatever was asked
		}
		if m.TTL > 2 {
			t.Fatalf("keep-alive of a worker's session: %v", m)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if has(t, s, "k") {
		t.Error("the key outlived the worker's session")
	}
}

// A stream of keep-alives outlives the leader: it is answered again when there is
// a new one.
func TestKeepAliveOverLeaderChange(t *testing.T) {
	c := startCluster(t, 3, options{})
	s := c.follower(t)
	id := grant(t, s, 0, 30).ID
	ask := keepAlive(t, s)
	ask(id)
	c.leader(t).kill()
	if m := ask(id)[0]; m.TTL != 30 {
		t.Errorf("after the leader's end: %v", m)
	}
}

// aheadStore is a store of which only the clock is asked.
type aheadStore struct {
	Store
	ahead time.Duration
}

func (s aheadStore) ClockAhead() time.Duration { return s.ahead }

// Whole seconds, rounded down; a session whose end is late has nothing left, and
// never less.
func TestLateLeaseHasNothingLeft(t *testing.T) {
	for deadline, want := range map[time.Duration]int64{
		12500 * time.Millisecond: 10, 2 * time.Second: 0, 1999 * time.Millisecond: 0, time.Second: 0, -600 * time.Second: 0,
	} {
		a := &API{cfg: Config{Store: aheadStore{ahead: 2 * time.Second}}}
		if got := a.secondsLeft(state.New(), &state.Session{Deadline: deadline}); got != want {
			t.Errorf("deadline %v, clock 2 s: %d left, want %d", deadline, got, want)
		}
	}
}
