package api

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpctls "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// secure gives a server of a cluster with an authority its certificate.
func (s *server) secure(t testing.TB, cfg *Config) []grpc.ServerOption {
	t.Helper()
	if s.ca == nil {
		return nil
	}
	var err error
	if s.certs, err = pki.Open(s.ca.Server(s.id), pkitest.Cluster, cfg.Logger); err != nil {
		t.Fatal(err)
	}
	cfg.Dial = []grpc.DialOption{grpc.WithTransportCredentials(grpctls.NewTLS(s.certs.Config(pki.UsePeer)))}
	return []grpc.ServerOption{grpc.Creds(grpctls.NewTLS(s.certs.Config(pki.UseAPI)))}
}

func (s *server) newGuard() *auth.Auth {
	return auth.New(auth.Config{
		Certificates: s.certs, Rules: []auth.Rules{s.api},
		Lookup: func(id string) (c access.Credential, ok bool) {
			s.store.View(func(st *state.State) { c, ok = st.Credential(id) })
			return c, ok
		},
	})
}

// startSecure starts servers that ask who calls, at the level at which sessions
// have owners.
func startSecure(t *testing.T, n int) *testCluster {
	t.Helper()
	c := startServers(t, n, pkitest.New(t), nil)
	c.raise(t)
	return c
}

// as connects to a server with a certificate.
func (s *server) as(t testing.TB, f pki.Files) *grpc.ClientConn {
	t.Helper()
	return s.withTLS(t, s.ca.Client(f))
}

