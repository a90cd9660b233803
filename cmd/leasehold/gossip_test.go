package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/server"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// The whole change of a key from the shell, against a server that was given one.
func TestGossipKeyringFromTheShell(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.key"), filepath.Join(dir, "second.key")
	for _, file := range []string{first, second} {
		out, _ := (&cli{}).want(t, exitOK, "gossip", "keyring", "generate", "--out", file)
		key, err := readKey(file)
		if err != nil || len(key) != gossip.KeyLen || !strings.Contains(out, gossip.DigestOf(key).String()) || strings.Contains(out, base64.StdEncoding.EncodeToString(key)) {
			t.Fatalf("%s: %d bytes, %v", out, len(key), err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	(&cli{}).want(t, exitRefused, "gossip", "keyring", "generate", "--out", first) // never over another
	shown, _ := (&cli{}).want(t, exitOK, "gossip", "keyring", "generate")
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(shown)); err != nil || len(raw) != gossip.KeyLen {
		t.Errorf("%q is no key: %v", shown, err)
	}

	key, err := readKey(first)
	if err != nil {
		t.Fatal(err)
	}
	next, err := readKey(second)
	if err != nil {
		t.Fatal(err)
	}
	a, b := gossip.DigestOf(key).String(), gossip.DigestOf(next).String()
	r := startReal(t, func(c *server.Config) { c.GossipKey = key })
	keyring := func(code int, args ...string) (out, errOut string) {
		t.Helper()
		out, errOut = (&cli{env: map[string]string{"LEASEHOLD_SERVER": r.srv.Addrs().GRPC}}).want(t, code, append([]string{"gossip", "keyring"}, args...)...)
		for _, k := range [][]byte{key, next} {
			if strings.Contains(out+errOut, base64.StdEncoding.EncodeToString(k)) || strings.Contains(out+errOut, string(k)) {
				t.Errorf("%v shows a key", args)
			}
		}
		return out, errOut
	}
	if out, _ := keyring(exitOK, "status", "--wait"); !strings.Contains(out, a+"*") || !strings.Contains(out, "yes*") {
		t.Errorf("status:\n%s", out)
	}
	if out, _ := keyring(exitOK, "add", "--key-file", second); !strings.Contains(out, "keyring use "+b) {
		t.Errorf("add: %s", out)
	}
	keyring(exitOK, "status", "--wait=30s")
	if _, errOut := keyring(exitRefused, "remove", a); !strings.Contains(errOut, "encrypted with it") {
		t.Errorf("remove: %s", errOut)
	}
	keyring(exitOK, "use", b)
	keyring(exitOK, "status", "--wait")
	keyring(exitOK, "remove", a)
	out, _ := keyring(exitOK, "status", "--wait", "-o", "json")
	var k struct {
		Keys    []struct{ Digest string }
		Members []struct{ UpToDate bool }
	}
	if err := json.Unmarshal([]byte(out), &k); err != nil || len(k.Keys) != 1 || k.Keys[0].Digest != b || len(k.Members) != 1 {
		t.Errorf("%v: %s", err, out)
	}
	if out, _ := keyring(exitOK, "add", "-o", "json"); !strings.Contains(out, b) {
		t.Errorf("add: %s", out)
	}
	for _, c := range []struct {
		code int
		args string
		want string
	}{
		{exitUsage, "use nonsense", "8 hexadecimal digits"},
		{exitUsage, "use", "DIGEST is missing"},
		{exitUsage, "use " + b + " --force", "--yes"},
		{exitUsage, "remove " + b + " --force", "--yes"},
		{exitUsage, "add --key-file " + writeFile(t, "AAAA\n"), "key of 3 bytes: want 16, 24 or 32"},
		{exitUsage, "add --key-file " + writeFile(t, "*\n"), "leasehold gossip keyring generate"},
	} {
		if _, errOut := keyring(c.code, strings.Fields(c.args)...); !strings.Contains(errOut, c.want) {
			t.Errorf("%s: %s, want it to say %q", c.args, errOut, c.want)
		}
	}
}

// Who has not followed is named, and scripts see it by the exit code.
func TestGossipKeyringStatusNamesWhoIsLate(t *testing.T) {
	k := &leaseholdv1.Keyring{
		Encrypted: true, Version: 2, Keys: []*leaseholdv1.GossipKey{{Digest: "0a0a0a0a", Primary: true}, {Digest: "0b0b0b0b"}},
		Members: []*leaseholdv1.KeyringMember{
			{Role: "server", Id: "s1", Status: "alive", Digests: []string{"0a0a0a0a", "0b0b0b0b"}, UpToDate: true},
			{Role: "worker", Id: "w1", Status: "unknown", Digests: []string{"0b0b0b0b"}},
		},
	}
	if late := notUpToDate(k); len(late) != 1 || late[0] != "worker w1" {
		t.Errorf("late: %v", late)
	}
	c := &cli{}
	e := c.asEnv()
	e.flags = &globals{}
	if err := showKeyring(e, k); err != nil {
		t.Fatal(err)
	}
	want := `ROLE    ID  GOSSIP   0a0a0a0a*  0b0b0b0b  UP-TO-DATE
server  s1  alive    yes*       yes       yes
worker  w1  unknown  no         yes*      no
`
	if got := c.stdout.String(); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	k.Encrypted = false
	if late := notUpToDate(k); late != nil {
		t.Errorf("in the clear nobody is late: %v", late)
	}
}
