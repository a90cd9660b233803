package api

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func ptr[T any](v T) *T { return &v }

// badNames are O-79's.
var badNames = []string{"", " ", "a/b", "/a", "a//b", "..", "a..b", "%2F", "#", "?", "\u00a0", "\u200f", "😀", strings.Repeat("n", 300), "a\nb", `"`, "\x00"}

// Every method is given what it must refuse: the answer names field, value and
// limit, and nothing has changed.
func TestBadInputIsRefusedByNameAndChangesNothing(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 64)
	w := openWorker(t, conn, 11, "w1", "orders")
	w.holds(64)
	keyspaces, partitions, workers := pb.NewKeyspaceServiceClient(conn), pb.NewPartitionServiceClient(conn), pb.NewWorkerServiceClient(conn)
	events, sessions, clusters := pb.NewEventServiceClient(conn), pb.NewSessionServiceClient(conn), pb.NewClusterServiceClient(conn)
	ctx := t.Context()
	create := func(change func(*pb.CreateKeyspaceRequest)) func() error {
		return func() error {
			r := &pb.CreateKeyspaceRequest{Name: "bills", Partitions: 8, TtlMs: 10_000}
			change(r)
			_, err := keyspaces.CreateKeyspace(ctx, r)
			return err
		}
	}
	update := func(change func(*pb.UpdateKeyspaceRequest)) func() error {
		return func() error {
			r := &pb.UpdateKeyspaceRequest{Name: "orders"}
			change(r)
			_, err := keyspaces.UpdateKeyspace(ctx, r)
			return err
		}
	}
	attach := func(r *pb.AttachRequest) func() error {
		return func() error { return dialWorker(t, conn, r).end() }
	}
	open := func(change func(*pb.OpenSession)) func() error {
		r := openRequest(99, "w9", "orders")
		change(r.GetOpen())
		return attach(r)
	}
	watch := func(r *pb.WatchEventsRequest) func() error {
		return func() error {
			stream, err := events.WatchEvents(ctx, r)
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		}
	}
	credential := func(change func(*pb.CreateCredentialRequest)) func() error {
		return func() error {
			r := &pb.CreateCredentialRequest{Name: "ci", Role: pb.Role_ROLE_READER}
			change(r)
			_, err := pb.NewCredentialServiceClient(conn).CreateCredential(ctx, r)
			return err
		}
	}
	revoke := func(ref string) func() error {
		return func() error {
			_, err := pb.NewCredentialServiceClient(conn).RevokeCredential(ctx, &pb.RevokeCredentialRequest{Credential: ref})
			return err
		}
	}
	cases := []struct {
		name    string
		call    func() error
		code    codes.Code
		field   string
		message string // a part of it: value or limit
	}{
		{"create: P 0", create(func(r *pb.CreateKeyspaceRequest) { r.Partitions = 0 }), codes.InvalidArgument, "partitions", "1 to 1048576"},
		{"create: P 2^20+1", create(func(r *pb.CreateKeyspaceRequest) { r.Partitions = 1<<20 + 1 }), codes.InvalidArgument, "partitions", "1048577"},
		{"create: P -1 as unsigned", create(func(r *pb.CreateKeyspaceRequest) { r.Partitions = 1<<32 - 1 }), codes.InvalidArgument, "partitions", "4294967295"},
		{"create: TTL 0", create(func(r *pb.CreateKeyspaceRequest) { r.TtlMs = 0 }), codes.InvalidArgument, "ttl_ms", "6 election timeouts of 300ms"},
		{"create: TTL negative", create(func(r *pb.CreateKeyspaceRequest) { r.TtlMs = -1 }), codes.InvalidArgument, "ttl_ms", "-1"},
		{"create: TTL 1 ms", create(func(r *pb.CreateKeyspaceRequest) { r.TtlMs = 1 }), codes.InvalidArgument, "ttl_ms", "1800 to 3600000 ms"},
		{"create: TTL just below the floor", create(func(r *pb.CreateKeyspaceRequest) { r.TtlMs = 1799 }), codes.InvalidArgument, "ttl_ms", "1800"},
		{"create: TTL 2 h", create(func(r *pb.CreateKeyspaceRequest) { r.TtlMs = 7_200_000 }), codes.InvalidArgument, "ttl_ms", "3600000"},
		{"create: TTL that overflows", create(func(r *pb.CreateKeyspaceRequest) { r.TtlMs = 1<<63 - 1 }), codes.InvalidArgument, "ttl_ms", "9223372036854775807"},
		{"create: handoff timeout 0", create(func(r *pb.CreateKeyspaceRequest) { r.HandoffTimeoutMs = ptr(int64(0)) }), codes.InvalidArgument, "handoff_timeout_ms", "100"},
		{"create: restart grace negative", create(func(r *pb.CreateKeyspaceRequest) { r.RestartGraceMs = ptr(int64(-5)) }), codes.InvalidArgument, "restart_grace_ms", "-5"},
		{"create: initial delay 6 s", create(func(r *pb.CreateKeyspaceRequest) { r.InitialDelayMs = ptr(int64(6000)) }), codes.InvalidArgument, "initial_delay_ms", "0 to 5000"},
		{"create: takeover 7", create(func(r *pb.CreateKeyspaceRequest) { r.Takeover = 7 }), codes.InvalidArgument, "takeover", "7"},
		{"create: name taken", create(func(r *pb.CreateKeyspaceRequest) { r.Name = "orders" }), codes.AlreadyExists, "name", "orders"},
		{"update: P 128 (O-80)", update(func(r *pb.UpdateKeyspaceRequest) { r.Partitions = ptr(uint32(128)) }), codes.InvalidArgument, "partitions", "64 for ever"},
		{"update: P 32 (O-80)", update(func(r *pb.UpdateKeyspaceRequest) { r.Partitions = ptr(uint32(32)) }), codes.InvalidArgument, "partitions", "64 for ever"},
		{"update: P 0 (O-80)", update(func(r *pb.UpdateKeyspaceRequest) { r.Partitions = ptr(uint32(0)) }), codes.InvalidArgument, "partitions", "64 for ever"},
		{"update: TTL 1 ms", update(func(r *pb.UpdateKeyspaceRequest) { r.TtlMs = ptr(int64(1)) }), codes.InvalidArgument, "ttl_ms", "1800"},
		{"update: unknown", update(func(r *pb.UpdateKeyspaceRequest) { r.Name = "nothing" }), codes.NotFound, "name", "nothing"},
		{"get: unknown", func() error {
			_, err := keyspaces.GetKeyspace(ctx, &pb.GetKeyspaceRequest{Name: "nothing"})
			return err
		}, codes.NotFound, "name", "nothing"},
		{"get stale: unknown", func() error {
			_, err := keyspaces.GetKeyspace(ctx, &pb.GetKeyspaceRequest{Name: "nothing", Stale: true})
			return err
		}, codes.NotFound, "name", "nothing"},
		{"delete: unknown", func() error {
			_, err := keyspaces.DeleteKeyspace(ctx, &pb.DeleteKeyspaceRequest{Name: "nothing"})
			return err
		}, codes.NotFound, "name", "nothing"},
		{"partitions ls: unknown keyspace", func() error {
			_, err := partitions.ListPartitions(ctx, &pb.ListPartitionsRequest{Keyspace: "nothing"})
			return err
		}, codes.NotFound, "keyspace", "nothing"},
		{"partitions ls: first out of range", func() error {
			_, err := partitions.ListPartitions(ctx, &pb.ListPartitionsRequest{Keyspace: "orders", First: 64})
			return err
		}, codes.NotFound, "first", "0 to 63"},
		{"partitions ls: limit", func() error {
			_, err := partitions.ListPartitions(ctx, &pb.ListPartitionsRequest{Keyspace: "orders", Limit: 1 << 30})
			return err
		}, codes.InvalidArgument, "limit", "100000"},
		{"partitions show: out of range", func() error {
			_, err := partitions.GetPartition(ctx, &pb.GetPartitionRequest{Keyspace: "orders", Partition: 64})
			return err
		}, codes.NotFound, "partition", "0 to 63"},
		{"partitions move: out of range", func() error {
			_, err := partitions.MovePartition(ctx, &pb.MovePartitionRequest{Keyspace: "orders", Partition: 64, To: "w1"})
			return err
		}, codes.NotFound, "partition", "0 to 63"},
		{"partitions move: unknown worker", func() error {
			_, err := partitions.MovePartition(ctx, &pb.MovePartitionRequest{Keyspace: "orders", Partition: 3, To: "nobody"})
			return err
		}, codes.NotFound, "to", "nobody"},
		{"partitions retry: unknown keyspace", func() error {
			_, err := partitions.RetryPartition(ctx, &pb.RetryPartitionRequest{Keyspace: "nothing"})
			return err
		}, codes.NotFound, "keyspace", "nothing"},
		{"locate: unknown keyspace", func() error {
			_, err := partitions.Locate(ctx, &pb.LocateRequest{Keyspace: "nothing"})
			return err
		}, codes.NotFound, "keyspace", "nothing"},
		{"drain: unknown worker", func() error { _, err := workers.DrainWorker(ctx, &pb.DrainWorkerRequest{Id: "nobody"}); return err }, codes.NotFound, "id", "nobody"},
		{"undrain: unknown worker", func() error {
			_, err := workers.UndrainWorker(ctx, &pb.UndrainWorkerRequest{Id: "nobody"})
			return err
		}, codes.NotFound, "id", "nobody"},
		{"evict: unknown worker", func() error { _, err := workers.EvictWorker(ctx, &pb.EvictWorkerRequest{Id: "nobody"}); return err }, codes.NotFound, "id", "nobody"},
		{"events: unknown keyspace", func() error {
			_, err := events.ListEvents(ctx, &pb.ListEventsRequest{Keyspace: "nothing"})
			return err
		}, codes.NotFound, "keyspace", "nothing"},
		{"events: since negative", func() error { _, err := events.ListEvents(ctx, &pb.ListEventsRequest{SinceMs: -1}); return err }, codes.InvalidArgument, "since_ms", "-1"},
		{"watch: unknown keyspace", watch(&pb.WatchEventsRequest{Keyspace: "nothing"}), codes.NotFound, "keyspace", "nothing"},
		{"watch: another cluster", watch(&pb.WatchEventsRequest{ClusterId: "other"}), codes.FailedPrecondition, "cluster_id", "other"},
		{"keep-alive: session 0", func() error { _, err := sessions.KeepAlive(ctx, &pb.KeepAliveRequest{}); return err }, codes.InvalidArgument, "session_id", "63 bits"},
		{"credential: role of a server", credential(func(r *pb.CreateCredentialRequest) { r.Role = pb.Role_ROLE_SERVER }), codes.InvalidArgument, "role", "ROLE_OPERATOR"},
		{"credential: no role", credential(func(r *pb.CreateCredentialRequest) { r.Role = 0 }), codes.InvalidArgument, "role", "ROLE_UNSPECIFIED"},
		{"credential: role 77", credential(func(r *pb.CreateCredentialRequest) { r.Role = 77 }), codes.InvalidArgument, "role", "77"},
		{"credential: pattern with a star inside", credential(func(r *pb.CreateCredentialRequest) { r.Keyspaces = []string{"a*b"} }), codes.InvalidArgument, "keyspaces", "a star"},
		{"credential: 33 patterns", credential(func(r *pb.CreateCredentialRequest) { r.Keyspaces = strings.Split(strings.Repeat("a ", 33), " ")[:33] }), codes.InvalidArgument, "keyspaces", "at most 32"},
		{"credential: long key prefix", credential(func(r *pb.CreateCredentialRequest) { r.KeyPrefixes = []string{strings.Repeat("p", 1025)} }), codes.InvalidArgument, "key_prefixes", "at most 1024"},
		{"credential: TTL negative", credential(func(r *pb.CreateCredentialRequest) { r.TtlMs = -1 }), codes.InvalidArgument, "ttl_ms", "-1"},
		{"credential: TTL below a second", credential(func(r *pb.CreateCredentialRequest) { r.TtlMs = 999 }), codes.InvalidArgument, "ttl_ms", "1000"},
		{"credential: TTL that overflows", credential(func(r *pb.CreateCredentialRequest) { r.TtlMs = 1<<63 - 1 }), codes.InvalidArgument, "ttl_ms", "9223372036854775807"},
		{"credential revoke: unknown", revoke("nobody"), codes.NotFound, "credential", "nobody"},
		{"credential revoke: a name that none has", revoke("a/b"), codes.InvalidArgument, "credential", "128"},
		{"attach: nothing asked", attach(&pb.AttachRequest{}), codes.InvalidArgument, "request", "open or resume"},
		{"attach: keep-alive first", attach(&pb.AttachRequest{Request: &pb.AttachRequest_KeepAlive{KeepAlive: &pb.KeepAliveRequest{}}}), codes.InvalidArgument, "request", "open or resume"},
		{"open: session 0", open(func(r *pb.OpenSession) { r.SessionId = 0 }), codes.InvalidArgument, "session_id", "63 bits"},
		{"open: session 2^63", open(func(r *pb.OpenSession) { r.SessionId = 1 << 63 }), codes.InvalidArgument, "session_id", "63 bits"},
		{"open: no keyspace", open(func(r *pb.OpenSession) { r.Keyspaces = nil }), codes.InvalidArgument, "keyspaces", "1 to 1024"},
		{"open: unknown keyspace", open(func(r *pb.OpenSession) { r.Keyspaces = []string{"nothing"} }), codes.NotFound, "keyspaces", "nothing"},
		{"open: another cluster", open(func(r *pb.OpenSession) { r.ClusterId = "other" }), codes.FailedPrecondition, "cluster_id", "other"},
		{"open: long endpoint", open(func(r *pb.OpenSession) { r.Endpoint = strings.Repeat("e", 257) }), codes.InvalidArgument, "endpoint", "256"},
		{"open: control character in zone", open(func(r *pb.OpenSession) { r.Zone = "a\x1b[31m" }), codes.InvalidArgument, "zone", "control"},
		{"open: label without key", open(func(r *pb.OpenSession) { r.Labels = map[string]string{"": "x"} }), codes.InvalidArgument, "labels", "key"},
		{"resume: another cluster", attach(&pb.AttachRequest{Request: &pb.AttachRequest_Resume{Resume: &pb.ResumeSession{SessionId: 11, WorkerId: "w1", ClusterId: "other"}}}), codes.FailedPrecondition, "cluster_id", "other"},
		{"resume: somebody else's session", attach(resumeRequest(11, "w2")), codes.InvalidArgument, "worker_id", "w1"},
		{"too large", create(func(r *pb.CreateKeyspaceRequest) { r.Name = strings.Repeat("n", 2<<20) }), codes.ResourceExhausted, "request", "1572864 bytes"},
		{"too large on a stream", open(func(r *pb.OpenSession) { r.Version = strings.Repeat("v", 2<<20) }), codes.ResourceExhausted, "request", "1572864 bytes"},
	}
	for _, name := range badNames {
		if name == "\x00" {
			continue // the cases below have it
		}
		cases = append(cases, struct {
			name    string
			call    func() error
			code    codes.Code
			field   string
			message string
		}{"credential: name " + name, credential(func(r *pb.CreateCredentialRequest) { r.Name = name }), codes.InvalidArgument, "name", "128"})
		cases = append(cases, struct {
			name    string
			call    func() error
			code    codes.Code
			field   string
			message string
		}{"create: name " + name, create(func(r *pb.CreateKeyspaceRequest) { r.Name = name }), codes.InvalidArgument, "name", "128"})
		cases = append(cases, struct {
			name    string
			call    func() error
			code    codes.Code
			field   string
			message string
		}{"open: worker id " + name, open(func(r *pb.OpenSession) { r.WorkerId = name }), codes.InvalidArgument, "worker_id", "128"})
	}
	before, err := clusters.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		err := tc.call()
		d := pb.DetailOf(err)
		if status.Code(err) != tc.code || d.GetField() != tc.field || !strings.Contains(err.Error(), tc.message) || d.GetReason() == "" {
			t.Errorf("%.60q: %.300v; field %q, reason %q; want %v, %q and %q", tc.name, err, d.GetField(), d.GetReason(), tc.code, tc.field, tc.message)
		}
	}
	after, err := clusters.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if before.GetRevision() != after.GetRevision() || before.GetLastToken() != after.GetLastToken() {
		t.Errorf("something changed: revision %d, then %d", before.GetRevision(), after.GetRevision())
	}
	w.keepAlive(1, 0)
	w.until(func(m *pb.AttachResponse) bool { return m.GetKeepAlive() != nil })
}

