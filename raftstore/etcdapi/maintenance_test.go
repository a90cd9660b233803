package etcdapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/raftstore/backup"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func (s *testServer) maintenance() pb.MaintenanceClient { return pb.NewMaintenanceClient(s.conn) }

func wantStatus(t testing.TB, what string, err, want error) {
	t.Helper()
	g, w := status.Convert(err), status.Convert(want)
	if g.Code() != w.Code() || g.Message() != w.Message() {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestMembersAndStatus(t *testing.T) {
	c := startCluster(t, 3, options{})
	lead := c.leader(t)
	for _, s := range c.servers {
		ctx := testContext(t)
		list, err := pb.NewClusterClient(s.conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
		if err != nil {
			t.Fatal(err)
		}
		if h := list.Header; h.Revision != 0 || h.MemberId != s.api.self.member {
			t.Errorf("%s: header %v", s.id, h)
		}
		ids := map[uint64]string{}
		for _, m := range list.Members {
			ids[m.ID] = m.Name
			if m.IsLearner || len(m.PeerURLs) != 1 || !strings.HasPrefix(m.PeerURLs[0], "http://127.0.0.1:") {
				t.Errorf("%s: member %v", s.id, m)
			}
			if m.Name == lead.id && (len(m.ClientURLs) != 1 || m.ClientURLs[0] != "http://"+lead.addr) {
				t.Errorf("%s: the leader's member %v, want client URL http://%s", s.id, m, lead.addr)
			}
		}
		st, err := s.maintenance().Status(ctx, &pb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) != 3 || ids[st.Leader] != lead.id || ids[st.Header.MemberId] != s.id {
			t.Errorf("%s: members %v, leader %d, own %d", s.id, ids, st.Leader, st.Header.MemberId)
		}
		if st.Version != "3.6.0" || st.DbSize < 1 || st.RaftTerm != lead.store.Term() || st.IsLearner || len(st.Errors) != 0 || st.RaftIndex == 0 || st.RaftAppliedIndex == 0 {
			t.Errorf("%s: status %v", s.id, st)
		}
	}
}

func TestRefusedByName(t *testing.T) {
	c := startCluster(t, 1, options{})
	s := c.servers[0]
	ctx := testContext(t)
	cl, au := pb.NewClusterClient(s.conn), pb.NewAuthClient(s.conn)
	for name, do := range map[string]func() error{
		"MemberAdd":     func() error { _, err := cl.MemberAdd(ctx, &pb.MemberAddRequest{}); return err },
		"MemberRemove":  func() error { _, err := cl.MemberRemove(ctx, &pb.MemberRemoveRequest{}); return err },
		"MemberUpdate":  func() error { _, err := cl.MemberUpdate(ctx, &pb.MemberUpdateRequest{}); return err },
		"MemberPromote": func() error { _, err := cl.MemberPromote(ctx, &pb.MemberPromoteRequest{}); return err },
		"Downgrade":     func() error { _, err := s.maintenance().Downgrade(ctx, &pb.DowngradeRequest{}); return err },
	} {
		if err := do(); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "etcdserver: "+name+" is not served by Leasehold: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := au.Authenticate(ctx, &pb.AuthenticateRequest{Name: "root", Password: "x"})
	wantStatus(t, "Authenticate", err, rpctypes.ErrGRPCAuthNotEnabled)
	_, err = au.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root", Password: "x"})
	wantStatus(t, "UserAdd", err, rpctypes.ErrGRPCAuthNotEnabled)
	// As with an etcd whose authentication is off and that knows nobody.
	if resp, err := au.UserList(ctx, &pb.AuthUserListRequest{}); err != nil || len(resp.Users) != 0 || resp.Header.GetRevision() < 1 {
		t.Errorf("UserList: %v, %v", resp, err)
	}
	if resp, err := au.RoleList(ctx, &pb.AuthRoleListRequest{}); err != nil || len(resp.Roles) != 0 || resp.Header.GetRevision() < 1 {
		t.Errorf("RoleList: %v, %v", resp, err)
	}
	if resp, err := au.AuthStatus(ctx, &pb.AuthStatusRequest{}); err != nil || resp.Enabled {
		t.Errorf("AuthStatus: %v, %v", resp, err)
	}
}

func TestHashIsTheSameOnAllServers(t *testing.T) {
	c := startCluster(t, 3, options{})
	for i := range 20 {
		put(t, c.servers[i%3].kv(), fmt.Sprint(i%7), fmt.Sprint(i))
	}
	var first *pb.HashKVResponse
	for _, s := range c.servers {
		get(t, s.kv(), "0") // it has them all
		resp, err := s.maintenance().HashKV(testContext(t), &pb.HashKVRequest{Revision: 15})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = resp
		}
		if resp.Hash != first.Hash || resp.HashRevision != 15 || resp.Header.Revision != 21 {
			t.Errorf("%s: %v, want the hash of %v", s.id, resp, first)
		}
	}
	_, err := c.servers[0].maintenance().HashKV(testContext(t), &pb.HashKVRequest{Revision: 22})
	wantStatus(t, "HashKV of the future", err, rpctypes.ErrGRPCFutureRev)
}

// A snapshot has etcd's layout, and what reads backups reads it.
func TestSnapshotIsABackupInEtcdsLayout(t *testing.T) {
	c := startCluster(t, 3, options{})
	put(t, c.leader(t).kv(), "k", strings.Repeat("v", 100_000))
	stream, err := c.follower(t).maintenance().Snapshot(testContext(t), &pb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	var left uint64
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		file.Write(m.Blob)
		left = m.RemainingBytes
	}
	if left != 0 || file.Len()%512 != sha256.Size {
		t.Fatalf("%d bytes, %d remain, want 512·n + %d", file.Len(), left, sha256.Size)
	}
	body := file.Bytes()[:file.Len()-sha256.Size]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], file.Bytes()[len(body):]) {
		t.Fatal("the sum is not that of the body")
	}
	st, m, err := backup.Load(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if kv := st.Keys().Get([]byte("k")); kv == nil || len(kv.Value) != 100_000 || m.ServerID == "" {
		t.Errorf("key of the backup: %v", kv)
	}
}

func TestMoveLeader(t *testing.T) {
	c := startCluster(t, 3, options{})
	lead, other := c.leader(t), c.follower(t)
	ctx := testContext(t)
	_, err := other.maintenance().MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: other.api.self.member})
	wantStatus(t, "at a follower", err, rpctypes.ErrGRPCNotLeader)
	_, err = lead.maintenance().MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: 7})
	wantStatus(t, "to nobody", err, rpctypes.ErrGRPCBadLeaderTransferee)
	if _, err := lead.maintenance().MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: lead.api.self.member}); err != nil {
		t.Errorf("to itself: %v", err)
	}
	if _, err := lead.maintenance().MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: other.api.self.member}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other leads", other.store.IsLeader)
	put(t, lead.kv(), "k", "v")
}

