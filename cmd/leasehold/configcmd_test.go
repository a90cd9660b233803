package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

func TestConfigCheckTellsWhereSettingsComeFrom(t *testing.T) {
	file := writeFile(t, "join: [10.0.0.2:7402]\nbootstrap_expect: 3\n")
	c := &cli{env: map[string]string{"LEASEHOLD_ID": "s1"}}
	out, _ := c.want(t, exitOK, "config", "check", "--config", file, "--data-dir", filepath.Join(t.TempDir(), "new"))
	if !strings.Contains(out, "1 from flags, 1 from the environment, 2 from "+file) {
		t.Error(out)
	}
}

// Every fault of all four layers at once, each with its place.
func TestConfigCheckNamesEveryFaultAtOnce(t *testing.T) {
	file := writeFile(t, `servre: a:7400
data-dir: /x
grpc_addr: "7400"
insecure: yes
election_timeout: 600
initial_delay: 9s
gossip_key: c2VjcmV0c2VjcmV0c2VjcmV0
initial_delay: 1s
raft_addr: {a: b}
`)
	key := writeFile(t, "c2VjcmV0\n")
	c := &cli{env: map[string]string{"LEASEHOLD_BOOTSTRAP_EXPECT": "three", "LEASEHOLD_GOSSIP_KEY_FILE": key, "LEASEHOLD_LOG_LEVEL": "loud"}}
	_, errOut := c.want(t, exitUsage, "config", "check", "--config", file, "--shutdown-timeout", "10", "--token-floor", "-1", "--join", "0.0.0.0:7402")
	for _, want := range []string{
		file + `:1: unknown key "servre"`,
		file + `:2: unknown key "data-dir", did you mean "data_dir"?`,
		"grpc_addr in " + file + `:3 "7400": want host:port`,
		"insecure in " + file + `:4 "yes": want true or false`,
		"election_timeout in " + file + `:5: "600" ends without a unit`,
		"initial_delay in " + file + `:6 "9s": want 0s to 5s`,
		file + `:7: unknown key "gossip_key"`,
		file + `:8: key "initial_delay" is there twice, first in line 6`,
		file + `:9: key "raft_addr": want a value`,
		`LEASEHOLD_BOOTSTRAP_EXPECT "three": want a whole number`,
		`LEASEHOLD_GOSSIP_KEY_FILE: a key of 6 bytes: want 16, 24 or 32`,
		`LEASEHOLD_LOG_LEVEL "loud": want debug, info, warn or error`,
		`--shutdown-timeout: "10" ends without a unit`,
		`--token-floor "-1": want a whole number`,
		`--join "0.0.0.0:7402": a wildcard`,
		"--data-dir is missing",
	} {
		if !strings.Contains(errOut, want) {
			t.Errorf("does not say %q", want)
		}
	}
	if !strings.Contains(errOut, "16 faults:") || strings.Contains(errOut, "c2Vj") || strings.Contains(errOut, "secret") {
		t.Errorf("got:\n%s", errOut)
	}
	// A server says the same, and does not start.
	_, errOut = (&cli{env: c.env}).want(t, exitUsage, "server", "--config", file)
	for _, want := range []string{`unknown key "servre"`, "want host:port", `"three"`, "--data-dir is missing"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("server does not say %q:\n%s", want, errOut)
		}
	}
}

func TestConfigCheckForPrograms(t *testing.T) {
	file := writeFile(t, "election_timeout: 600\nservre: a\n")
	out, errOut := (&cli{}).want(t, exitUsage, "config", "check", "--config", file, "--data-dir", t.TempDir(), "-o", "json")
	var got struct{ Items []faultItem }
	if err := json.Unmarshal([]byte(out), &got); err != nil || errOut != "" {
		t.Fatalf("%v in %s%s", err, out, errOut)
	}
	if len(got.Items) != 2 || got.Items[0].Key != "servre" || got.Items[0].From != file+":2" ||
		got.Items[1].Key != "election_timeout" || got.Items[1].Value != "600" || got.Items[1].From != "election_timeout in "+file+":1" {
		t.Errorf("got %+v", got.Items)
	}
	out, _ = (&cli{}).want(t, exitOK, "config", "check", "--data-dir", t.TempDir(), "-o", "json")
	if strings.Join(strings.Fields(out), "") != `{"items":[]}` {
		t.Error(out)
	}
}

