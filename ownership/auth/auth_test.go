package auth

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

const id1, id2, id3 = "aaaaaaaaaaa1", "aaaaaaaaaaa2", "aaaaaaaaaaa3"

func TestWhoCalls(t *testing.T) {
	w := newWorld(t)
	good := w.credential(id1, "batch", access.Worker, time.Time{})
	old := w.credential(id2, "old", access.Worker, time.Now().Add(-time.Second))
	gone := w.credential(id3, "gone", access.Worker, time.Time{})
	w.revoke(id3)
	wrong := access.Token(id1, make([]byte, access.SecretLen))
	with := func(kv ...string) context.Context {
		return metadata.AppendToOutgoingContext(context.Background(), kv...)
	}
	anonymous, worker := w.anonymous(), w.certificate(access.Worker, "w1")
	for _, c := range []struct {
		name  string
		tls   *tls.Config
		ctx   context.Context
		owner string // "": refused
	}{
		{"a certificate", worker, with(), "worker/w1"},
		{"a credential", anonymous, bearer(good), "credential/" + id1},
		{"as clients of etcd do", anonymous, with("token", good), "credential/" + id1},
		{"bare, as the gateway of etcd takes it", anonymous, with("authorization", good), "credential/" + id1},
		{"both: the credential counts", worker, bearer(good), "credential/" + id1},
		{"the same credential twice", anonymous, with("authorization", "Bearer "+good, "token", good), "credential/" + id1},
		{"nothing", anonymous, with(), ""},
		{"a wrong secret", anonymous, bearer(wrong), ""},
		{"a certificate and a wrong secret", worker, bearer(wrong), ""},
		{"no token", anonymous, bearer("lhc_"), ""},
		{"another scheme", anonymous, with("authorization", "Digest "+good), ""},
		{"expired", anonymous, bearer(old), ""},
		{"revoked", anonymous, bearer(gone), ""},
		{"two credentials", anonymous, with("authorization", "Bearer "+good, "token", wrong), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, err := w.dial(c.tls).UnaryCall(c.ctx, payload(""))
			if c.owner != "" {
				if err != nil || resp.GetUsername() != c.owner {
					t.Fatalf("is %q, %v; want %s", resp.GetUsername(), err, c.owner)
				}
				return
			}
			if status.Code(err) != codes.Unauthenticated || pb.ReasonOf(err) != pb.ReasonUnauthenticated {
				t.Fatalf("is %q, %v", resp.GetUsername(), err)
			}
		})
	}
}

// Only who knows the secret learns that it is too late for it.
func TestExpiredIsSaidToItsHolderOnly(t *testing.T) {
	w := newWorld(t)
	old := w.credential(id2, "old", access.Worker, time.Now().Add(-time.Second))
	_, err := w.dial(w.anonymous()).UnaryCall(bearer(old), payload(""))
	if err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("the holder hears %v", err)
	}
	_, err = w.dial(w.anonymous()).UnaryCall(bearer(access.Token(id2, make([]byte, 32))), payload(""))
	if err == nil || strings.Contains(err.Error(), "expired") {
		t.Errorf("somebody else hears %v", err)
	}
}

func TestUnknownMethodIsRefused(t *testing.T) {
	w := newWorld(t)
	operator := w.certificate(access.Operator, "o1")
	if _, err := w.dial(operator).EmptyCall(context.Background(), &grpc_testing.Empty{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a method without a rule: %v", err)
	}
	stream, err := w.dial(operator).HalfDuplexCall(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stream without a rule: %v", err)
	}
	// Nor without TLS.
	open := Open(testRules{})
	if err := open.authorize(context.Background(), access.Anybody(), emptyCall, &grpc_testing.Empty{}); pb.ReasonOf(err) != pb.ReasonDenied {
		t.Errorf("a method without a rule, without TLS: %v", err)
	}
}

func TestHealthAsksNobody(t *testing.T) {
	w := newWorld(t)
	h := grpc_health_v1.NewHealthClient(w.conn(w.anonymous()))
	if _, err := h.Check(bearer("nonsense"), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	if _, err := h.List(context.Background(), &grpc_health_v1.HealthListRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("list of health: %v", err)
	}
	h = grpc_health_v1.NewHealthClient(w.conn(w.certificate(access.Reader, "r1")))
	if _, err := h.List(context.Background(), &grpc_health_v1.HealthListRequest{}); err != nil {
		t.Errorf("list of health, for a reader: %v", err)
	}
}

// Nothing is read of what nobody says: the answer comes before the request.
func TestNobodyIsRefusedBeforeTheirMessage(t *testing.T) {
	w := newWorld(t)
	token := w.credential(id1, "batch", access.Worker, time.Time{})
	conn := w.conn(w.anonymous())
	for _, ctx := range []context.Context{context.Background(), bearer("lhc_nonsense")} {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, unaryCall)
		if err == nil {
			err = stream.RecvMsg(&grpc_testing.SimpleResponse{})
		}
		cancel()
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("a call without a message ended with %v", err)
		}
	}
	if proven := w.whoHasProven(); len(proven) != 0 {
		t.Errorf("nobody has proven anything, and it was told of %v", proven)
	}
	if _, err := grpc_testing.NewTestServiceClient(conn).UnaryCall(bearer(token), payload("p")); err != nil {
		t.Fatal(err)
	}
	if proven := w.whoHasProven(); len(proven) == 0 || !strings.HasPrefix(proven[0], "127.0.0.1:") {
		t.Errorf("a credential was proven by %v", proven)
	}
}

