package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = "c1"

// The service of these tests: a payload that begins with the letter x is about
// what only operators may touch.
const (
	unaryCall  = grpc_testing.TestService_UnaryCall_FullMethodName
	emptyCall  = grpc_testing.TestService_EmptyCall_FullMethodName
	duplexCall = grpc_testing.TestService_FullDuplexCall_FullMethodName
)

type testRules struct{}

func (testRules) Knows(method string) bool {
	return slices.Contains([]string{unaryCall, duplexCall}, method)
}

func (testRules) Authorize(_ context.Context, id access.Identity, method string, req proto.Message) error {
	if method == unaryCall && req == nil {
		return Denied(id, "a call without a request")
	}
	if p, ok := req.(interface{ GetPayload() *grpc_testing.Payload }); ok && bytes.HasPrefix(p.GetPayload().GetBody(), []byte("x")) && id.Role != access.Operator {
		return Denied(id, "x wants the role operator")
	}
	return nil
}

func (testRules) Changes(method string) bool { return method == unaryCall }

func (testRules) Target(_ string, req proto.Message) string {
	p, _ := req.(interface{ GetPayload() *grpc_testing.Payload })
	return "payload=" + string(p.GetPayload().GetBody())
}

// service answers with who called and what came with the call.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	entered chan struct{} // told when a stream has begun to wait
	ignores bool          // a stream goes on after an error of Recv
}

func (s *service) UnaryCall(ctx context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	if string(r.GetPayload().GetBody()) == "wait" {
		s.entered <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, key := range []string{authorizationKey, tokenKey, IdentityKey} {
		if len(md.Get(key)) > 0 {
			return nil, errors.New(key + " came through")
		}
	}
	forwarded := ""
	if len(md.Get(ForwardedKey)) > 0 {
		forwarded = " from " + md.Get(FromKey)[0]
	}
	return &grpc_testing.SimpleResponse{Username: access.FromContext(ctx).Owner() + forwarded}, nil
}

func (s *service) FullDuplexCall(ss grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
	for {
		r, err := ss.Recv()
		if err != nil {
			if s.ignores {
				return nil
			}
			return err
		}
		if string(r.GetPayload().GetBody()) == "wait" {
			s.entered <- struct{}{}
			<-ss.Context().Done()
			return errors.New("the context has ended")
		}
		if err := ss.Send(&grpc_testing.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

// book is an audit log in memory.
type book struct {
	mu      sync.Mutex
	entries []Entry
}

func (b *book) Record(e Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, e)
}

func (b *book) take() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries
	b.entries = nil
	return e
}

// world is a server with TLS and the authority of its cluster.
type world struct {
	t         testing.TB
	dir       string
	authority *pki.Authority
	store     *pki.Store
	auth      *Auth
	audit     *book
	log       *bytes.Buffer
	svc       *service
	addr      string // gRPC
	url       string // HTTP

	mu          sync.Mutex
	credentials map[string]access.Credential
	proven      []string
}

// whoHasProven are the addresses of callers with a credential.
func (w *world) whoHasProven() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.proven)
}

func (w *world) prove(from string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proven = append(w.proven, from)
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), audit: &book{}, log: &bytes.Buffer{}, credentials: map[string]access.Credential{}, svc: &service{entered: make(chan struct{}, 16)}}
	a, pair, err := pki.NewAuthority(cluster, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w.authority = a
	w.write("ca.pem", pair.Cert)
	log := slog.New(slog.NewTextHandler(w.log, nil))
	if w.store, err = pki.Open(w.issue(a, access.Server, "s1", access.Everywhere(), time.Hour), cluster, log); err != nil {
		t.Fatal(err)
	}
	w.auth = New(Config{
		Certificates: w.store, Lookup: w.lookup, LookupName: w.lookupName, Rules: []Rules{testRules{}},
		Logger: log, Audit: w.audit, Proven: w.prove,
	})
	w.serve()
	return w
}

func (w *world) serve() {
	w.t.Helper()
	g := grpc.NewServer(append(w.auth.ServerOptions(), grpc.Creds(credentials.NewTLS(w.store.Config(pki.UseAPI))))...)
	grpc_testing.RegisterTestServiceServer(g, w.svc)
	grpc_health_v1.RegisterHealthServer(g, health.NewServer())
	h := &http.Server{Handler: w.auth.HTTP(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		id, err := w.auth.Identify(r.Context())
		if err != nil {
			_, _ = rw.Write([]byte("nobody"))
			return
		}
		_, _ = rw.Write([]byte(id.Owner()))
	})), TLSConfig: w.store.Config(pki.UseHTTP)}
	gl, hl := w.listen(), w.listen()
	w.addr, w.url = gl.Addr().String(), "https://"+hl.Addr().String()
	done := make(chan error, 2)
	go func() { done <- g.Serve(gl) }()
	go func() { done <- h.ServeTLS(hl, "", "") }()
	w.t.Cleanup(func() {
		g.Stop()
		_ = h.Close()
		for range 2 {
			<-done
		}
	})
}

func (w *world) listen() net.Listener {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) write(name string, data []byte) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) issue(a *pki.Authority, role access.Role, name string, scope access.Scope, life time.Duration) pki.Files {
	w.t.Helper()
	pair, _, err := a.Issue(pki.Request{Name: pki.Name{Role: role, Name: name, Scope: scope}, Life: life})
	if err != nil {
		w.t.Fatal(err)
	}
	return pki.Files{Cert: w.write(name+".pem", pair.Cert), Key: w.write(name+"-key.pem", pair.Key), CA: filepath.Join(w.dir, "ca.pem")}
}

// certificate is a client's TLS configuration with a new certificate.
func (w *world) certificate(role access.Role, name string) *tls.Config {
	w.t.Helper()
	return w.client(w.issue(w.authority, role, name, access.Everywhere(), time.Hour))
}

func (w *world) client(f pki.Files) *tls.Config {
	w.t.Helper()
	c, err := pki.Client(f)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// anonymous is a client's TLS configuration without a certificate.
func (w *world) anonymous() *tls.Config {
	return w.client(pki.Files{CA: filepath.Join(w.dir, "ca.pem")})
}

func (w *world) dial(c *tls.Config) grpc_testing.TestServiceClient {
	w.t.Helper()
	return grpc_testing.NewTestServiceClient(w.conn(c))
}

func (w *world) conn(c *tls.Config) *grpc.ClientConn {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+w.addr, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// credential makes one, and returns its token.
func (w *world) credential(id, name string, role access.Role, expires time.Time) string {
	w.t.Helper()
	secret := bytes.Repeat([]byte(id)[:4], access.SecretLen/4)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.credentials[id] = access.Credential{ID: id, Name: name, Hash: access.HashSecret(secret), Role: role, Scope: access.Everywhere(), Expires: expires}
	return access.Token(id, secret)
}

func (w *world) revoke(id string) {
	w.mu.Lock()
	delete(w.credentials, id)
	w.mu.Unlock()
	w.auth.Revoked(id)
}

func (w *world) lookup(id string) (access.Credential, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.credentials[id]
	return c, ok
}

func (w *world) lookupName(name string) (access.Credential, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.credentials {
		if c.Name == name {
			return c, true
		}
	}
	return access.Credential{}, false
}

func bearer(token string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token)
}

func payload(text string) *grpc_testing.SimpleRequest {
	return &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: []byte(text)}}
}