func (s *server) withTLS(t testing.TB, c *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(grpctls.NewTLS(c)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func wantReason(t *testing.T, what string, err error, reason string) {
	t.Helper()
	if pb.ReasonOf(err) != reason {
		t.Errorf("%s: %v; want %s", what, err, reason)
	}
}

// O-92 for sessions: with two identities, nothing of one's is the other's.
func TestSomebodyElsesSession(t *testing.T) {
	c := startSecure(t, 2)
	// Over the follower: it must hand on who calls.
	s := c.follower(t)
	operator := s.as(t, s.ca.Operator("o1"))
	createKeyspace(t, operator, "orders", 4)
	a, b := s.as(t, s.ca.Worker("a")), s.as(t, s.ca.Worker("b"))
	boss := s.as(t, s.ca.Operator("o2"))
	owner := openWorker(t, a, 11, "a", "orders")
	owner.holds(4)
	var owned string
	c.leader(t).store.View(func(st *state.State) {
		if sess, ok := st.Session(11); ok {
			owned = sess.Owner
		}
	})
	if owned != "worker/a" {
		t.Fatalf("the session's owner is %q", owned)
	}
	stranger := openWorker(t, b, 12, "b", "orders")
	_, err := pb.NewSessionServiceClient(b).KeepAlive(t.Context(), &pb.KeepAliveRequest{SessionId: 11, Seq: 1})
	wantReason(t, "B renews A's session", err, pb.ReasonDenied)
	wantReason(t, "B resumes A's session", dialWorker(t, b, resumeRequest(11, "b")).end(), pb.ReasonDenied)
	wantReason(t, "B resumes A's session as A", dialWorker(t, b, resumeRequest(11, "a")).end(), pb.ReasonDenied)
	wantReason(t, "B opens A's worker id", dialWorker(t, b, openRequest(13, "a", "orders")).end(), pb.ReasonDenied)
	wantReason(t, "B waits with A's session", acquire(t, b, "lock", 11), pb.ReasonDenied)
	_, err = pb.NewCoordinationServiceClient(b).CreateSequential(t.Context(), &pb.CreateSequentialRequest{Prefix: "q/", SessionId: 11})
	wantReason(t, "B makes a key of A's session", err, pb.ReasonDenied)
	var refs []*pb.LeaseRef
	for p, token := range owner.held {
		refs = append(refs, &pb.LeaseRef{KeyspaceId: 1, Partition: p, Token: token})
	}
	if got := stranger.release(1, pb.ReleaseCause_RELEASE_CAUSE_YIELD, refs...); len(got.GetRefused()) != len(refs) {
		t.Errorf("B releases A's partitions: %v", got)
	}
	if len(owner.held) != 4 {
		t.Errorf("A holds %d", len(owner.held))
	}
	// Its own, and whoever runs the cluster, may.
	for what, conn := range map[string]*grpc.ClientConn{"A": a, "an operator": boss} {
		if _, err := pb.NewSessionServiceClient(conn).KeepAlive(t.Context(), &pb.KeepAliveRequest{SessionId: 11, Seq: 1}); err != nil {
			t.Errorf("%s renews A's session: %v", what, err)
		}
		if err := acquire(t, conn, "lock", 11); err != nil {
			t.Errorf("%s waits with A's session: %v", what, err)
		}
	}
}

// A worker whose new certificate allows less than the old one does not go on with a
// session of what it may not own any more.
func TestSessionOfMoreThanTheCertificateAllows(t *testing.T) {
	c := startSecure(t, 1)
	s := c.leader(t)
	operator := s.as(t, s.ca.Operator("o1"))
	createKeyspace(t, operator, "orders", 4)
	createKeyspace(t, operator, "pay", 4)
	openWorker(t, s.as(t, s.ca.Worker("a")), 11, "a", "orders").holds(4)
	bounded := func(keyspaces ...string) *grpc.ClientConn {
		return s.as(t, s.ca.Files(pki.Name{Role: access.Worker, Name: "a", Scope: access.Scope{Keyspaces: keyspaces, Prefixes: []string{""}}}))
	}
	less, enough := bounded("pay"), bounded("pay", "ord*")
	wantReason(t, "resume with less", dialWorker(t, less, resumeRequest(11, "a")).end(), pb.ReasonDenied)
	_, err := pb.NewSessionServiceClient(less).KeepAlive(t.Context(), &pb.KeepAliveRequest{SessionId: 11, Seq: 1})
	wantReason(t, "renew with less", err, pb.ReasonDenied)
	wantReason(t, "wait with less", acquire(t, less, "lock", 11), pb.ReasonDenied)
	if _, err := pb.NewSessionServiceClient(enough).KeepAlive(t.Context(), &pb.KeepAliveRequest{SessionId: 11, Seq: 2}); err != nil {
		t.Errorf("renew with enough: %v", err)
	}
	if err := acquire(t, enough, "lock", 11); err != nil {
		t.Errorf("wait with enough: %v", err)
	}
}

func acquire(t *testing.T, conn *grpc.ClientConn, name string, session uint64) error {
	t.Helper()
	_, err := pb.NewCoordinationServiceClient(conn).Acquire(t.Context(), &pb.AcquireRequest{Name: name, SessionId: session, NoWait: true})
	return err
}

// While a worker of a credential lives, nobody else takes its worker id, and nobody
// is told where it is.
func TestWorkerIDOfSomebodyElse(t *testing.T) {
	c := startSecure(t, 1)
	s := c.leader(t)
	operator := s.as(t, s.ca.Operator("o1"))
	createKeyspace(t, operator, "orders", 1)
	made := map[string]context.Context{}
	for _, name := range []string{"one", "two"} {
		cred, err := pb.NewCredentialServiceClient(operator).CreateCredential(t.Context(), &pb.CreateCredentialRequest{Name: name, Role: pb.Role_ROLE_WORKER})
		if err != nil {
			t.Fatal(err)
		}
		made[name] = metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+cred.GetToken())
	}
	conn := s.withTLS(t, s.ca.Anonymous())
	attach := func(name string, session uint64) *fakeWorker {
		return attachAs(made[name], t, conn, openRequest(session, "w", "orders"))
	}
	p := attach("one", 21)
	if p.next().GetOpened() == nil {
		t.Fatal("the session was not opened")
	}
	go func() { // it lives: it answers when it is asked
		for m := range p.in {
			if m.GetPing() != nil {
				_ = p.stream.Send(&pb.AttachRequest{Request: &pb.AttachRequest_Pong{Pong: &pb.Pong{}}})
			}
		}
	}()
	err := attach("two", 22).end()
	wantReason(t, "another credential opens the worker id", err, pb.ReasonDenied)
	if strings.Contains(err.Error(), "127.0.0.1") || pb.DetailOf(err).GetOwner() != "" {
		t.Errorf("the refusal tells where the worker is: %v", err)
	}
}

func TestCertificateOfAWorkerNamesItsIDs(t *testing.T) {
	worker := access.Identity{Source: access.Certificate, Name: "pay", Role: access.Worker}
	for id, want := range map[string]bool{"pay": true, "pay-1": true, "pay.eu": true, "pay-": true, "pays": false, "pay1": false, "pay_1": false, "pa": false, "": false, "x-pay": false} {
		if err := mayBe(worker, id); (err == nil) != want {
			t.Errorf("worker id %q: %v", id, err)
		}
	}
	for _, other := range []access.Identity{access.Anybody(), {Source: access.Bearer, Name: "pay", Role: access.Worker}, {Source: access.Certificate, Name: "pay", Role: access.Operator}} {
		if err := mayBe(other, "any"); err != nil {
			t.Errorf("%v: %v", other, err)
		}
	}
}

// What somebody with some keyspaces sees, over gRPC and over HTTP, at the leader and
// at a follower.
func TestOnlyWhatIsVisibleIsShown(t *testing.T) {
	c := startSecure(t, 2)
	leader := c.leader(t)
	operator := leader.as(t, leader.ca.Operator("o1"))
	for _, name := range []string{"orders", "pay-eu", "secret"} {
		createKeyspace(t, operator, name, 1)
	}
	openWorker(t, operator, 31, "both", "orders", "secret")
	openWorker(t, operator, 32, "hidden", "secret")
	scope := access.Scope{Keyspaces: []string{"orders", "pay-*"}}
	reader := leader.ca.Files(pki.Name{Role: access.Reader, Name: "r1", Scope: scope})
	boss := leader.ca.Files(pki.Name{Role: access.Operator, Name: "o2", Scope: scope})
	for _, s := range c.servers {
		conn, run := s.as(t, reader), s.as(t, boss)
		ctx := t.Context()
		var seen []string
		list, err := pb.NewKeyspaceServiceClient(conn).ListKeyspaces(ctx, &pb.ListKeyspacesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, ks := range list.GetItems() {
			seen = append(seen, ks.GetName())
		}
		var st *pb.Status
		eventually(t, "status with both keyspaces", func() bool {
			st, err = pb.NewClusterServiceClient(conn).GetStatus(ctx, &pb.GetStatusRequest{})
			return err == nil && len(st.GetKeyspaces()) == 2
		})
		for _, ks := range st.GetKeyspaces() {
			seen = append(seen, ks.GetName())
		}
		workers, err := pb.NewWorkerServiceClient(conn).ListWorkers(ctx, &pb.ListWorkersRequest{})
		if err != nil || len(workers.GetItems()) != 1 || workers.GetItems()[0].GetId() != "both" {
			t.Errorf("workers: %v, %v", workers, err)
		}
		seen = append(seen, workers.GetItems()[0].GetKeyspaces()...)
		if got := strings.Join(seen, " "); got != "orders pay-eu orders pay-eu orders" {
			t.Errorf("%s: keyspaces %s", s.id, got)
		}
		events, err := pb.NewEventServiceClient(conn).ListEvents(ctx, &pb.ListEventsRequest{})
		if err != nil || len(events.GetItems()) == 0 {
			t.Errorf("events: %v, %v", events, err)
		}
		for _, ev := range events.GetItems() {
			if !scope.Keyspace(ev.GetKeyspace()) {
				t.Errorf("an event is shown: %v", ev)
			}
		}
		keyspaces := pb.NewKeyspaceServiceClient(conn)
		denied := func(what string, err error) {
			t.Helper()
			wantReason(t, s.id+": "+what, err, pb.ReasonDenied)
		}
		for _, name := range []string{"secret", "nosuch"} { // the same, whether it exists or not
			_, err := keyspaces.GetKeyspace(ctx, &pb.GetKeyspaceRequest{Name: name})
			denied("get "+name, err)
			_, err = pb.NewEventServiceClient(conn).ListEvents(ctx, &pb.ListEventsRequest{Keyspace: name})
			denied("events of "+name, err)
			_, err = watchFirst(ctx, conn, &pb.WatchEventsRequest{Keyspace: name})
			denied("watch "+name, err)
			_, err = pb.NewPartitionServiceClient(conn).ListPartitions(ctx, &pb.ListPartitionsRequest{Keyspace: name, Stale: true})
			denied("partitions of "+name, err)
			_, err = pb.NewKeyspaceServiceClient(run).DeleteKeyspace(ctx, &pb.DeleteKeyspaceRequest{Name: name})
			denied("delete "+name, err)
			denied("open a session in "+name, dialWorker(t, run, openRequest(77, "w7", "orders", name)).end())
			httpDenied(t, s, reader, "KeyspaceService/GetKeyspace", `{"name":"`+name+`"}`)
			httpDenied(t, s, reader, "EventService/WatchEvents", `{"keyspace":"`+name+`"}`)
		}
		_, err = keyspaces.CreateKeyspace(ctx, &pb.CreateKeyspaceRequest{Name: "orders"})
		denied("a reader creates", err)
		_, err = pb.NewWorkerServiceClient(run).DrainWorker(ctx, &pb.DrainWorkerRequest{Id: "both"})
		denied("an operator of some keyspaces drains a worker", err)
		if _, err := pb.NewKeyspaceServiceClient(run).UpdateKeyspace(ctx, &pb.UpdateKeyspaceRequest{Name: "orders"}); err != nil {
			t.Errorf("an operator of some keyspaces updates one of them: %v", err)
		}
		if _, err := pb.NewClusterServiceClient(s.withTLS(t, s.ca.Anonymous())).GetStatus(ctx, &pb.GetStatusRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("nobody: %v", err)
		}
	}
}

// A worker that is attached joins no keyspace that is not its own.
func TestJoinOfAHiddenKeyspace(t *testing.T) {
	c := startSecure(t, 1)
	s := c.leader(t)
	operator := s.as(t, s.ca.Operator("o1"))
	createKeyspace(t, operator, "orders", 1)
	createKeyspace(t, operator, "secret", 1)
	p := openWorker(t, s.as(t, s.ca.Worker("w1", "orders")), 41, "w1", "orders")
	for _, name := range []string{"secret", "nosuch"} {
		p.send(&pb.AttachRequest{Request: &pb.AttachRequest_Join{Join: &pb.JoinKeyspace{Keyspace: name, Request: 5}}})
		m := p.until(func(m *pb.AttachResponse) bool { return m.GetJoined() != nil })
		if got := m.GetJoined().GetError().GetReason(); got != pb.ReasonDenied {
			t.Errorf("join %s: %v", name, m)
		}
	}
}

// Keys are looked at by what is written: all of a queue's begin with its name and a
// slash.
func TestNamesAreUnderTheCallersPrefixes(t *testing.T) {
	c := startSecure(t, 1)
	s := c.leader(t)
	createKeyspace(t, s.as(t, s.ca.Operator("o1")), "orders", 1)
	conn := s.as(t, s.ca.Files(pki.Name{Role: access.Worker, Name: "w1", Scope: access.Scope{Keyspaces: []string{"orders"}, Prefixes: []string{"/app/"}}}))
	openWorker(t, conn, 51, "w1", "orders")
	for name, want := range map[string]string{"/app/lock": "", "/app": "", "/ap": pb.ReasonDenied, "/application": pb.ReasonDenied, "lock": pb.ReasonDenied} {
		wantReason(t, "acquire "+name, acquire(t, conn, name, 51), want)
	}
	for prefix, want := range map[string]string{"/app/q/": "", "/app/": "", "/app": pb.ReasonDenied, "q/": pb.ReasonDenied} {
		_, err := pb.NewCoordinationServiceClient(conn).CreateSequential(t.Context(), &pb.CreateSequentialRequest{Prefix: prefix, SessionId: 51})
		wantReason(t, "sequence "+prefix, err, want)
	}
}

// A backup has all keys in it.
func TestBackupWantsAllKeys(t *testing.T) {
	c := startSecure(t, 1)
	s := c.leader(t)
	for _, prefixes := range [][]string{{"/app/"}, nil, {""}} {
		conn := s.as(t, s.ca.Files(pki.Name{Role: access.Operator, Name: "o1", Scope: access.Scope{Keyspaces: []string{"*"}, Prefixes: prefixes}}))
		stream, err := pb.NewClusterServiceClient(conn).SaveBackup(t.Context(), &pb.SaveBackupRequest{})
		if err != nil {
			t.Fatal(err)
		}
		want := pb.ReasonDenied
		if len(prefixes) == 1 && prefixes[0] == "" {
			want = ""
		}
		_, err = stream.Recv()
		wantReason(t, strings.Join(prefixes, " "), err, want)
	}
}

// A worker whose credential is revoked is told so at once.
func TestRevokedWorkerIsToldSo(t *testing.T) {
	c := startSecure(t, 2)
	s := c.follower(t)
	operator := s.as(t, s.ca.Operator("o1"))
	createKeyspace(t, operator, "orders", 1)
	made, err := pb.NewCredentialServiceClient(operator).CreateCredential(t.Context(), &pb.CreateCredentialRequest{Name: "one", Role: pb.Role_ROLE_WORKER})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "credential at the follower", func() (ok bool) {
		s.store.View(func(st *state.State) { _, ok = st.Credential(made.GetCredential().GetId()) })
		return ok
	})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+made.GetToken())
	p := attachAs(ctx, t, s.withTLS(t, s.ca.Anonymous()), openRequest(61, "w1", "orders"))
	if p.next().GetOpened() == nil {
		t.Fatal("the session was not opened")
	}
	if _, err := pb.NewCredentialServiceClient(operator).RevokeCredential(t.Context(), &pb.RevokeCredentialRequest{Credential: "one"}); err != nil {
		t.Fatal(err)
	}
	s.guard.Revoked(made.GetCredential().GetId())
	wantReason(t, "the stream", p.end(), pb.ReasonUnauthenticated)
	_, err = pb.NewSessionServiceClient(s.withTLS(t, s.ca.Anonymous())).KeepAlive(ctx, &pb.KeepAliveRequest{SessionId: 61})
	if r := pb.ReasonOf(err); r != pb.ReasonUnauthenticated && r != pb.ReasonNoLeader {
		t.Errorf("a keep-alive after that: %v", err)
	}
}

// watchFirst opens a watch and waits for its first message.
func watchFirst(ctx context.Context, conn *grpc.ClientConn, r *pb.WatchEventsRequest) (*pb.WatchEventsResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewEventServiceClient(conn).WatchEvents(ctx, r)
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// httpDenied sends a call as JSON over HTTP.
func httpDenied(t *testing.T, s *server, f pki.Files, method, body string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(s.guard.HTTP(s.api.HTTPHandler(s.guard)))
	srv.TLS = s.certs.Config(pki.UseHTTP)
	srv.StartTLS()
	defer srv.Close()
	contentType := "application/json"
	if strings.HasSuffix(method, "WatchEvents") {
		contentType, body = "application/connect+json", "\x00\x00\x00\x00"+string(rune(len(body)))+body
	}
	transport := &http.Transport{TLSClientConfig: s.ca.Client(f)}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Post(srv.URL+"/leasehold.v1."+method, contentType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(got), "permission_denied") || !strings.Contains(string(got), "not one of yours") {
		t.Errorf("%s over HTTP: %d %s, %v", method, resp.StatusCode, got, err)
	}
}