// What can be seen without starting: directory, stored id, key file, ports.
func TestConfigCheckLooksAround(t *testing.T) {
	file := writeFile(t, "x")
	owned := t.TempDir()
	if err := os.WriteFile(filepath.Join(owned, "server-id"), []byte("s1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := writeFile(t, "MDEyMzQ1Njc4OWFiY2RlZg==\n")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	for _, c := range []struct {
		args []string
		want []string // none: good
	}{
		{[]string{"--data-dir", filepath.Join(t.TempDir(), "a", "b")}, nil},
		{[]string{"--data-dir", file}, []string{"--data-dir", file, "is not a directory"}},
		{[]string{"--data-dir", filepath.Join(file, "sub")}, []string{"--data-dir", "not a directory"}},
		{[]string{"--data-dir", owned}, nil},
		{[]string{"--data-dir", owned, "--id", "s1"}, nil},
		{[]string{"--data-dir", owned, "--id", "s2"}, []string{`--id "s2"`, owned, `belongs to server "s1"`}},
		{[]string{"--data-dir", owned, "--gossip-key-file", open}, []string{"--gossip-key-file", open, "chmod"}},
		{[]string{"--data-dir", owned, "--http-addr", taken}, nil}, // it may be this very server that runs
		{[]string{"--data-dir", owned, "--http-addr", taken, "--bind", "--grpc-addr", "127.0.0.1:0", "--raft-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0"}, []string{"--http-addr", taken, "in use"}},
	} {
		code := exitOK
		if len(c.want) > 0 {
			code = exitUsage
		}
		_, errOut := (&cli{}).want(t, code, append([]string{"config", "check"}, c.args...)...)
		for _, want := range c.want {
			if !strings.Contains(errOut, want) {
				t.Errorf("%v does not say %q:\n%s", c.args, want, errOut)
			}
		}
	}
	if os.Getuid() != 0 { // root may write anywhere
		shut := t.TempDir()
		if err := os.Chmod(shut, 0o500); err != nil {
			t.Fatal(err)
		}
		_, errOut := (&cli{}).want(t, exitUsage, "config", "check", "--data-dir", filepath.Join(shut, "new"))
		if !strings.Contains(errOut, shut+" cannot be written to") {
			t.Error(errOut)
		}
	}
	if entries, err := os.ReadDir(owned); err != nil || len(entries) != 1 {
		t.Errorf("the check left %v in the directory (%v)", entries, err)
	}
}

// A certificate with which server would not start is a fault, and so is a key that
// everybody on the machine can read.
func TestConfigCheckReadsCertificates(t *testing.T) {
	a, other := pkitest.New(t), pkitest.NewFor(t, "other")
	s1, s2, alice := a.Server("s1"), a.Server("s2"), a.Operator("alice")
	expired, foreign := a.Expired(pki.Name{Cluster: pkitest.Cluster, Role: access.Server, Name: "s1"}), other.Server("s1")
	loose := a.Server("s1")
	if err := os.Chmod(loose.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		tls  pki.Files
		want []string // none: good
	}{
		{"good", s1, nil},
		{"of another server", s2, []string{"--tls-cert-file", `of server "s2"`, `is server "s1"`}},
		{"of an operator", alice, []string{"--tls-cert-file", alice.Cert, "operator"}},
		{"expired", expired, []string{"--tls-cert-file", expired.Cert, "expired"}},
		{"of another authority", pki.Files{Cert: foreign.Cert, Key: foreign.Key, CA: s1.CA}, []string{"--tls-cert-file", foreign.Cert}},
		{"with another's key", pki.Files{Cert: s1.Cert, Key: s2.Key, CA: s1.CA}, []string{s2.Key, "is not the key of"}},
		{"key that is not there", pki.Files{Cert: s1.Cert, Key: s1.Key + ".gone", CA: s1.CA}, []string{s1.Key + ".gone", "no such file"}},
		{"key for everybody", loose, []string{"--tls-key-file", loose.Key, "chmod o-rwx"}},
	} {
		code := exitOK
		if len(c.want) > 0 {
			code = exitUsage
		}
		_, errOut := (&cli{}).want(t, code, "config", "check", "--data-dir", t.TempDir(), "--id", "s1",
			"--tls-cert-file", c.tls.Cert, "--tls-key-file", c.tls.Key, "--tls-ca-file", c.tls.CA)
		for _, want := range c.want {
			if !strings.Contains(errOut, want) {
				t.Errorf("%s: does not say %q:\n%s", c.name, want, errOut)
			}
		}
	}
}

// print → file → print is the same, whatever the values.
func TestConfigPrintReadsBack(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "printed.yaml")
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.StringOf(rapid.RuneFrom([]rune("ab01:#-,'\"\\ {}[]&*!|>%@`~\t\n\u0085\u2028ż"))),
			rapid.SampledFrom([]string{"true", "no", "null", "~", "012", "1e3", "0x10", "2024-01-01", "", " ", "- a", "? b", ": c", "<<", "=", ".inf"}))
		span := rapid.SampledFrom([]string{"0s", "100ms", "1m30s", "10s", "1h", "1500ms"})
		env := map[string]string{}
		for _, name := range []string{"ID", "DATA_DIR", "ADVERTISE", "GRPC_ADDR", "HTTP_ADDR", "GOSSIP_LABEL", "GOSSIP_KEY_FILE"} {
			env["LEASEHOLD_"+name] = text.Draw(rt, name)
		}
		for _, name := range []string{"ELECTION_TIMEOUT", "INITIAL_DELAY", "SHUTDOWN_TIMEOUT"} {
			env["LEASEHOLD_"+name] = span.Draw(rt, name)
		}
		env["LEASEHOLD_JOIN"] = strings.Join(rapid.SliceOf(rapid.StringMatching(`[a-z0-9.:\[\]{}#&* -]{1,12}`)).Draw(rt, "join"), ",")
		env["LEASEHOLD_TOKEN_FLOOR"] = rapid.SampledFrom([]string{"0", "18446744073709551615"}).Draw(rt, "floor")
		env["LEASEHOLD_INSECURE"] = rapid.SampledFrom([]string{"true", "false", "1", "F"}).Draw(rt, "insecure")
		env["LEASEHOLD_LOG_LEVEL"] = rapid.SampledFrom([]string{"debug", "WARN", "info+2"}).Draw(rt, "level")
		first, _ := (&cli{env: env}).want(t, exitOK, "config", "print")
		if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
			rt.Fatal(err)
		}
		second, _ := (&cli{}).want(t, exitOK, "config", "print", "--config", file)
		if first != second {
			rt.Fatalf("printed:\n%s\nread back:\n%s", first, second)
		}
	})
}