// Over the quota puts are refused, on every server, until the alarm is lowered;
// what makes room is not.
func TestQuotaRaisesTheAlarm(t *testing.T) {
	c := startCluster(t, 3, options{api: func(c *Config) { c.QuotaBytes = 40_000 }})
	s, ctx := c.follower(t), testContext(t)
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = s.kv().Put(ctx, &pb.PutRequest{Key: fmt.Append(nil, n), Value: make([]byte, 4000)})
	}
	wantStatus(t, fmt.Sprintf("put %d", n), err, rpctypes.ErrGRPCNoSpace)
	if n < 5 || n > 11 {
		t.Errorf("put %d of 4 kB was refused by a quota of 40 kB", n)
	}
	for _, s := range c.servers {
		resp, err := s.maintenance().Alarm(ctx, &pb.AlarmRequest{})
		if err != nil || len(resp.Alarms) != 1 || resp.Alarms[0].Alarm != pb.AlarmType_NOSPACE || resp.Alarms[0].MemberID != c.leader(t).api.self.member {
			t.Errorf("%s: alarms %v, %v", s.id, resp, err)
		}
		_, err = s.kv().Put(ctx, &pb.PutRequest{Key: []byte("small")})
		wantStatus(t, s.id+": a small put", err, rpctypes.ErrGRPCNoSpace)
		_, err = s.kv().Txn(ctx, &pb.TxnRequest{Failure: []*pb.RequestOp{putUnion("a", "b")}})
		wantStatus(t, s.id+": a transaction that could put", err, rpctypes.ErrGRPCNoSpace)
		st, err := s.maintenance().Status(ctx, &pb.StatusRequest{})
		if err != nil || len(st.Errors) != 1 || !strings.Contains(st.Errors[0], "NOSPACE") || st.DbSizeQuota != 40_000 {
			t.Errorf("%s: status %v, %v", s.id, st, err)
		}
	}
	if resp, err := s.kv().DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}); err != nil || resp.Deleted != int64(n-1) {
		t.Fatalf("delete: %v, %v", resp, err)
	}
	rev := get(t, s.kv(), "x").Header.Revision
	if _, err := s.kv().Compact(ctx, &pb.CompactionRequest{Revision: rev}); err != nil {
		t.Fatal(err)
	}
	lower := &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: c.leader(t).api.self.member}
	if resp, err := s.maintenance().Alarm(ctx, lower); err != nil || len(resp.Alarms) != 1 {
		t.Fatalf("lower the alarm: %v, %v", resp, err)
	}
	if resp, err := s.maintenance().Alarm(ctx, lower); err != nil || len(resp.Alarms) != 0 {
		t.Fatalf("lower the alarm twice: %v, %v", resp, err)
	}
	put(t, s.kv(), "again", "v")
}

