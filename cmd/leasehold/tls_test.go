package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// tlsDir is the directory of an authority, in which commands of leasehold tls run.
type tlsDir string

func (d tlsDir) path(name string) string { return filepath.Join(string(d), name) }

func (d tlsDir) want(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	if sub := strings.Join(args, " "); !strings.HasPrefix(sub, "inspect") {
		args = append(args, "--dir", string(d))
	}
	stdout, stderr = (&cli{}).want(t, code, append([]string{"tls"}, args...)...)
	d.noKeys(t, stdout+stderr)
	return stdout, stderr
}

// noKeys: nothing that is printed has a part of a private key.
func (d tlsDir) noKeys(t *testing.T, printed string) {
	t.Helper()
	keys, err := filepath.Glob(d.path("*-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range keys {
		for line := range strings.Lines(string(d.read(t, name))) {
			if line = strings.TrimSpace(line); len(line) > 20 && strings.Contains(printed, line) {
				t.Errorf("the key %s is printed:\n%s", name, printed)
			}
		}
	}
}

func (d tlsDir) read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (d tlsDir) name(t *testing.T, file string) pki.Name {
	t.Helper()
	c, err := pki.ParseCertificate(d.path(file))
	if err != nil {
		t.Fatal(err)
	}
	n, err := pki.NameOf(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTLSFiles(t *testing.T) {
	d := tlsDir(filepath.Join(t.TempDir(), "new", "pki"))
	if _, errOut := d.want(t, exitNotFound, "issue", "--role", "worker", "w1"); !strings.Contains(errOut, "leasehold tls ca create") {
		t.Error(errOut)
	}
	d.want(t, exitOK, "ca", "create", "--cluster", "orders")
	ca, key := d.read(t, d.path("ca.pem")), d.read(t, d.path("ca-key.pem"))
	if _, errOut := d.want(t, exitRefused, "ca", "create"); !strings.Contains(errOut, "ca.pem exists and is not overwritten") || !strings.Contains(errOut, "tls ca show") {
		t.Error(errOut)
	}
	if !bytes.Equal(ca, d.read(t, d.path("ca.pem"))) || !bytes.Equal(key, d.read(t, d.path("ca-key.pem"))) {
		t.Fatal("the authority was overwritten")
	}
	out, _ := d.want(t, exitOK, "issue", "--role", "server", "s1=10.0.0.1,s1.example", "s2", "--host", "all.example", "-o", "json")
	var made struct{ Items []issuedFiles }
	if err := json.Unmarshal([]byte(out), &made); err != nil || len(made.Items) != 2 || made.Items[0].URI != "leasehold://orders/server/s1" {
		t.Fatal(err, out)
	}
	c, err := pki.ParseCertificate(made.Items[0].Cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"10.0.0.1", "s1.example", "all.example", "127.0.0.1", "::1", "localhost"} {
		if err := c.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if left := time.Until(c.NotAfter); left > 90*24*time.Hour || left < 89*24*time.Hour {
		t.Errorf("valid for %v", left)
	}
	if runtime.GOOS != "windows" {
		for name, want := range map[string]os.FileMode{"ca-key.pem": keyMode, "s1-key.pem": keyMode, ".": pkiDirMode} {
			if info, err := os.Stat(d.path(name)); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	}
	s, err := pki.Open(pki.Files{Cert: d.path("s1.pem"), Key: d.path("s1-key.pem"), CA: d.path("ca.pem"), CRL: d.path("crl.pem")}, "orders", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	// The first list lasts as long as the authority: nobody has to think of it before
	// something is revoked.
	all := s.Certificates()
	if len(all) != 3 || all[1].Use != "authority" || all[2].Use != "list" || all[1].NotAfter.Sub(all[2].NotAfter).Abs() > time.Minute {
		t.Errorf("%+v", all)
	}
}

func TestTLSIssueRefuses(t *testing.T) {
	d := tlsDir(t.TempDir())
	d.want(t, exitOK, "ca", "create")
	d.want(t, exitOK, "issue", "--role", "worker", "w1")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "--role is missing", []string{"w2"}},
		{exitUsage, "NAME is missing", []string{"--role", "worker"}},
		{exitUsage, `role "boss"`, []string{"--role", "boss", "w2"}},
		{exitUsage, "want 1 to 128 bytes", []string{"--role", "worker", "w/2"}},
		{exitUsage, "given twice", []string{"--role", "worker", "w2", "w2"}},
		{exitUsage, "only servers are dialled", []string{"--role", "worker", "w2=10.0.0.1"}},
		{exitUsage, `host "a:7400"`, []string{"--role", "server", "s2=a:7400"}},
		{exitUsage, `host ""`, []string{"--role", "server", "s2="}},
		{exitUsage, "a server has no bounds", []string{"--role", "server", "s2", "--keyspace", "orders"}},
		{exitUsage, `keyspaces "a*b"`, []string{"--role", "worker", "w2", "--keyspace", "a*b"}},
		{exitUsage, `cluster "a:b"`, []string{"--role", "worker", "w2", "--cluster", "a:b"}},
		{exitUsage, "--days 0", []string{"--role", "worker", "w2", "--days", "0"}},
		{exitUsage, "--ttl 500ms", []string{"--role", "worker", "w2", "--ttl", "500ms"}},
		{exitUsage, "say the same thing", []string{"--role", "worker", "w2", "--days", "1", "--ttl", "1m"}},
		{exitUsage, "for something else", []string{"--role", "worker", "ca"}},
		{exitUsage, "for something else", []string{"--role", "worker", "w1-key"}},
		{exitRefused, "w1.pem exists", []string{"--role", "worker", "w2", "w1"}},
		{exitUsage, "w1 is a worker", []string{"--renew", "--role", "operator", "w1"}},
		{exitFailed, "w9.pem", []string{"--renew", "w9"}},
	} {
		if _, errOut := d.want(t, c.code, append([]string{"issue"}, c.args...)...); !strings.Contains(errOut, c.says) {
			t.Errorf("%v: %s", c.args, errOut)
		}
	}
	left, err := filepath.Glob(d.path("*"))
	if err != nil || len(left) != 5 {
		t.Errorf("what was refused left files: %v, %v", left, err)
	}
}

// What is renewed stays as it was bounded.
func TestTLSRenewKeepsBounds(t *testing.T) {
	d := tlsDir(t.TempDir())
	d.want(t, exitOK, "ca", "create")
	d.want(t, exitOK, "issue", "--role", "worker", "w1", "--keyspace", "orders,pay-*", "--key-prefix", "/a b,c/é\x00")
	d.want(t, exitOK, "issue", "--role", "server", "s1=10.0.0.1")
	before := d.name(t, "w1.pem")
	if s := before.Scope; !s.Keyspace("pay-eu") || s.Keyspace("x") || !s.Key([]byte("/a b,c/é\x00z")) || s.Key([]byte("/a")) {
		t.Fatal(s)
	}
	old := d.read(t, d.path("w1.pem"))
	d.want(t, exitOK, "issue", "--renew", "w1", "s1")
	if after := d.name(t, "w1.pem"); after.URI() != before.URI() || bytes.Equal(old, d.read(t, d.path("w1.pem"))) {
		t.Fatalf("renewed as %s, was %s", after.URI(), before.URI())
	}
	c, err := pki.ParseCertificate(d.path("s1.pem"))
	if err != nil || c.VerifyHostname("10.0.0.1") != nil {
		t.Error(err, c.IPAddresses)
	}
	d.want(t, exitOK, "issue", "--renew", "w1", "--keyspace", "mails")
	if s := d.name(t, "w1.pem").Scope; !s.Keyspace("mails") || s.Keyspace("orders") || s.Key([]byte("/a b,c/é\x00z")) {
		t.Error(s)
	}
}

func TestTLSInspectAndRevoke(t *testing.T) {
	d := tlsDir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		d.want(t, exitOK, "ca", "create")
		d.want(t, exitOK, "issue", "--role", "worker", "w1", "w2", "--ttl", "3m")
		d.want(t, exitOK, "issue", "--role", "worker", "w3")
		out, _ := d.want(t, exitOK, "inspect", d.path("w1.pem"), d.path("w1-key.pem"), d.path("ca.pem"), "-o", "wide")
		for _, want := range []string{"leasehold://leasehold/worker/w1", "worker", "everywhere", "3m", "valid", "authority", "leasehold://leasehold "} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
		if _, errOut := d.want(t, exitFailed, "inspect", d.path("w1-key.pem")); !strings.Contains(errOut, "keys are not shown") {
			t.Error(errOut)
		}
		d.want(t, exitOK, "revoke", d.path("w1.pem"))
		out, _ = d.want(t, exitOK, "revoke", d.path("w1.pem"), "--days", "2")
		if !strings.Contains(out, "is list 3, revokes 1 ") {
			t.Error(out)
		}
		out, errOut := d.want(t, exitFailed, "inspect", d.path("w1.pem"), d.path("w2.pem"), d.path("crl.pem"), "-o", "json")
		var got struct{ Items []described }
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if got.Items[0].State != pki.StateRevoked || got.Items[1].State != pki.StateValid || got.Items[1].RemainingSeconds != 180 || got.Items[2].Number.Int64() != 3 || !strings.Contains(errOut, "w1.pem: certificate is revoked") {
			t.Error(out, errOut)
		}
		time.Sleep(3*time.Minute + time.Second)
		if _, errOut := d.want(t, exitFailed, "inspect", d.path("w2.pem")); !strings.Contains(errOut, "w2.pem: certificate is expired") {
			t.Error(errOut)
		}
		d.want(t, exitOK, "inspect", d.path("w3.pem"), d.path("crl.pem"))
		time.Sleep(48 * time.Hour)
		if _, errOut := d.want(t, exitFailed, "inspect", d.path("crl.pem")); !strings.Contains(errOut, "crl.pem: the next list of revocations is overdue") {
			t.Error(errOut)
		}
		d.want(t, exitOK, "revoke")
		d.want(t, exitOK, "inspect", d.path("crl.pem"))
		if out, _ := d.want(t, exitOK, "ca", "show"); !strings.Contains(out, "revoked      1, list 4") || !strings.Contains(out, "cluster      leasehold") {
			t.Error(out)
		}
	})
	other := tlsDir(t.TempDir())
	other.want(t, exitOK, "ca", "create")
	if _, errOut := other.want(t, exitRefused, "revoke", d.path("w1.pem")); !strings.Contains(errOut, "has not issued it") {
		t.Error(errOut)
	}
	other.want(t, exitUsage, "revoke", "--serial", "-1")
	if out, _ := other.want(t, exitOK, "revoke", "--serial", "0a"); !strings.Contains(out, "revokes 1") {
		t.Error(out)
	}
}

// A name that a certificate may have is one that a server or worker may have, and
// the other way round.
func TestTLSNamesAreIDs(t *testing.T) {
	for _, name := range []string{"w1", "w:1", "a..b", ".", "..", "", "a b", "ä", "-", "_.", strings.Repeat("x", 128), strings.Repeat("x", 129), "a/b", "a%2e"} {
		if a, b := pki.CheckName(name), state.ValidateName("worker", "id", name); (a == nil) != (b == nil) {
			t.Errorf("%q: %v, %v", name, a, b)
		}
	}
}