// What gRPC itself cuts off is far above the limit, and says both numbers.
func TestRequestFarAboveTheLimit(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	_, err := pb.NewPartitionServiceClient(conn).Locate(t.Context(), &pb.LocateRequest{Keyspace: "x", Key: bytes.Repeat([]byte{1}, 8<<20)})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("%v", err)
	}
}

func TestBadMessagesOnAStreamEndIt(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 1)
	for i, m := range []*pb.AttachRequest{
		{},
		openRequest(11, "w1", "orders"),
		{Request: &pb.AttachRequest_KeepAlive{KeepAlive: &pb.KeepAliveRequest{SessionId: 5}}},
		{Request: &pb.AttachRequest_Release{Release: &pb.ReleaseLeases{}}},
		{Request: &pb.AttachRequest_Release{Release: &pb.ReleaseLeases{Cause: 99}}},
	} {
		w := openWorker(t, conn, uint64(100+i), "w1", "orders")
		w.send(m)
		if err := w.end(); status.Code(err) != codes.InvalidArgument || pb.DetailOf(err).GetField() == "" {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

func TestPanicEndsOneCallOnly(t *testing.T) {
	c := startCluster(t, 1)
	a := c.leader(t).api
	_, err := a.interceptUnary(context.Background(), &pb.GetStatusRequest{}, &grpc.UnaryServerInfo{FullMethod: pb.ClusterService_GetStatus_FullMethodName},
		func(context.Context, any) (any, error) { panic("boom") })
	if status.Code(err) != codes.Internal || pb.ReasonOf(err) != pb.ReasonInternal {
		t.Errorf("%v", err)
	}
}

func TestEveryCallHasADeadline(t *testing.T) {
	c := startCluster(t, 1)
	a := c.leader(t).api
	_, err := a.interceptUnary(context.Background(), &pb.GetStatusRequest{}, &grpc.UnaryServerInfo{FullMethod: pb.ClusterService_GetStatus_FullMethodName},
		func(ctx context.Context, _ any) (any, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("no deadline")
			}
			return &pb.Status{}, nil
		})
	if err != nil {
		t.Error(err)
	}
}