// While servers of an older release may be in the cluster there are no keys, and
// whoever asks for them is told so.
func TestFeatureLevelOneRefusesPolitely(t *testing.T) {
	c := startCluster(t, 3, options{level: 1})
	for _, s := range c.servers {
		ctx := testContext(t)
		_, err := s.kv().Put(ctx, &pb.PutRequest{Key: []byte("k")})
		wantStatus(t, s.id+": put", err, errFeature)
		_, err = s.kv().Range(ctx, &pb.RangeRequest{Key: []byte("k")})
		wantStatus(t, s.id+": range", err, errFeature)
		_, err = s.kv().Compact(ctx, &pb.CompactionRequest{Revision: 1})
		wantStatus(t, s.id+": compact", err, errFeature)
		_, err = s.maintenance().HashKV(ctx, &pb.HashKVRequest{})
		wantStatus(t, s.id+": hash", err, errFeature)
		if _, err := s.maintenance().Status(ctx, &pb.StatusRequest{}); err != nil {
			t.Errorf("%s: status: %v", s.id, err)
		}
	}
}

// A leader of an older release does not know the relay.
func TestLeaderWithoutRelayIsOfAnOlderRelease(t *testing.T) {
	old := grpc.NewServer()
	ln := listen(t)
	go func() { _ = old.Serve(ln) }()
	defer old.Stop()
	c := startCluster(t, 3, options{api: func(cfg *Config) {
		cfg.Address = func(string) string { return ln.Addr().String() }
	}})
	_, err := c.follower(t).kv().Put(testContext(t), &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, "put", err, errFeature)
}

