package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

const day1 = 24 * time.Hour

// authority makes one for a cluster and writes ca.pem into dir.
func authority(t *testing.T, dir, cluster string) *Authority {
	t.Helper()
	a, pair, err := NewAuthority(cluster, 3650*day1)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.pem"), pair.Cert)
	return a
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue writes name.pem and name-key.pem into dir and returns the files.
func issue(t *testing.T, a *Authority, dir string, role access.Role, name string, life time.Duration) (Files, *x509.Certificate) {
	t.Helper()
	pair, cert, err := a.Issue(Request{Name: Name{Role: role, Name: name, Scope: access.Everywhere()}, Life: life})
	if err != nil {
		t.Fatal(err)
	}
	f := Files{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"), CA: filepath.Join(dir, "ca.pem")}
	write(t, f.Cert, pair.Cert)
	write(t, f.Key, pair.Key)
	return f, cert
}

func open(t *testing.T, f Files, cluster string) (*Store, *logs) {
	t.Helper()
	l := &logs{}
	s, err := Open(f, cluster, slog.New(slog.NewTextHandler(l, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

// logs collects log lines.
type logs struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// shake makes a handshake of two configurations over a wire and returns what each
// end says of it. A client learns from the server's first answer that it was
// refused, so a byte goes each way.
func shake(t *testing.T, server, client *tls.Config) (seen tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	a, b := newWire()
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer a.Close()
		if serverErr = s.HandshakeContext(context.Background()); serverErr == nil {
			seen = s.ConnectionState()
			_, serverErr = s.Write([]byte{1})
		}
	}()
	if clientErr = c.HandshakeContext(context.Background()); clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1))
	}
	b.Close()
	<-done
	return seen, serverErr, clientErr
}

func TestServersAndClientsKnowEachOther(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir, "leasehold")
	f1, _ := issue(t, a, dir, access.Server, "s1", day1)
	f2, _ := issue(t, a, dir, access.Server, "s2", day1)
	fw, cert := issue(t, a, dir, access.Worker, "w1", day1)
	s1, _ := open(t, f1, "leasehold")
	s2, _ := open(t, f2, "leasehold")
	worker, err := Client(fw)
	if err != nil {
		t.Fatal(err)
	}
	if cs, se, ce := shake(t, s1.Config(UseRaft), s2.Config(UsePeer)); se != nil || ce != nil || len(cs.PeerCertificates) != 1 {
		t.Fatal(se, ce)
	}
	for _, use := range []Use{UseAPI, UseHTTP} {
		cs, se, ce := shake(t, s1.Config(use), worker)
		if se != nil || ce != nil {
			t.Fatal(use, se, ce)
		}
		id, err := s1.Identity(cs.PeerCertificates[0])
		if err != nil || id.Role != access.Worker || id.Name != "w1" || id.Source != access.Certificate || id.Serial != Serial(cert) || !id.Expires.Equal(cert.NotAfter) || !id.Scope.AllKeys() {
			t.Fatal(id, err)
		}
	}
	if _, se, _ := shake(t, s1.Config(UseRaft), worker); ReasonOf(se) != ReasonWrongRole {
		t.Fatal(se)
	}
	none, err := Client(Files{CA: fw.CA})
	if err != nil {
		t.Fatal(err)
	}
	if cs, se, ce := shake(t, s1.Config(UseAPI), none); se != nil || ce != nil || len(cs.PeerCertificates) != 0 {
		t.Fatal(se, ce)
	}
}
