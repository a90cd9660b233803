package etcdapi

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

type campaign struct {
	resp *v3electionpb.CampaignResponse
	err  error
}

func (c *testCluster) campaign(t testing.TB, s *testServer, name, value string, lease int64) <-chan campaign {
	t.Helper()
	done := make(chan campaign, 1)
	go func() {
		resp, err := v3electionpb.NewElectionClient(s.conn).Campaign(testContext(t),
			&v3electionpb.CampaignRequest{Name: []byte(name), Lease: lease, Value: []byte(value)})
		done <- campaign{resp, err}
	}()
	eventually(t, "a candidate", func() bool {
		kv := c.pair(t, name+"/"+hex(lease))
		return kv != nil && string(kv.Value) == value
	})
	return done
}

func hex(lease int64) string { return string(state.QueueKey(nil, state.SessionID(lease))[1:]) }

func elected(t testing.TB, done <-chan campaign) *v3electionpb.LeaderKey {
	t.Helper()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.resp.GetLeader()
}

func expectText(t testing.TB, err error, code codes.Code, text string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || s.Message() != text {
		t.Errorf("got %v, want %v %q", err, code, text)
	}
}

func TestElectionFromCampaignToResignation(t *testing.T) {
	c := startCluster(t, 3, options{})
	ctx, f := testContext(t), c.follower(t)
	client := v3electionpb.NewElectionClient(f.conn)
	_, err := client.Leader(ctx, &v3electionpb.LeaderRequest{Name: []byte("E")})
	expectText(t, err, codes.Unknown, "election: no leader")
	c.put(t, "E/1", "ordinary", 0) // counts for nothing

	seen, err := client.Observe(ctx, &v3electionpb.LeaderRequest{Name: []byte("E")})
	if err != nil {
		t.Fatal(err)
	}
	sees := func(key, value string) {
		t.Helper()
		r, err := seen.Recv()
		if err != nil || string(r.GetKv().GetKey()) != key || string(r.GetKv().GetValue()) != value || r.GetHeader().GetRevision() == 0 {
			t.Fatalf("observed %v, %v, want %q = %q", r, err, key, value)
		}
	}
	a := elected(t, c.campaign(t, f, "E", "a", c.grant(t, 0x10)))
	sees("E/10", "a")
	if a.GetRev() != c.pair(t, "E/10").CreateRevision || a.GetLease() != 0x10 || string(a.GetName()) != "E" {
		t.Errorf("elected as %v", a)
	}
	b := c.campaign(t, c.leader(t), "E", "b", c.grant(t, 0x11))
	// A candidate that stands already gets the value given.
	again := elected(t, c.campaign(t, c.leader(t), "E", "a2", 0x10))
	if again.GetRev() != a.GetRev() {
		t.Errorf("rev %d, then %d", a.GetRev(), again.GetRev())
	}
	sees("E/10", "a2")
	if _, err := client.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: a, Value: []byte("a3")}); err != nil {
		t.Fatal(err)
	}
	sees("E/10", "a3")
	if kv := c.pair(t, "E/10"); kv.Lease != 0x10 {
		t.Errorf("after a proclamation the key belongs to lease %x", kv.Lease)
	}
	got, err := client.Leader(ctx, &v3electionpb.LeaderRequest{Name: []byte("E")})
	if err != nil || string(got.GetKv().GetValue()) != "a3" {
		t.Errorf("%v, %v", got, err)
	}
	for range 2 { // no error the second time
		if _, err := client.Resign(ctx, &v3electionpb.ResignRequest{Leader: a}); err != nil {
			t.Fatal(err)
		}
	}
	elected(t, b)
	sees("E/11", "b")
	_, err = client.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: a, Value: []byte("x")})
	expectText(t, err, codes.Unknown, "election: not leader")
	// Elected anew, under the same key: the old revision is nothing any more.
	next := c.campaign(t, f, "E", "a", 0x10)
	c.do(t, &state.RevokeLease{Session: 0x11})
	newer := elected(t, next)
	sees("E/10", "a")
	if newer.GetRev() <= a.GetRev() {
		t.Errorf("rev %d after %d", newer.GetRev(), a.GetRev())
	}
	if _, err := client.Resign(ctx, &v3electionpb.ResignRequest{Leader: a}); err != nil || c.pair(t, "E/10") == nil {
		t.Errorf("an old resignation: %v, key %v", err, c.pair(t, "E/10"))
	}
}

func TestElectionRefusals(t *testing.T) {
	c := startCluster(t, 1, options{})
	ctx := testContext(t)
	client := v3electionpb.NewElectionClient(c.leader(t).conn)
	_, err := client.Proclaim(ctx, &v3electionpb.ProclaimRequest{})
	expectText(t, err, codes.Unknown, `"leader" field must be provided`)
	_, err = client.Resign(ctx, &v3electionpb.ResignRequest{})
	expectText(t, err, codes.Unknown, `"leader" field must be provided`)
	_, err = client.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: &v3electionpb.LeaderKey{}})
	expectText(t, err, codes.InvalidArgument, "etcdserver: key is not provided")
	_, err = client.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: &v3electionpb.LeaderKey{Key: []byte("E/1")}})
	expectText(t, err, codes.Unknown, "election: not leader")
	c.put(t, "config", "v", 0)
	_, err = client.Resign(ctx, &v3electionpb.ResignRequest{Leader: &v3electionpb.LeaderKey{Key: []byte("config"), Rev: c.pair(t, "config").CreateRevision}})
	if status.Code(err) != codes.InvalidArgument || c.pair(t, "config") == nil {
		t.Errorf("%v; the key is %v", err, c.pair(t, "config"))
	}
	_, err = client.Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("E"), Lease: 99})
	expectText(t, err, codes.NotFound, "etcdserver: requested lease not found")
}

// etcd tells a candidate whose key was deleted that it leads.
func TestCandidateWithoutItsKeyIsNotElected(t *testing.T) {
	c := startCluster(t, 1, options{})
	s := c.leader(t)
	a := elected(t, c.campaign(t, s, "E", "a", c.grant(t, 0x10)))
	b := c.campaign(t, s, "E", "b", c.grant(t, 0x11))
	unlock(t, s, []byte("E/11"))
	unlock(t, s, a.GetKey())
	if r := <-b; status.Code(r.err) != codes.Aborted {
		t.Errorf("%v, %v", r.resp, r.err)
	}
}

func TestObserveEndsWithTheServer(t *testing.T) {
	c := startCluster(t, 1, options{})
	s := c.leader(t)
	seen, err := v3electionpb.NewElectionClient(s.conn).Observe(context.Background(), &v3electionpb.LeaderRequest{Name: []byte("E")})
	if err != nil {
		t.Fatal(err)
	}
	elected(t, c.campaign(t, s, "E", "a", c.grant(t, 1)))
	if _, err := seen.Recv(); err != nil {
		t.Fatal(err)
	}
	s.api.stop(errStopped)
	_, err = seen.Recv()
	expectText(t, err, codes.Unavailable, "etcdserver: server stopped")
}
