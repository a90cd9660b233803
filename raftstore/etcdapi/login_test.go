package etcdapi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// door gives tokens to who knows the password, and forgets them.
type door struct {
	mu     sync.Mutex
	drawn  int
	tokens map[string]string // whose it is
	failed int
}

func (d *door) login(_ context.Context, name, password string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if callers[name].Role == 0 || password != "password of "+name {
		if d.failed++; d.failed > 5 {
			return "", status.Error(codes.ResourceExhausted, "too many failed logins")
		}
		return "", status.Error(codes.Unauthenticated, "the credential is not valid")
	}
	d.drawn++
	token := fmt.Sprint("token ", d.drawn)
	d.tokens[token] = name
	return token, nil
}

// forget makes every token worthless.
func (d *door) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.tokens)
}

func (d *door) logins() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drawn
}

// whose is who presents a token, as etcd's clients do. ok is false for one that is
// worth nothing.
func (d *door) whose(ctx context.Context) (id access.Identity, ok bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	token := md.Get(rpctypes.TokenFieldNameGRPC)
	if len(token) == 0 {
		return access.FromContext(identify(ctx)), true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	name, ok := d.tokens[token[0]]
	return callers[name], ok
}

// loginCluster is one whose servers ask for tokens.
func loginCluster(t *testing.T, n int) (*testCluster, *door) {
	d := &door{tokens: map[string]string{}}
	o := secured()
	api := o.api
	o.api = func(cfg *Config) {
		api(cfg)
		cfg.Login = d.login
	}
	o.identify = func(ctx context.Context) context.Context {
		id, _ := d.whose(ctx)
		return access.NewContext(ctx, id)
	}
	refused := func(s *testServer, ctx context.Context, method string) error {
		if _, ok := d.whose(ctx); !ok && method != pb.Auth_Authenticate_FullMethodName {
			return s.api.Unauthenticated(method, false, status.Error(codes.Unauthenticated, "the credential is not valid"))
		}
		return nil
	}
	o.before = func(s *testServer) []grpc.ServerOption {
		return []grpc.ServerOption{
			grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				if err := refused(s, ctx, info.FullMethod); err != nil {
					return nil, err
				}
				return next(ctx, req)
			}),
			grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
				if err := refused(s, stream.Context(), info.FullMethod); err != nil {
					return err
				}
				return next(srv, stream)
			}),
		}
	}
	c := startCluster(t, n, o)
	for _, id := range callers {
		if id.Source == access.Bearer {
			c.do(t, credentialOf(id))
		}
	}
	return c, d
}

// credentialOf is what makes an identity's credential.
func credentialOf(id access.Identity) *state.PutCredential {
	return &state.PutCredential{Credential: access.Credential{
		ID: id.Credential, Name: id.Name, Role: id.Role, Scope: id.Scope, Hash: access.HashSecret([]byte(id.Name)), Created: time.UnixMilli(1_700_000_000_000),
	}}
}

// A follower may not have heard yet that a credential was revoked, and goes on
// believing it: the leader does not.
func TestRevokedIsNotHandedOn(t *testing.T) {
	c, _ := loginCluster(t, 3)
	s := c.follower(t)
	a, b := as(testContext(t), "a"), as(testContext(t), "b")
	mine := grantAs(t, s, "a", 0)
	putAs(t, s, "a", "/both/k", mine)
	c.do(t, &state.RevokeCredential{ID: callers["a"].Credential})
	for what, do := range map[string]func() error{
		"put": func() error { _, err := s.kv().Put(a, &pb.PutRequest{Key: []byte("/a/k")}); return err },
		"delete": func() error {
			_, err := s.kv().DeleteRange(a, &pb.DeleteRangeRequest{Key: []byte("/both/k")})
			return err
		},
		"txn":   func() error { _, err := s.kv().Txn(a, withLease("/both/k", 0, 1)); return err },
		"grant": func() error { _, err := s.lease().LeaseGrant(a, &pb.LeaseGrantRequest{TTL: 60}); return err },
		"renew": func() error { _, err := renewAs(t, s, "a", mine); return err },
		"lock": func() error {
			_, err := v3lockpb.NewLockClient(s.conn).Lock(a, &v3lockpb.LockRequest{Name: []byte("/both/l")})
			return err
		},
	} {
		wantStatus(t, what, do(), rpctypes.ErrGRPCInvalidAuthToken)
	}
	if _, err := s.kv().Put(b, &pb.PutRequest{Key: []byte("/both/k")}); err != nil {
		t.Errorf("somebody else: %v", err)
	}
}

func loginClient(t *testing.T, s *testServer, user, password string) (*clientv3.Client, error) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(), Username: user, Password: password})
	if err == nil {
		t.Cleanup(func() { _ = client.Close() })
	}
	return client, err
}

// etcd's client with a user and a password: it logs in when it is made, and again
// when its token is not worth anything any more.
func TestEtcdsClientLogsIn(t *testing.T) {
	c, d := loginCluster(t, 3)
	ctx := testContext(t)
	client, err := loginClient(t, c.follower(t), "a", "password of a")
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string) error { _, err := client.Put(ctx, key, "v"); return err }
	if err := put("/a/k"); err != nil {
		t.Fatal(err)
	}
	wantDenied(t, "b's key", put("/b/k"))
	before := d.logins()
	d.forget()
	if err := put("/a/k"); err != nil || d.logins() != before+1 {
		t.Errorf("with a token that was forgotten: %v, %d logins, want one more than %d", err, d.logins(), before)
	}
	d.forget()
	lease, err := client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.KeepAliveOnce(ctx, lease.ID); err != nil {
		t.Error(err)
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	events := client.Watch(watched, "/a/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if m := <-events; !m.Created {
		t.Fatalf("%+v", m)
	}
	if err := put("/a/watched"); err != nil {
		t.Fatal(err)
	}
	if m := <-events; len(m.Events) != 1 {
		t.Errorf("%+v", m)
	}
}

