package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// forge signs whatever change makes of a good worker's certificate; by may be nil,
// then it signs itself.
func forge(t *testing.T, by *Authority, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := newSerial()
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "leasehold://leasehold/server/s1"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	named("leasehold://leasehold/server/s1")(c)
	if change != nil {
		change(c)
	}
	parent, signer := c, any(key)
	if by != nil {
		parent, signer = by.Cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// named gives a certificate URIs, byte for byte.
func named(uris ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		var names []asn1.RawValue
		for _, u := range uris {
			names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: uriTag, Bytes: []byte(u)})
		}
		c.ExtraExtensions = nil
		if der, err := asn1.Marshal(names); err == nil && len(uris) > 0 {
			c.ExtraExtensions = []pkix.Extension{{Id: oidAltNames, Value: der}}
		}
	}
}

// TestWhoGetsIn is every listener, and the dialling side, against everybody who
// might come.
func TestWhoGetsIn(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir, "leasehold")
	f, _ := issue(t, a, dir, access.Server, "s0", day1)
	other, _, err := NewAuthority("leasehold", day1)
	if err != nil {
		t.Fatal(err)
	}
	revoked := forge(t, a, nil)
	leaf, err := x509.ParseCertificate(revoked.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := a.Revoke(nil, []*big.Int{leaf.SerialNumber}, day1)
	if err != nil {
		t.Fatal(err)
	}
	f.CRL = filepath.Join(dir, "crl.pem")
	write(t, f.CRL, list)
	s, _ := open(t, f, "leasehold")
	client, err := Client(f)
	if err != nil {
		t.Fatal(err)
	}

	set := func(change func(c *x509.Certificate)) tls.Certificate { return forge(t, a, change) }
	role := func(role string) tls.Certificate { return set(named("leasehold://leasehold/" + role + "/x")) }
	type who struct {
		name   string
		cert   tls.Certificate
		listen string // reason on listeners for everybody; "" : welcome
		server string // reason where servers alone are welcome, as who dials and as who is dialled
	}
	everybody := []who{
		{"nobody", tls.Certificate{}, "", ReasonNone},
		{"a server", set(nil), "", ""},
		{"a worker", role("worker"), "", ReasonWrongRole},
		{"a reader", role("reader"), "", ReasonWrongRole},
		{"an operator", role("operator"), "", ReasonWrongRole},
		{"who signed himself", forge(t, nil, nil), ReasonWrongCA, ReasonWrongCA},
		{"another authority", forge(t, other, nil), ReasonWrongCA, ReasonWrongCA},
		{"another cluster", set(named("leasehold://elsewhere/server/s1")), ReasonWrongCluster, ReasonWrongCluster},
		{"another case of the cluster", set(named("leasehold://Leasehold/server/s1")), ReasonWrongCluster, ReasonWrongCluster},
		{"expired", set(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }), ReasonExpired, ReasonExpired},
		{"not yet valid", set(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }), ReasonBad, ReasonBad},
		{"revoked", revoked, ReasonRevoked, ReasonRevoked},
		{"a common name alone", set(named()), ReasonBad, ReasonBad},
		{"a foreign URI", set(named("spiffe://leasehold/server/s1")), ReasonBad, ReasonBad},
		{"two names", set(named("leasehold://leasehold/worker/w1", "leasehold://leasehold/server/s1")), ReasonBad, ReasonBad},
		{"one name twice", set(named("leasehold://leasehold/server/s1", "leasehold://leasehold/server/s1")), ReasonBad, ReasonBad},
		{"two names, one in capitals", set(named("leasehold://leasehold/server/s1", "LEASEHOLD://leasehold/server/s1")), ReasonBad, ReasonBad},
		{"an escaped name", set(named("leasehold://leasehold/server/%73")), ReasonBad, ReasonBad},
		{"an unknown role", role("root"), ReasonBad, ReasonBad},
		{"an authority", set(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }), ReasonBad, ReasonBad},
		{"for signing code", set(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }), ReasonBad, ReasonBad},
		{"a worker with a foreign URI too", set(named("spiffe://x/y", "leasehold://leasehold/worker/w1")), "", ReasonWrongRole},
	}
	for _, w := range everybody {
		t.Run(strings.ReplaceAll(w.name, " ", "-"), func(t *testing.T) {
			dialling := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &w.cert, nil }}
			for use, want := range map[Use]string{UseAPI: w.listen, UseHTTP: w.listen, UseRaft: w.server} {
				_, serverErr, clientErr := shake(t, s.Config(use), dialling)
				if got := ReasonOf(serverErr); got != want || (clientErr == nil) != (want == "") {
					t.Errorf("listener %d says %q, want %q: %v, %v", use, got, want, serverErr, clientErr)
				}
			}
			if w.name == "nobody" {
				return // is no server
			}
			listening := &tls.Config{Certificates: []tls.Certificate{w.cert}}
			for name, c := range map[string]*tls.Config{"a server": s.Config(UsePeer), "a client": client} {
				_, _, clientErr := shake(t, listening, c)
				if got := ReasonOf(clientErr); got != w.server {
					t.Errorf("%s that dials says %q, want %q: %v", name, got, w.server, clientErr)
				}
			}
			cert, err := x509.ParseCertificate(w.cert.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			// Identity trusts the handshake for the signature and what the
			// authority meant it for, and for nothing else.
			id, err := s.Identity(cert)
			if got := ReasonOf(err); got != w.listen && w.listen != ReasonWrongCA && w.name != "for signing code" || err != nil && id.Role != 0 {
				t.Errorf("its identity is %v, %v, want %q", id, err, w.listen)
			}
		})
	}
}

