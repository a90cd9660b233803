package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

func TestWithoutSecrets(t *testing.T) {
	token := access.Token("abc123abc123", []byte(strings.Repeat("s", access.SecretLen)))
	for text, want := range map[string]string{
		"open x: -----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----: too long":      "open x: [private key]: too long",
		`"-----BEGIN EC PRIVATE KEY-----\nMC4C\n-----END EC PRIVATE KEY-----\n" is no file`:   `"[private key]\n" is no file`,
		"-----BEGIN RSA PRIVATE KEY-----\nMC4C":                                               "[private key]",
		"no credential " + token + " here":                                                    "no credential lhc_abc123abc123_[secret] here",
		"user:" + token + "@127.0.0.1:1":                                                      "user:[password]@127.0.0.1:1",
		`"user:pa?ss@10.0.0.1:7400" is not an address`:                                        `"user:[password]@10.0.0.1:7400" is not an address`,
		`key "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=": want 8 digits`:                   `key "[key]": want 8 digits`,
		"open AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=/lock: no":                          "open [key]/lock: no",
		"write orders/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=":                           "write orders/[key]",
		"gossip_key=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=":                             "gossip_key=[key]",
		"AAECAwQFBgcICQoLDA0ODw==":                                                            "[key]",
		"-----BEGIN CERTIFICATE-----\nMC4C\n-----END CERTIFICATE-----":                        "-----BEGIN CERTIFICATE-----\nMC4C\n-----END CERTIFICATE-----",
		"no server answers: 127.0.0.1:7400: dial tcp [::1]:7400: connect: connection refused": "no server answers: 127.0.0.1:7400: dial tcp [::1]:7400: connect: connection refused",
		"credential abc123abc123 (lhc_) of worker w1 at 10:04:05, mail a@b.c":                 "credential abc123abc123 (lhc_) of worker w1 at 10:04:05, mail a@b.c",
	} {
		if got := withoutSecrets(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// What somebody typed in a wrong place is not said again, neither in errors nor
// where settings are shown.
func TestWhatWasTypedIsNotRepeated(t *testing.T) {
	const pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHxHyAcPixbHPayCafgRyUn4\n-----END PRIVATE KEY-----"
	misplaced := filepath.Join(t.TempDir(), "leasehold.yaml")
	if err := os.WriteFile(misplaced, []byte(testToken+": true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		code   int
		secret string
		args   []string
	}{
		{exitUsage, testToken, []string{"status", "--server", "user:" + testToken + "@127.0.0.1:1"}},
		{exitUsage, pem, []string{"server", "--data-dir", t.TempDir(), "--tls-key-file", pem}},
		{exitUsage, pem, []string{"config", "check", "--data-dir", t.TempDir(), "--tls-key-file", pem, "-o", "json"}},
		{exitOK, pem, []string{"config", "print", "--tls-key-file", pem}},
		{exitUnreachable, testToken, []string{"doctor", "--server", testToken, "--timeout", "1s", "--duration", "0s"}},
		{exitUnreachable, testToken, []string{"doctor", "--server", testToken, "--timeout", "1s", "--duration", "0s", "-o", "json"}},
		{exitOK, testToken, []string{"config", "print", "--join", "10.0.0.1:7402," + testToken}},
		{exitOK, testToken, []string{"config", "print", "--join", "10.0.0.1:7402," + testToken, "-o", "json"}},
		{exitUsage, testToken, []string{"config", "check", "--config", misplaced, "-o", "json"}},
	} {
		var c cli
		if code := c.run(t, x.args...); code != x.code {
			t.Errorf("%s: exit %d, want %d", x.args[0], code, x.code)
		}
		if said := c.stdout.String() + c.stderr.String(); strings.Contains(said, x.secret[len(x.secret)/2:len(x.secret)/2+12]) || said == "" {
			t.Errorf("%v says\n%s", x.args[:2], said)
		}
	}
}
