package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

func TestIssue(t *testing.T) {
	a, pair, err := NewAuthority("orders", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if c := a.Cert; !c.IsCA || !c.MaxPathLenZero || c.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign || c.NotBefore.After(time.Now().Add(-time.Minute)) {
		t.Errorf("authority %+v", c)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.pem"), pair.Cert)
	write(t, filepath.Join(dir, "ca-key.pem"), pair.Key)
	if a, err = LoadAuthority(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem")); err != nil || a.Cluster != "orders" {
		t.Fatal(a, err)
	}
	seen := map[string]bool{}
	for _, role := range []access.Role{access.Server, access.Worker, access.Reader, access.Operator} {
		n := Name{Role: role, Name: "x", Scope: access.Everywhere()}
		pair, c, err := a.Issue(Request{Name: n, Life: 24 * time.Hour, Hosts: []string{"10.0.0.1", "s.example", "127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		n.Cluster = "orders"
		if got, err := NameOf(c); err != nil || got.URI() != n.URI() {
			t.Errorf("%s: %v, %v", n.URI(), got, err)
		}
		if c.NotAfter.After(a.Cert.NotAfter) || c.NotBefore.Before(a.Cert.NotBefore) || !c.NotBefore.Before(time.Now().Add(-time.Minute)) {
			t.Errorf("%s: from %v to %v; the authority to %v", role, c.NotBefore, c.NotAfter, a.Cert.NotAfter)
		}
		server := role == access.Server
		if slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) != server || !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || (c.VerifyHostname("s.example") == nil) != server {
			t.Errorf("%s: for %v, hosts %v", role, c.ExtKeyUsage, HostsOf(c))
		}
		if c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature || !a.Issued(c) {
			t.Errorf("%s: %+v", role, c)
		}
		if c.SerialNumber.BitLen() < 90 || seen[Serial(c)] {
			t.Errorf("%s: serial %s", role, Serial(c))
		}
		seen[Serial(c)] = true
		if bytes.Contains(pair.Cert, []byte("PRIVATE")) || !bytes.Contains(pair.Key, []byte("PRIVATE")) {
			t.Error("the key is in the wrong half")
		}
	}
	for says, r := range map[string]Request{
		`name ""`:            {Name: Name{Role: access.Worker, Scope: access.Everywhere()}, Life: time.Hour},
		"role":               {Name: Name{Name: "x", Scope: access.Everywhere()}, Life: time.Hour},
		"nowhere":            {Name: Name{Role: access.Worker, Name: "x"}, Life: time.Hour},
		"life":               {Name: Name{Role: access.Worker, Name: "x", Scope: access.Everywhere()}},
		"life 900001h0m0s":   {Name: Name{Role: access.Worker, Name: "x", Scope: access.Everywhere()}, Life: 900_001 * time.Hour},
		`host "a b"`:         {Name: Name{Role: access.Server, Name: "x", Scope: access.Everywhere()}, Life: time.Hour, Hosts: []string{"a b"}},
		"hosts: 65":          {Name: Name{Role: access.Server, Name: "x", Scope: access.Everywhere()}, Life: time.Hour, Hosts: make([]string, 65)},
		`cluster "x/y"`:      {Name: Name{Cluster: "x/y", Role: access.Worker, Name: "x", Scope: access.Everywhere()}, Life: time.Hour},
		"a server has no bo": {Name: Name{Role: access.Server, Name: "x", Scope: access.Scope{Keyspaces: []string{"k"}}}, Life: time.Hour},
	} {
		if _, _, err := a.Issue(r); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
	if _, _, err := NewAuthority("a:b", time.Hour); err == nil {
		t.Error("an authority of a cluster that no certificate can name")
	}
}

func TestRevokeKeepsWhatIsThere(t *testing.T) {
	a, _, err := NewAuthority("c", day1)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := NewAuthority("c", day1)
	if err != nil {
		t.Fatal(err)
	}
	file, l, err := a.Revoke(nil, []*big.Int{big.NewInt(7)}, time.Hour)
	if err != nil || l.Number.Int64() != 1 {
		t.Fatal(l, err)
	}
	if file, l, err = other.Revoke(file, []*big.Int{big.NewInt(8)}, time.Hour); err != nil || l.Number.Int64() != 1 || len(l.RevokedCertificateEntries) != 1 {
		t.Fatal(l, err)
	}
	if file, l, err = a.Revoke(file, []*big.Int{big.NewInt(7), big.NewInt(9)}, time.Hour); err != nil || l.Number.Int64() != 2 || len(l.RevokedCertificateEntries) != 2 {
		t.Fatal(l, err)
	}
	lists, err := parseLists(file, []*x509.Certificate{a.Cert, other.Cert})
	if err != nil || len(lists) != 2 {
		t.Fatal(lists, err)
	}
	// One left behind by a rotation is left out; alone it would be the wrong file.
	if lists, err := parseLists(file, []*x509.Certificate{a.Cert}); err != nil || len(lists) != 1 || signerOf(lists[0], []*x509.Certificate{a.Cert}) == nil {
		t.Error("beside a list of a stranger:", lists, err)
	}
	alone, _, err := other.Revoke(nil, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseLists(alone, []*x509.Certificate{a.Cert}); err == nil || !strings.Contains(err.Error(), "signed by no authority") {
		t.Error("a list of a stranger:", err)
	}
	if _, _, err := a.Revoke([]byte("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"), nil, time.Hour); err == nil {
		t.Error("a list that cannot be read is lost")
	}
	var many []*big.Int
	for i := range MaxRevoked + 1 {
		many = append(many, big.NewInt(int64(i+1)))
	}
	if _, _, err := a.Revoke(nil, many, time.Hour); err == nil || !strings.Contains(err.Error(), "at most 10000") {
		t.Error(err)
	}
	most := make([]*big.Int, MaxRevoked)
	for i := range most {
		b := make([]byte, 20)
		if _, err := rand.Read(b); err != nil {
			t.Fatal(err)
		}
		most[i] = new(big.Int).SetBytes(b)
	}
	if file, _, err = a.Revoke(nil, most, time.Hour); err != nil || len(file) > maxFile {
		t.Errorf("a full list has %d bytes, a file at most %d: %v", len(file), maxFile, err)
	}
}

// What a list is only a part of, or says in words that are not understood, must
// not pass for the whole.
func TestCriticalExtensionsOfLists(t *testing.T) {
	a, _, err := NewAuthority("c", day1)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	template.ExtraExtensions = append(template.ExtraExtensions, a.Cert.Extensions[0])
	template.ExtraExtensions[0].Id, template.ExtraExtensions[0].Critical = []int{2, 5, 29, 27}, true // a delta
	der, err := x509.CreateRevocationList(rand.Reader, template, a.Cert, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseLists(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), []*x509.Certificate{a.Cert}); err == nil || !strings.Contains(err.Error(), "critical") {
		t.Error(err)
	}
}

// Each fault of a start names its file or flag, and what next where that is known.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir, "leasehold")
	f, _ := issue(t, a, dir, access.Server, "s1", day1)
	w, _ := issue(t, a, dir, access.Worker, "w1", day1)
	sub := t.TempDir()
	authority(t, sub, "leasehold")
	key, _ := readFile(f.Key)
	with := func(change func(*Files)) Files {
		g := f
		change(&g)
		return g
	}
	write(t, filepath.Join(dir, "large.pem"), bytes.Repeat([]byte("x"), maxFile+1))
	for _, c := range []struct {
		files   Files
		cluster string
		says    []string
	}{
		{Files{}, "leasehold", []string{"--tls-cert-file is missing"}},
		{with(func(g *Files) { g.Key = "" }), "leasehold", []string{"--tls-key-file is missing"}},
		{with(func(g *Files) { g.CA = "" }), "leasehold", []string{"--tls-ca-file is missing"}},
		{f, "a b", []string{"--gossip-label", `"a b"`}},
		{f, "elsewhere", []string{f.Cert, `for the cluster "leasehold", and this is "elsewhere"`}},
		{w, "leasehold", []string{w.Cert, "its role is worker"}},
		{with(func(g *Files) { g.Cert = filepath.Join(dir, "no.pem") }), "leasehold", []string{"no.pem"}},
		{with(func(g *Files) { g.Key = w.Key }), "leasehold", []string{w.Key, "is not the key of", f.Cert}},
		{with(func(g *Files) { g.Key = f.Cert }), "leasehold", []string{f.Cert}},
		{with(func(g *Files) { g.Cert = f.Key }), "leasehold", []string{f.Key, "no PEM block CERTIFICATE"}},
		{with(func(g *Files) { g.CA = filepath.Join(sub, "ca.pem") }), "leasehold", []string{f.Cert, "no authority of the CA file"}},
		{with(func(g *Files) { g.CA = f.Cert }), "leasehold", []string{f.Cert, "not that of an authority"}},
		{with(func(g *Files) { g.CRL = f.CA }), "leasehold", []string{f.CA, "no PEM block X509 CRL"}},
		{with(func(g *Files) { g.CRL = filepath.Join(dir, "crl.pem") }), "leasehold", []string{"crl.pem", "leasehold tls revoke"}},
		{with(func(g *Files) { g.CA = filepath.Join(dir, "large.pem") }), "leasehold", []string{"large.pem", "more than 1048576 bytes"}},
	} {
		s, err := Open(c.files, c.cluster, slog.Default())
		if err == nil || s != nil {
			t.Errorf("%+v of %s is opened", c.files, c.cluster)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%v does not say %q", err, says)
			}
		}
		for line := range strings.Lines(string(key)) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-") && strings.Contains(err.Error(), line) {
				t.Errorf("the key is in %v", err)
			}
		}
	}
	for _, g := range []Files{{}, {Cert: w.Cert, Key: w.Key}, {CA: w.CA, Cert: w.Cert}, {CA: w.CA, Key: w.Key}} {
		if _, err := Client(g); err == nil || !strings.Contains(err.Error(), "--tls-") {
			t.Errorf("client of %+v: %v", g, err)
		}
	}
}

// FuzzFiles: whatever is in a file, reading it ends well, and nothing of a list is
// believed that the authority has not signed.
func FuzzFiles(f *testing.F) {
	a, pair, err := NewAuthority("c", day1)
	if err != nil {
		f.Fatal(err)
	}
	crl, _, err := a.Revoke(nil, []*big.Int{big.NewInt(7)}, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	leaf, _, err := a.Issue(Request{Name: Name{Role: access.Worker, Name: "w", Scope: access.Scope{Keyspaces: []string{"k"}}}, Life: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{pair.Cert, crl, leaf.Cert, leaf.Key, nil, []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")} {
		f.Add(seed)
	}
	stranger, _, err := NewAuthority("c", day1)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		certs, _ := parseCertificates(data)
		for _, c := range certs {
			if n, err := NameOf(c); err == nil && n.Validate() != nil {
				t.Fatalf("%+v", n)
			}
			_, _ = ClusterOf(c)
			_ = subjectOf(c)
		}
		if l, err := parseLists(data, []*x509.Certificate{stranger.Cert}); err == nil {
			t.Fatalf("believes %v", l)
		}
		list, err := inspect(data, time.Now())
		if err == nil && len(list) == 0 {
			t.Fatal("nothing, and no error")
		}
		MarkRevoked(list)
		_, _, _ = stranger.Revoke(data, nil, time.Hour)
	})
}
