package pkitest

import (
	"crypto/tls"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// The files are what servers and clients take, or refuse for the reason that they
// were made for.
func TestCertificatesAreWhatTheySay(t *testing.T) {
	a := New(t)
	f := a.Server("s1")
	f.CRL = filepath.Join(t.TempDir(), "crl.pem")
	revoked := a.Worker("w2")
	a.Revoke(f.CRL, revoked)
	store, err := pki.Open(f, Cluster, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for want, client := range map[string]*tls.Config{
		"":                     a.Client(a.Worker("w1", "orders")),
		pki.ReasonRevoked:      a.Client(revoked),
		pki.ReasonExpired:      a.Presenting(a.Expired(pki.Name{Role: access.Worker, Name: "w1"})),
		pki.ReasonWrongCA:      a.Presenting(New(t).Worker("w1")),
		pki.ReasonWrongCluster: a.Presenting(a.Files(pki.Name{Cluster: "other", Role: access.Worker, Name: "w1"})),
	} {
		if got := pki.ReasonOf(handshake(t, store.Config(pki.UseAPI), client)); got != want {
			t.Errorf("refused for %q, want %q", got, want)
		}
	}
	if got := pki.ReasonOf(handshake(t, store.Config(pki.UseRaft), a.Anonymous())); got != pki.ReasonNone {
		t.Errorf("nobody is refused for %q", got)
	}
	for want, f := range map[string]pki.Files{
		pki.ReasonBad:     a.Nameless("w1"),
		pki.ReasonWrongCA: a.SelfSigned(pki.Name{Role: access.Worker, Name: "w1"}),
	} {
		if got := pki.ReasonOf(handshake(t, store.Config(pki.UseAPI), a.Presenting(f))); got != want {
			t.Errorf("refused for %q, want %q", got, want)
		}
	}
	id, err := store.Identity(a.Leaf(a.Operator("ops")))
	if err != nil || id.Role != access.Operator || id.Name != "ops" {
		t.Errorf("%v, %v", id, err)
	}
	before := store.Certificates()[0].Serial
	a.Replace(f, pki.Name{Role: access.Server, Name: "s1"})
	if err := store.Reload(); err != nil || store.Certificates()[0].Serial == before {
		t.Errorf("the replaced certificate is not in use: %v", err)
	}
}

// handshake is what the server's side of one ends with.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	done := make(chan error, 1)
	go func() {
		defer there.Close()
		done <- tls.Server(there, server).Handshake()
	}()
	c := tls.Client(here, client)
	if c.Handshake() == nil {
		_, _ = c.Read(make([]byte, 1)) // the server's alert
	}
	return <-done
}