// Who asks for a leader is told soon that there is none; others wait as long as
// etcd lets them.
func TestNoLeaderIsToldToThoseWhoAsk(t *testing.T) {
	c := startCluster(t, 3, options{})
	s := c.follower(t)
	before := time.Now()
	for _, other := range c.servers {
		if other != s {
			other.kill()
		}
	}
	killed := time.Now() // some time after the leader was lost
	asks := metadata.AppendToOutgoingContext(testContext(t), rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	_, err := s.kv().Put(asks, &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, "put with hasleader", err, rpctypes.ErrGRPCNoLeader)
	if least, most := time.Since(before), time.Since(killed); least < 2*electionTimeout || most > 8*electionTimeout {
		t.Errorf("told after %v to %v, want about three elections of %v after the loss", most, least, electionTimeout)
	}
	_, err = s.kv().Range(asks, &pb.RangeRequest{Key: []byte("k")})
	wantStatus(t, "range with hasleader", err, rpctypes.ErrGRPCNoLeader)
	ctx, stop := context.WithTimeout(testContext(t), electionTimeout)
	defer stop()
	if _, err := s.kv().Put(ctx, &pb.PutRequest{Key: []byte("k")}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("put without hasleader: %v, want it to wait", err)
	}
}

func TestAgeAndCountAreCompacted(t *testing.T) {
	now := time.Duration(0)
	c := &compactor{age: time.Hour, keep: 1000}
	for _, step := range []struct {
		after             time.Duration
		newest, compacted int64
		want              int64
	}{
		{0, 100, 0, 0}, // of unknown age: taken for new
		{time.Hour - time.Second, 150, 0, 0},
		{time.Second, 200, 0, 100},
		{time.Second, 200, 0, 100}, // it was not done: again
		{time.Second, 200, 100, 0}, // it was
		{time.Hour, 300, 100, 150}, // what was seen an hour ago
		{time.Hour, 1300, 300, 0},  // just enough are kept
		{time.Second, 1401, 300, 401},
	} {
		now += step.after
		if got := c.look(now, step.newest, step.compacted); got != step.want {
			t.Errorf("at %v, newest %d, compacted %d: %d, want %d", now, step.newest, step.compacted, got, step.want)
		}
	}
}

func TestLeaderCompacts(t *testing.T) {
	c := startCluster(t, 1, options{api: func(c *Config) { c.CompactRevisions = 100 }})
	s := c.servers[0]
	for i := range 130 {
		put(t, s.kv(), "k", fmt.Sprint(i))
	}
	// The duty looks every few seconds: its next look is taken here.
	var newest, compacted int64
	s.store.View(func(st *state.State) { newest, compacted = st.Keys().Revision(), st.Keys().Compacted() })
	target := (&compactor{keep: 100}).look(0, newest, compacted)
	if err := s.api.compactTo(testContext(t), compacted, target); err != nil || target != 31 {
		t.Fatalf("compact to %d: %v", target, err)
	}
	_, err := s.kv().Range(testContext(t), &pb.RangeRequest{Key: []byte("k"), Revision: 30})
	wantStatus(t, "range below", err, rpctypes.ErrGRPCCompacted)
	if _, err := s.kv().Range(testContext(t), &pb.RangeRequest{Key: []byte("k"), Revision: 31}); err != nil {
		t.Errorf("range of what is kept: %v", err)
	}
}

func TestFiguresOfKeys(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.NewServer(reg, metrics.ServerConfig{})
	c := startCluster(t, 1, options{api: func(c *Config) { c.Metrics = m }})
	s := c.servers[0]
	put(t, s.kv(), "a", "1")
	put(t, s.kv(), "a", "2")
	if _, err := s.kv().Put(testContext(t), &pb.PutRequest{}); err == nil {
		t.Fatal("an empty key was taken")
	}
	stream, err := pb.NewWatchClient(s.conn).Watch(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	create := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}}
	for range 2 {
		if err := stream.Send(create); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	s.api.Observe()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "leasehold_")
			for _, l := range one.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = one.GetGauge().GetValue() + one.GetCounter().GetValue() + float64(one.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"kv_revision": 3, "kv_keys": 1, "kv_compact_revision": 0, "kv_quota_bytes": DefaultQuotaBytes, "kv_watchers": 2, "kv_watch_streams": 1,
		"rpc_requests_total etcd put ok": 2, "rpc_requests_total etcd put refused": 1, "rpc_requests_total etcd put unavailable": 0,
		"rpc_duration_seconds etcd write": 3,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if got["kv_size_bytes"] < 10 {
		t.Errorf("size is %v", got["kv_size_bytes"])
	}
}
