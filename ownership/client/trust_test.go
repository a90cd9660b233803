package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	of := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	pair := a.issue(of, time.Now().Add(time.Hour))
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

// issue signs by the authority, or by the certificate itself while there is none.
func (a *authority) issue(of *x509.Certificate, until time.Time) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	of.SerialNumber, of.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: rand.Text()}
	of.NotBefore, of.NotAfter = until.Add(-2*time.Hour), until
	by, with := of, key
	if a.cert != nil {
		by, with = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, of, by, key.Public(), with)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) leaf(until time.Time) tls.Certificate {
	return a.issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, until)
}

// client is the configuration of one that trusts this authority.
func (a *authority) client(own ...tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: a.pool, Certificates: own}
}

// gate is a server that wants a token, and remembers what was presented.
type gate struct {
	*peer
	want string

	mu   sync.Mutex
	seen []string
}

func (a *authority) gate(want string, change func(*tls.Config)) *gate {
	a.t.Helper()
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{a.leaf(time.Now().Add(time.Hour))}}
	if change != nil {
		change(cfg)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	g := &gate{want: want}
	g.peer = servePeer(a.t, "s", l, grpc.Creds(credentials.NewTLS(cfg)),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			if err := g.let(ctx); err != nil {
				return nil, err
			}
			return h(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			if err := g.let(ss.Context()); err != nil {
				return err
			}
			return h(srv, ss)
		}))
	g.leads("s", g.addr)
	return g
}

func (g *gate) let(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	got := strings.Join(md.Get("authorization"), "|")
	g.seen = append(g.seen, got)
	if g.want != "" && got != "Bearer "+g.want {
		return leaseholdv1.StatusError(codes.Unauthenticated, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonUnauthenticated, Message: "credential revoked: ask for another"})
	}
	return nil
}

func token(b byte) string {
	return access.Token(strings.Repeat(string(rune('a'+b)), access.IDLen), append(make([]byte, access.SecretLen-1), b))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A credential goes with every call: those that look for the leader, unary ones
// and streams. A new one in the file is used at the next call.
func TestCredentialOnEveryCall(t *testing.T) {
	a := newAuthority(t)
	g := a.gate(token(1), nil)
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, token(1)+"\n")
	cred, err := client.CredentialFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), client.Config{Servers: g.addr, TLS: a.client(), Credential: cred})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if by(t, c) != "s" {
		t.Error("not answered")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := c.Events().WatchEvents(ctx, &leaseholdv1.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Recv(); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.want = token(2)
	g.mu.Unlock()
	write(t, file, "") // the moment in which it is written
	if _, err := c.Keyspaces().ListKeyspaces(t.Context(), &leaseholdv1.ListKeyspacesRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with the token of before: %v", err)
	}
	write(t, file, token(2))
	if by(t, c) != "s" {
		t.Error("the new token is not used")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) < 5 {
		t.Errorf("%d calls seen", len(g.seen))
	}
	for i, s := range g.seen {
		if s != "Bearer "+token(1) && s != "Bearer "+token(2) {
			t.Errorf("call %d came with %q", i, s)
		}
	}
}

// Nothing of a credential leaves the process without TLS, on loopback neither.
func TestCredentialNeverInPlain(t *testing.T) {
	p := newPeer(t, "s")
	asked := false
	c, err := client.New(client.Config{Servers: p.addr, Credential: func() (string, error) { asked = true; return token(1), nil }})
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, client.ErrCredentialInPlain) || asked || p.count("status") != 0 {
		t.Errorf("New = %v, asked for the token: %v", err, asked)
	}
}

func TestCredentialFileThatHoldsNone(t *testing.T) {
	dir := t.TempDir()
	secret := strings.TrimPrefix(token(1), "lhc_bbbbbbbbbbbb_")
	for name, text := range map[string]string{"empty": "", "spoilt": token(1)[:40], "two": token(1) + "\n" + token(2), "long": strings.Repeat("x", 5000)} {
		path := filepath.Join(dir, name)
		write(t, path, text)
		if _, err := client.CredentialFile(path); err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.CredentialFile(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := client.CredentialFile(token(1)); err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "revoke") {
		t.Errorf("a token as path: %v", err)
	}
}

// Who is not let in hears it at once, whatever time is left.
func TestRefusedCallersDoNotWait(t *testing.T) {
	a := newAuthority(t)
	g := a.gate(token(1), nil)
	cfg := client.Config{Servers: g.addr + "," + deadAddr(t), TLS: a.client(), Timeout: 10 * time.Second}
	began := time.Now()
	_, err := client.Dial(t.Context(), cfg)
	if client.Detail(err).GetReason() != leaseholdv1.ReasonUnauthenticated || !strings.Contains(err.Error(), g.addr) {
		t.Errorf("Dial = %v", err)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = c.Keyspaces().ListKeyspaces(t.Context(), &leaseholdv1.ListKeyspacesRequest{}); client.Detail(err).GetReason() != leaseholdv1.ReasonUnauthenticated {
		t.Errorf("call: %v", err)
	}
	w, err := c.Events().WatchEvents(t.Context(), &leaseholdv1.WatchEventsRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if client.Detail(err).GetReason() != leaseholdv1.ReasonUnauthenticated {
		t.Errorf("stream: %v", err)
	}
	if d := time.Since(began); d > 8*time.Second {
		t.Errorf("took %v to say so", d)
	}
	_, silent, err := c.Survey(t.Context())
	if len(silent) != 2 || c.Refusal(err).GetReason() != leaseholdv1.ReasonUnauthenticated {
		t.Errorf("Survey: %v, %v", silent, err)
	}
}

// Each way in which two can fail to trust each other is told apart.
func TestDistrust(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	plain := newPeer(t, "p")
	open := a.gate("", nil)
	old := a.gate("", func(c *tls.Config) { c.Certificates = []tls.Certificate{a.leaf(time.Now().Add(-time.Minute))} })
	strict := a.gate("", func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, a.pool })
	for _, x := range []struct {
		name string
		addr string
		tls  *tls.Config
		want client.Distrust
	}{
		{"plaintext to a server with TLS", open.addr, nil, client.WantsTLS},
		{"TLS to a server without", plain.addr, a.client(), client.SpeaksPlain},
		{"another authority", open.addr, other.client(), client.UnknownAuthority},
		{"an old server", old.addr, a.client(), client.ServerExpired},
		{"no certificate where one is wanted", strict.addr, a.client(), client.CertificateRefused},
		{"a certificate that has run out", strict.addr, a.client(a.leaf(time.Now().Add(-time.Minute))), client.CertificateRefused},
		{"a certificate of another authority", strict.addr, a.client(other.leaf(time.Now().Add(time.Hour))), client.CertificateRefused},
	} {
		t.Run(x.name, func(t *testing.T) {
			cfg := client.Config{Servers: x.addr, TLS: x.tls, Timeout: time.Hour, Patience: time.Hour}
			if !x.want.Certain() {
				cfg.Patience = time.Millisecond
			}
			_, err := client.Dial(t.Context(), cfg)
			var u *client.UnreachableError
			if !errors.As(err, &u) || u.Distrust() != x.want {
				t.Fatalf("%v: %v, want %v", u.Distrust(), err, x.want)
			}
			if x.want != client.Trusted && !strings.Contains(err.Error(), x.want.String()) {
				t.Errorf("%q does not say %q", err, x.want)
			}
			c, err := client.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if d := c.Refusal(u); (d != nil) != (x.want == client.CertificateRefused) {
				t.Errorf("Refusal = %v", d)
			}
		})
	}
}
