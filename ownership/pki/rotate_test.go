package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

func TestAuthoritiesAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, day1, false, "s1", "s2")
		next, pair, err := NewAuthority("leasehold", day1)
		if err != nil {
			t.Fatal(err)
		}
		old, _ := readFile(c.files["s1"].CA)
		put(t, c.files["s1"].CA, slices.Concat(old, pair.Cert))
		time.Sleep(lookEvery)
		c.renew(next, "s1", day1)
		c.well("s1", "s2", "s2", "s1")
		time.Sleep(lookEvery)
		c.well("s1", "s2", "s2", "s1") // one of each
		if n := len(c.stores["s1"].Certificates()); n != 3 {
			t.Errorf("%d certificates in use", n)
		}
		c.renew(next, "s2", day1)
		c.renew(next, "w1", day1)
		put(t, c.files["s1"].CA, pair.Cert)
		time.Sleep(lookEvery)
		c.well("s1", "s2", "s2", "s1")
		if _, se, ce := shake(t, c.stores["s1"].Config(UseAPI), c.worker); se != nil || ce != nil {
			t.Error(se, ce)
		}
		left := forge(t, c.a, nil)
		dialling := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &left, nil }}
		if _, se, _ := shake(t, c.stores["s1"].Config(UseRaft), dialling); ReasonOf(se) != ReasonWrongCA {
			t.Error("the old authority is believed:", se)
		}
	})
}

// The same with lists of revocations. Each step may be the last before a restart, and
// none is refused.
func TestAuthoritiesAreReplacedWithTheirLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, day1, true, "s1", "s2")
		next, pair, err := NewAuthority("leasehold", day1)
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := next.Revoke(nil, nil, day1)
		if err != nil {
			t.Fatal(err)
		}
		c.revoke(day1, "w1")
		w1, err := ParseCertificate(c.files["w1"].Cert)
		if err != nil {
			t.Fatal(err)
		}
		ca, crl := c.files["s1"].CA, c.files["s1"].CRL
		oldCA, _ := readFile(ca)
		oldList, _ := readFile(crl)
		for _, step := range []struct {
			what string
			do   func()
		}{
			{"both authorities", func() { put(t, ca, slices.Concat(oldCA, pair.Cert)) }},
			{"both lists", func() { put(t, crl, slices.Concat(oldList, list)) }},
			{"a new certificate", func() { c.renew(next, "s1", day1) }},
			{"two new certificates", func() { c.renew(next, "s2", day1) }},
			{"the new authority", func() { put(t, ca, pair.Cert) }},
			{"the new list", func() { put(t, crl, list) }},
		} {
			step.do()
			time.Sleep(lookEvery)
			c.well("s1", "s2", "s2", "s1")
			for _, name := range []string{"s1", "s2"} {
				if l := c.logs[name].String(); strings.Contains(l, "ERROR") {
					t.Fatalf("%s: %s says %s", step.what, name, l)
				}
				if _, err := Open(c.files[name], "leasehold", c.stores[name].log); err != nil {
					t.Errorf("%s: %s does not start again: %v", step.what, name, err)
				}
			}
			believed := len(c.stores["s1"].Certificates()) // the own, the authorities, their lists
			if _, err := c.stores["s1"].Identity(w1); ReasonOf(err) != ReasonRevoked && believed > 3 {
				t.Errorf("%s: who is revoked gets in: %v", step.what, err)
			}
		}
		if n := len(c.stores["s1"].Certificates()); n != 3 {
			t.Errorf("%d certificates and lists in use at the end, want 3", n)
		}
		// A list that only claims to be of an authority is no list left behind.
		forged := slices.Concat(list, list)
		at := slices.Index(forged[len(list):], '\n') + len(list) + 300
		forged[at] ^= 1
		put(t, crl, forged)
		if err := c.stores["s1"].Reload(); err == nil {
			t.Error("a damaged list beside a good one is taken")
		}
	})
}

// An authority that a rotation has left behind runs out, and its list gets old.
func TestAuthorityLeftBehindRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3*day1, true, "s1", "s2")
		left, pair, err := NewAuthority("leasehold", day1)
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := left.Revoke(nil, nil, day1)
		if err != nil {
			t.Fatal(err)
		}
		for path, more := range map[string][]byte{c.files["s1"].CA: pair.Cert, c.files["s1"].CRL: list} {
			data, _ := readFile(path)
			put(t, path, slices.Concat(data, more))
		}
		time.Sleep(2 * day1)
		c.well("s1", "s2")
		if _, err := Open(c.files["s1"], "leasehold", c.stores["s1"].log); err != nil {
			t.Error("a start:", err)
		}
	})
}

// An authority that runs out takes all with it, certificates of a longer life
// included: that is said, and a new one needs no restart.
func TestAuthorityRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a, pair, err := NewAuthority("leasehold", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		f := Files{Cert: filepath.Join(dir, "s1.pem"), Key: filepath.Join(dir, "s1-key.pem"), CA: filepath.Join(dir, "ca.pem")}
		own := forge(t, a, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(day1) })
		key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		write(t, f.CA, pair.Cert)
		write(t, f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}))
		write(t, f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
		s, log := open(t, f, "leasehold")
		meet := func() error {
			_, se, ce := shake(t, s.Config(UseRaft), s.Config(UsePeer))
			return errors.Join(se, ce)
		}
		if err := meet(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if err := meet(); ReasonOf(err) != ReasonExpired {
			t.Error("after its end:", err)
		}
		if l := log.String(); strings.Count(l, "TLS files are no longer good") != 1 || !strings.Contains(l, f.CA) || !strings.Contains(l, "it expired on") {
			t.Error("what is said of it:", l)
		}
		next, pair, err := NewAuthority("leasehold", day1)
		if err != nil {
			t.Fatal(err)
		}
		renewed, _, err := next.Issue(Request{Name: Name{Role: access.Server, Name: "s1", Scope: access.Everywhere()}, Life: day1})
		if err != nil {
			t.Fatal(err)
		}
		for path, data := range map[string][]byte{f.CA: pair.Cert, f.Cert: renewed.Cert, f.Key: renewed.Key} {
			put(t, path, data)
		}
		time.Sleep(lookEvery)
		if err := meet(); err != nil {
			t.Error("with a new one:", err)
		}
	})
}