func TestForwardedIsBelievedOfServersOnly(t *testing.T) {
	w := newWorld(t)
	w.credential(id1, "batch", access.Worker, time.Time{})
	c, _ := w.lookup(id1)
	gone := c
	gone.ID = id2
	boss := access.Identity{Source: access.Certificate, Name: "boss", Role: access.Operator, Scope: access.Everywhere()}
	forwarded := func(id access.Identity) context.Context {
		return metadata.AppendToOutgoingContext(context.Background(), ForwardedKey, "1", FromKey, "192.0.2.7:1", IdentityKey, id.Encode())
	}
	server, worker := w.dial(w.certificate(access.Server, "s2")), w.dial(w.certificate(access.Worker, "w1"))
	for _, c := range []struct {
		name   string
		client grpc_testing.TestServiceClient
		ctx    context.Context
		want   string
	}{
		{"a server", server, forwarded(boss), "operator/boss from 192.0.2.7:1"},
		{"a server, of a credential", server, forwarded(c.Identity()), "credential/" + id1 + " from 192.0.2.7:1"},
		{"a server that speaks for itself", server, context.Background(), "server/s2"},
		{"a worker", worker, forwarded(boss), "worker/w1"},
	} {
		if resp, err := c.client.UnaryCall(c.ctx, payload("")); err != nil || resp.GetUsername() != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, resp.GetUsername(), err, c.want)
		}
	}
	if _, err := w.dial(w.anonymous()).UnaryCall(forwarded(boss), payload("")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("nobody: %v", err)
	}
	// The servers may not agree yet: the caller tries again.
	if _, err := server.UnaryCall(forwarded(gone.Identity()), payload("")); status.Code(err) != codes.Unavailable {
		t.Errorf("a credential that only the other server knows: %v", err)
	}
	if _, err := server.UnaryCall(forwarded(access.Anybody()), payload("")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("anybody: %v", err)
	}
}

func TestForwardSaysWhoCalls(t *testing.T) {
	id := access.Identity{Source: access.Certificate, Name: "w1", Role: access.Worker, Scope: access.Scope{Prefixes: []string{"ä\xff"}}}
	ctx := peer.NewContext(access.NewContext(context.Background(), id), &peer.Peer{Addr: address("192.0.2.7:1")})
	md := Forward(ctx)
	got, err := access.Decode(md.Get(IdentityKey)[0])
	if err != nil || got.Owner() != id.Owner() || !got.Scope.Key([]byte("ä\xffk")) || md.Get(FromKey)[0] != "192.0.2.7:1" || len(md.Get(ForwardedKey)) != 1 {
		t.Fatal(md, got, err)
	}
	if md := Forward(access.NewContext(context.Background(), access.Anybody())); len(md.Get(IdentityKey)) > 0 {
		t.Fatal("a server without TLS says who calls")
	}
}