func TestErrorsNameTheCertificate(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir, "leasehold")
	f, _ := issue(t, a, dir, access.Server, "s1", day1)
	s, _ := open(t, f, "leasehold")
	cert := forge(t, a, func(c *x509.Certificate) {
		c.NotAfter = time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)
		c.NotBefore = c.NotAfter.Add(-day1)
	})
	_, _, err := shake(t, &tls.Config{Certificates: []tls.Certificate{cert}}, s.Config(UsePeer))
	leaf, _ := x509.ParseCertificate(cert.Certificate[0])
	for _, want := range []string{"leasehold://leasehold/server/s1", Serial(leaf), "expired on 2024-03-01 12:00:00 UTC"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if _, err := s.Identity(nil); ReasonOf(err) != ReasonNone {
		t.Error(err)
	}
}

func TestOldVersionsAreRefused(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir, "leasehold")
	f, _ := issue(t, a, dir, access.Server, "s1", day1)
	s, _ := open(t, f, "leasehold")
	for _, use := range []Use{UseAPI, UseHTTP, UseRaft} {
		if _, se, ce := shake(t, s.Config(use), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); se == nil || ce == nil {
			t.Errorf("use %d speaks TLS 1.2", use)
		}
	}
	old := &tls.Config{Certificates: []tls.Certificate{forge(t, a, nil)}, MaxVersion: tls.VersionTLS12}
	if _, _, ce := shake(t, old, s.Config(UsePeer)); ce == nil {
		t.Error("TLS 1.2 is spoken when dialling")
	}
}

// A connection that is resumed would be judged by what was known when the first
// one was made.
func TestNothingIsResumed(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir, "leasehold")
	f, _ := issue(t, a, dir, access.Server, "s1", day1)
	s, _ := open(t, f, "leasehold")
	for _, use := range []Use{UseAPI, UseHTTP, UseRaft} {
		server := s.Config(use)
		client := &tls.Config{InsecureSkipVerify: true, ServerName: "s1", ClientSessionCache: tls.NewLRUClientSessionCache(8), Certificates: []tls.Certificate{forge(t, a, nil)}}
		for range 3 {
			cs, se, ce := shake(t, server, client)
			if se != nil || ce != nil || cs.DidResume {
				t.Errorf("use %d: %v, %v, resumed %v", use, se, ce, cs.DidResume)
			}
		}
	}
}

// A chain may go through an authority between, and is only as good as that.
func TestAuthoritiesBetween(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir, "leasehold")
	f, _ := issue(t, a, dir, access.Server, "s1", day1)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// One that says of itself that it may sign others.
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "company"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(day1),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	rootCert, rootPair, err := sign(root, root, key, key)
	if err != nil {
		t.Fatal(err)
	}
	company := &Authority{Cert: rootCert, key: key}
	subKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sub := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "team"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(day1),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	subCert, _, err := sign(sub, rootCert, subKey, key)
	if err != nil {
		t.Fatal(err)
	}
	team := &Authority{Cert: subCert, key: subKey}
	leaf := forge(t, team, nil)
	leaf.Certificate = append(leaf.Certificate, subCert.Raw)

	old, err := readFile(f.CA)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.CA, append(old, rootPair.Cert...)) // two authorities at once
	s, _ := open(t, f, "leasehold")
	dialling := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{leaf}}
	if _, se, ce := shake(t, s.Config(UseRaft), dialling); se != nil || ce != nil {
		t.Fatal(se, ce)
	}
	list, _, err := company.Revoke(nil, []*big.Int{subCert.SerialNumber}, day1)
	if err != nil {
		t.Fatal(err)
	}
	f.CRL = filepath.Join(dir, "crl.pem")
	write(t, f.CRL, list)
	s, _ = open(t, f, "leasehold")
	if _, se, _ := shake(t, s.Config(UseRaft), dialling); ReasonOf(se) != ReasonRevoked {
		t.Error("of an authority that was revoked:", se)
	}
	leaf.Certificate = append(leaf.Certificate, subCert.Raw, subCert.Raw, subCert.Raw, subCert.Raw)
	if _, se, _ := shake(t, s.Config(UseRaft), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{leaf}}); ReasonOf(se) != ReasonBad {
		t.Error("a long chain:", se)
	}
}