func TestLoginsAreRefusedInEtcdsWords(t *testing.T) {
	c, d := loginCluster(t, 1)
	s := c.leader(t)
	for _, user := range []string{"a", "b", "nobody", "unheard of"} {
		if _, err := loginClient(t, s, user, "wrong"); rpctypes.Error(err) != rpctypes.ErrAuthFailed {
			t.Errorf("%s: %v", user, err)
		}
	}
	authenticate := func(name string) error {
		_, err := pb.NewAuthClient(s.conn).Authenticate(testContext(t), &pb.AuthenticateRequest{Name: name, Password: "wrong"})
		return err
	}
	wantStatus(t, "no name", authenticate(""), rpctypes.ErrGRPCUserEmpty)
	for d.failed <= 5 {
		_ = authenticate("a") // it counts
	}
	wantStatus(t, "too many", authenticate("a"), rpctypes.ErrGRPCRequestTooManyRequests)
	for method, want := range map[string]error{
		pb.KV_Put_FullMethodName:            rpctypes.ErrGRPCInvalidAuthToken,
		pb.Auth_Authenticate_FullMethodName: rpctypes.ErrGRPCAuthFailed,
	} {
		said := withInfo(status.Error(codes.Unauthenticated, "long"), "WHY", nil)
		for range 2 { // once by the handler, once by the interceptor
			said = s.api.Unauthenticated(method, false, said)
			wantStatus(t, method, said, want)
			if info := infoOf(t, said); info.Reason != "WHY" {
				t.Errorf("%s: details %v", method, info)
			}
		}
	}
}

// A client without a user would log in again and again after "invalid auth token".
func TestNoLoginAtAll(t *testing.T) {
	c, _ := loginCluster(t, 1)
	said := c.leader(t).api.Unauthenticated(pb.KV_Put_FullMethodName, true, withInfo(status.Error(codes.Unauthenticated, "long"), "WHY", nil))
	wantStatus(t, "put", said, rpctypes.ErrGRPCUserEmpty)
	if info := infoOf(t, said); info.Reason != "WHY" {
		t.Errorf("details %v", info)
	}
}

// What etcdctl asks about users and roles.
func TestUsersAreCredentials(t *testing.T) {
	c, _ := loginCluster(t, 1)
	s := c.leader(t)
	c.do(t, &state.PutCredential{Credential: access.Credential{
		ID: "abc123abc123", Name: "pay", Hash: access.HashSecret([]byte("s")), Role: access.Worker, Scope: access.Everywhere(), Created: time.UnixMilli(1_700_000_000_000),
	}})
	ctx, client := as(testContext(t), "boss"), pb.NewAuthClient(s.conn)
	if resp, err := client.AuthStatus(ctx, &pb.AuthStatusRequest{}); err != nil || !resp.Enabled {
		t.Errorf("%v, %v", resp, err)
	}
	if resp, err := client.UserList(ctx, &pb.AuthUserListRequest{}); err != nil || !slices.Contains(resp.Users, "pay") || !slices.Contains(resp.Users, "reader-a") {
		t.Errorf("%v, %v", resp, err)
	}
	if resp, err := client.UserGet(ctx, &pb.AuthUserGetRequest{Name: "pay"}); err != nil || !slices.Equal(resp.Roles, []string{"worker"}) {
		t.Errorf("%v, %v", resp, err)
	}
	_, err := client.UserGet(ctx, &pb.AuthUserGetRequest{Name: "pays"})
	wantStatus(t, "user get", err, rpctypes.ErrGRPCUserNotFound)
	if resp, err := client.RoleList(ctx, &pb.AuthRoleListRequest{}); err != nil || len(resp.Roles) != 3 {
		t.Errorf("%v, %v", resp, err)
	}
	_, err = client.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "x", Password: "y"})
	wantStatus(t, "user add", err, unsupported("UserAdd", insteadOfAdd))
	_, err = client.UserList(as(testContext(t), "a"), &pb.AuthUserListRequest{})
	wantDenied(t, "user list", err)
}

func TestTargetsHaveNoSecret(t *testing.T) {
	a := authorizing()
	for want, req := range map[string]proto.Message{
		`key="k"`:            &pb.PutRequest{Key: []byte("k"), Value: []byte("secret")},
		`keys="k" to="l"`:    &pb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: []byte("l")},
		`name="n"`:           &pb.AuthenticateRequest{Name: "n", Password: "secret"},
		"":                   &pb.TxnRequest{Success: []*pb.RequestOp{putUnion("k", "secret")}},
		"lease=7b":           &pb.LeaseRevokeRequest{ID: 123},
		"member=ff":          &pb.MoveLeaderRequest{TargetID: 255},
		"member=fe":          &pb.MemberRemoveRequest{ID: 254},
		"revision=9":         &pb.CompactionRequest{Revision: 9},
		`name="` + "q" + `"`: &v3lockpb.LockRequest{Name: []byte("q")},
	} {
		if got := a.Target("", req); got != want {
			t.Errorf("%T: %q, want %q", req, got, want)
		}
	}
}