func TestEachMessageIsLookedAt(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		w := newWorld(t)
		w.svc.ignores = ignores
		stream, err := w.dial(w.certificate(access.Worker, "w1")).FullDuplexCall(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range []string{"a", "b", "x"} {
			if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{Payload: &grpc_testing.Payload{Body: []byte(text)}}); err != nil {
				t.Fatal(err)
			}
			_, err := stream.Recv()
			if i < 2 && err != nil || i == 2 && pb.ReasonOf(err) != pb.ReasonDenied {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		if got := w.audit.take(); len(got) != 1 || got[0].Outcome != pb.ReasonDenied || got[0].Target != "payload=x" {
			t.Errorf("in the audit log: %+v", got)
		}
	}
}

func TestHTTP(t *testing.T) {
	w := newWorld(t)
	reader := w.credential(id1, "eve", access.Reader, time.Time{})
	worker := w.credential(id2, "batch", access.Worker, time.Time{})
	w.mu.Lock()
	bounded := w.credentials[id1]
	bounded.ID, bounded.Name, bounded.Scope = id3, "bounded", access.Scope{Keyspaces: []string{"orders"}}
	w.credentials[id3] = bounded
	w.mu.Unlock()
	old := w.credential("aaaaaaaaaaa4", "old", access.Reader, time.Now().Add(-time.Second))
	boundedToken := strings.Replace(reader, id1, id3, 1)
	secret := strings.TrimPrefix(reader, "lhc_"+id1+"_")
	authorization := func(v string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", v) }
	}
	basic := func(name, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(name, password) }
	}
	nothing := func(*http.Request) {}
	for _, c := range []struct {
		name, path string
		tls        *tls.Config
		with       func(*http.Request)
		code       int
		body       string
	}{
		{"a reader's token", "/metrics", w.anonymous(), authorization("Bearer " + reader), 200, "credential/" + id1},
		{"the same, bare", "/metrics", w.anonymous(), authorization(reader), 200, "credential/" + id1},
		{"a browser: name and token", "/console/", w.anonymous(), basic("eve", reader), 200, "credential/" + id1},
		{"a browser: id and secret", "/console/", w.anonymous(), basic(id1, secret), 200, "credential/" + id1},
		{"a browser: name and another's token", "/console/", w.anonymous(), basic("eve", worker), 401, "unauthenticated"},
		{"a browser: a wrong name", "/console/", w.anonymous(), basic("adam", reader), 401, "unauthenticated"},
		{"an operator's certificate", "/metrics", w.certificate(access.Operator, "o1"), nothing, 200, "operator/o1"},
		{"nobody", "/metrics", w.anonymous(), nothing, 401, "unauthenticated"},
		{"an expired token", "/metrics", w.anonymous(), authorization("Bearer " + old), 401, "expired"},
		{"nobody, who asks how it is", "/livez", w.anonymous(), nothing, 200, "nobody"},
		{"nobody, who wants a token", "/v3/auth/authenticate", w.anonymous(), nothing, 200, "nobody"},
		{"a worker, who looks at metrics", "/metrics", w.anonymous(), authorization("Bearer " + worker), 403, "reader or operator"},
		{"a worker, who makes a call", unaryCall, w.anonymous(), authorization("Bearer " + worker), 200, "credential/" + id2},
		{"a worker, at etcd's gateway", "/v3/kv/range", w.anonymous(), authorization(worker), 200, "credential/" + id2},
		{"a reader of one keyspace", "/console/", w.anonymous(), authorization("Bearer " + boundedToken), 403, "all keyspaces"},
		{"a reader of one keyspace, who makes a call", unaryCall, w.anonymous(), authorization("Bearer " + boundedToken), 200, "credential/" + id3},
	} {
		t.Run(c.name, func(t *testing.T) {
			transport := &http.Transport{TLSClientConfig: c.tls}
			defer transport.CloseIdleConnections()
			r, err := http.NewRequest(http.MethodGet, w.url+c.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			c.with(r)
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.code || !strings.Contains(string(body), c.body) {
				t.Fatalf("%d %s; want %d with %q", resp.StatusCode, body, c.code, c.body)
			}
			if asks := strings.Join(resp.Header.Values("WWW-Authenticate"), " "); (c.code == 401) != strings.Contains(asks, "Basic") {
				t.Errorf("a browser is asked for a name and a password: %q", asks)
			}
		})
	}
}

func TestOpenBelievesEverybody(t *testing.T) {
	open := Open(testRules{})
	md := metadata.Pairs(authorizationKey, "Bearer nonsense", ForwardedKey, "1", FromKey, "192.0.2.7:1", IdentityKey, "nonsense")
	ctx, c, err := open.identify(metadata.NewIncomingContext(context.Background(), md), true)
	got, _ := metadata.FromIncomingContext(ctx)
	if err != nil || c.id.Source != access.Open || access.FromContext(ctx).Role != access.Operator || c.from != "192.0.2.7:1" || len(got.Get(ForwardedKey)) != 1 || len(got.Get(authorizationKey)) != 0 {
		t.Fatal(c, got, err)
	}
}

func TestLogin(t *testing.T) {
	w := newWorld(t)
	token := w.credential(id1, "batch", access.Worker, time.Time{})
	other := w.credential(id2, "other", access.Worker, time.Time{})
	secret := strings.TrimPrefix(token, "lhc_"+id1+"_")
	for _, c := range []struct {
		name, password string
		good           bool
	}{
		{"batch", token, true}, {"batch", secret, true}, {id1, token, true}, {id1, secret, true},
		{"batch", other, false}, {"batch", "", false}, {"", token, false}, {"nobody", token, false}, {id2, token, false}, {"batch", secret[1:], false},
	} {
		got, err := w.auth.Login(context.Background(), c.name, c.password, "192.0.2.7:1")
		if c.good && (err != nil || got != token) || !c.good && (got != "" || pb.ReasonOf(err) != pb.ReasonUnauthenticated) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}