// With --origin too it is a file, and says flag, variable, line and default.
func TestConfigPrintOrigin(t *testing.T) {
	file := writeFile(t, "# mine\njoin:\n  - 10.0.0.2:7402\n  - 10.0.0.3:7402\nid: from-file\n")
	args := []string{"config", "print", "--origin", "--config", file, "--initial-delay", "2s"}
	c := &cli{env: map[string]string{"LEASEHOLD_ID": "from-env"}}
	out, _ := c.want(t, exitOK, args...)
	golden(t, "config-origin.txt", strings.ReplaceAll(out, file, "FILE"))
	again, _ := (&cli{}).want(t, exitOK, "config", "print", "--config", writeFile(t, out))
	var a, b map[string]any
	if err := yaml.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(again), &b); err != nil {
		t.Fatal(err)
	}
	for key, v := range a {
		if x, _ := json.Marshal(v); true {
			if y, _ := json.Marshal(b[key]); string(x) != string(y) {
				t.Errorf("%s: %s, read back %s", key, x, y)
			}
		}
	}

	out, _ = (&cli{env: c.env}).want(t, exitOK, append(args, "-o", "json")...)
	var list struct{ Items []settingItem }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	from := map[string]string{}
	for _, i := range list.Items {
		from[i.Key] = i.From
		if i.Help == "" || i.Env == "" || i.Flag == "" {
			t.Errorf("not documented: %+v", i)
		}
	}
	if len(list.Items) != len(a) || from["id"] != "LEASEHOLD_ID" || from["join"] != "join in "+file+":2" || from["initial_delay"] != "--initial-delay" || from["grpc_addr"] != "default" {
		t.Errorf("got %v", from)
	}
}

