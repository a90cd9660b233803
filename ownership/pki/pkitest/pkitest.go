// Package pkitest makes the authorities, certificates and files that tests of
// everything with TLS need. Certificates are those that leasehold tls would make;
// only those that it makes for nobody, such as expired ones, are made here.
//
// It runs no goroutine. All files are in the test's own directories.
package pkitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Cluster is the one that certificates are for: the default --gossip-label.
const Cluster = "leasehold"

// Authority signs for one cluster.
type Authority struct {
	t     testing.TB
	signs *pki.Authority
	pair  tls.Certificate // of the authority
	ca    string          // file
	life  time.Duration
}

// New makes an authority for Cluster.
func New(t testing.TB) *Authority { return NewFor(t, Cluster) }

// NewFor makes an authority for a cluster.
func NewFor(t testing.TB, cluster string) *Authority {
	t.Helper()
	signs, pem, err := pki.NewAuthority(cluster, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{t: t, signs: signs, life: time.Hour}
	if a.pair, err = tls.X509KeyPair(pem.Cert, pem.Key); err != nil {
		t.Fatal(err)
	}
	a.ca = filepath.Join(t.TempDir(), "ca.pem")
	a.write(a.ca, pem.Cert)
	return a
}

// Lasting is the same authority for certificates of another life than an hour.
func (a *Authority) Lasting(life time.Duration) *Authority {
	b := *a
	b.life = life
	return &b
}

// CA is the file with the authority's certificate.
func (a *Authority) CA() string { return a.ca }

// Server makes a server's certificate.
func (a *Authority) Server(id string) pki.Files {
	return a.Files(pki.Name{Role: access.Server, Name: id})
}

// Worker makes a worker's certificate, for the keyspaces or for everything.
func (a *Authority) Worker(name string, keyspaces ...string) pki.Files {
	return a.Files(pki.Name{Role: access.Worker, Name: name, Scope: access.ScopeOf(keyspaces, nil)})
}

// Reader makes a certificate that allows to look.
func (a *Authority) Reader(name string) pki.Files {
	return a.Files(pki.Name{Role: access.Reader, Name: name})
}

// Operator makes a certificate that allows to run the cluster.
func (a *Authority) Operator(name string) pki.Files {
	return a.Files(pki.Name{Role: access.Operator, Name: name})
}

// Files makes any certificate, in new files. Its cluster is the authority's unless
// it has one, and its scope everywhere.
func (a *Authority) Files(n pki.Name) pki.Files {
	a.t.Helper()
	dir := a.t.TempDir()
	f := pki.Files{Cert: filepath.Join(dir, "tls.pem"), Key: filepath.Join(dir, "tls-key.pem"), CA: a.ca}
	a.Replace(f, n)
	return f
}

// Replace puts a new certificate and key into files that are in use, each whole, as
// a tool that renews them does.
func (a *Authority) Replace(f pki.Files, n pki.Name) {
	a.t.Helper()
	if n.Scope.Keyspaces == nil && n.Scope.Prefixes == nil {
		n.Scope = access.Everywhere()
	}
	pair, _, err := a.signs.Issue(pki.Request{Name: n, Life: a.life})
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(f.Key, pair.Key)
	a.write(f.Cert, pair.Cert)
}

// Expired makes a certificate that has run out an hour ago.
func (a *Authority) Expired(n pki.Name) pki.Files {
	a.t.Helper()
	return a.sign(&x509.Certificate{
		URIs: []*url.URL{a.uri(n)}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	}, false)
}

// SelfSigned makes a certificate that nobody but its own holder vouches for.
func (a *Authority) SelfSigned(n pki.Name) pki.Files {
	a.t.Helper()
	return a.sign(&x509.Certificate{
		URIs: []*url.URL{a.uri(n)}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}, true)
}

func (a *Authority) uri(n pki.Name) *url.URL {
	a.t.Helper()
	if n.Cluster == "" {
		n.Cluster = a.signs.Cluster
	}
	if n.Scope.Keyspaces == nil && n.Scope.Prefixes == nil {
		n.Scope = access.Everywhere()
	}
	uri, err := url.Parse(n.URI())
	if err != nil {
		a.t.Fatal(err)
	}
	return uri
}

// Nameless makes a certificate with a common name and no other, as authorities for
// other things do.
func (a *Authority) Nameless(commonName string) pki.Files {
	a.t.Helper()
	return a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: commonName}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour)}, false)
}

// sign makes what leasehold tls would not.
func (a *Authority) sign(template *x509.Certificate, self bool) pki.Files {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.BasicConstraintsValid = true
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	parent, signer := a.signs.Cert, a.pair.PrivateKey
	if self {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	f := pki.Files{Cert: filepath.Join(dir, "tls.pem"), Key: filepath.Join(dir, "tls-key.pem"), CA: a.ca}
	a.write(f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	a.write(f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return f
}

// Leaf is the certificate in a file.
func (a *Authority) Leaf(f pki.Files) *x509.Certificate {
	a.t.Helper()
	data, err := os.ReadFile(f.Cert)
	if err != nil {
		a.t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		a.t.Fatalf("no certificate in %s", f.Cert)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// Revoke adds the certificates of files to the list of revocations in crl, which
// need not exist. Without any it makes a list.
func (a *Authority) Revoke(crl string, revoked ...pki.Files) {
	a.t.Helper()
	old, err := os.ReadFile(crl)
	if err != nil && !os.IsNotExist(err) {
		a.t.Fatal(err)
	}
	var serials []*big.Int
	for _, f := range revoked {
		serials = append(serials, a.Leaf(f).SerialNumber)
	}
	list, _, err := a.signs.Revoke(old, serials, time.Hour)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(crl, list)
}

// Client is the configuration of a client with a certificate.
func (a *Authority) Client(f pki.Files) *tls.Config {
	a.t.Helper()
	cfg, err := pki.Client(f)
	if err != nil {
		a.t.Fatal(err)
	}
	return cfg
}

// Presenting is the configuration of a client that shows any certificate, also one
// that no honest client would: of another cluster or authority, or expired.
func (a *Authority) Presenting(f pki.Files) *tls.Config {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		a.t.Fatal(err)
	}
	cfg := a.Anonymous()
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return cfg
}

// Anonymous is the configuration of a client without one.
func (a *Authority) Anonymous() *tls.Config { return a.Client(pki.Files{CA: a.ca}) }

// write puts a whole file in the place of another.
func (a *Authority) write(path string, data []byte) {
	a.t.Helper()
	next := path + ".new"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		a.t.Fatal(err)
	}
}