// Neither a key nor what looks like one is ever shown.
func TestConfigNeverShowsAKey(t *testing.T) {
	const key = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
	file := writeFile(t, key+"\n")
	for _, args := range [][]string{
		{"config", "print"}, {"config", "print", "--origin"}, {"config", "print", "-o", "json"},
		{"config", "check"}, {"config", "check", "-o", "json"}, {"server"},
	} {
		for _, value := range []string{file, key} {
			if args[0] == "server" && value == file {
				continue // it would start
			}
			c := &cli{env: map[string]string{"LEASEHOLD_GOSSIP_KEY_FILE": value, "LEASEHOLD_DATA_DIR": filepath.Join(t.TempDir(), "d")}}
			c.run(t, args...)
			out := c.stdout.String() + c.stderr.String()
			if strings.Contains(out, "c2Vj") || strings.Contains(out, "secret") {
				t.Errorf("%v shows the key:\n%s", args, out)
			}
			if value == key && args[1%len(args)] != "print" && !strings.Contains(out, "looks like a key") {
				t.Errorf("%v does not say what is wrong:\n%s", args, out)
			}
			if value == file && args[1] == "print" && !strings.Contains(out, file) {
				t.Errorf("%v does not show the path:\n%s", args, out)
			}
		}
	}
}

// O-77 for what YAML itself lets pass: two documents, a huge file, a wrong one.
func TestConfigFileAsAWhole(t *testing.T) {
	for content, want := range map[string]string{
		"id: a\n---\nid: b\n":               "second document",
		"id: a\n---\n[\n":                   "second document",
		strings.Repeat("# aaaaaa\n", 1<<18): "above the limit of 1048576 bytes",
		"id: &x a\ndata_dir: *x\n":          "want a value",
		"id: a\n\tdata_dir: b\n":            "read configuration",
	} {
		if _, errOut := (&cli{}).want(t, exitUsage, "config", "check", "--config", writeFile(t, content)); !strings.Contains(errOut, want) {
			t.Errorf("%.40q: %s", content, errOut)
		}
	}
	if _, errOut := (&cli{}).want(t, exitUsage, "config", "check", "--config", t.TempDir()); !strings.Contains(errOut, "is a directory") {
		t.Error(errOut)
	}
}

// A file that cannot be read may well have what is missing: only the cause is
// told.
func TestConfigCheckOfBrokenFileTellsTheCause(t *testing.T) {
	for name, text := range map[string]string{"no YAML": "data_dir: /d\n  join: [\n", "a list": "- data_dir: /d\n", "two": "data_dir: /d\n---\nid: s1\n"} {
		file := put(t, filepath.Join(t.TempDir(), "leasehold.yaml"), []byte(text))
		for _, command := range []string{"config check", "server"} {
			_, errOut := (&cli{}).want(t, exitUsage, append(strings.Fields(command), "--config", file)...)
			if !strings.Contains(errOut, "read configuration "+file) || strings.Contains(errOut, "--data-dir is missing") {
				t.Errorf("%s: %s:\n%s", name, command, errOut)
			}
		}
	}
	if _, errOut := (&cli{}).want(t, exitUsage, "config", "check", "--config", put(t, filepath.Join(t.TempDir(), "f"), nil)); !strings.Contains(errOut, "--data-dir is missing") {
		t.Errorf("an empty file: %s", errOut)
	}
}
