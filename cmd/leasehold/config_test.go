package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func writeFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "leasehold.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// O-77: a number without a unit is refused everywhere, with a form that works.
func TestDurations(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration // -1: refused
	}{
		{"1500ms", 1500 * time.Millisecond}, {"10s", 10 * time.Second}, {"1h30m", 90 * time.Minute}, {"0s", 0}, {"1.5s", 1500 * time.Millisecond},
		{"600", -1}, {"5", -1}, {"5000", -1}, {"0", -1}, {"10.", -1}, {"-3s", -1}, {"1h30", -1}, {"2562048h", -1}, {"", -1}, {" 10s", -1},
		{"10 s", -1}, {"10S", -1}, {"1d", -1}, {"ten", -1}, {"1ns", -1}, {"100us", -1}, {"1s500us", -1},
	} {
		d, err := parseDuration(c.in)
		if c.want < 0 {
			if err == nil || !strings.Contains(err.Error(), "10s") && !strings.Contains(err.Error(), "millisecond") && !strings.Contains(err.Error(), "below 0") {
				t.Errorf("%q: got %v, %v; want a refusal with an example", c.in, d, err)
			}
			continue
		}
		if err != nil || d != c.want {
			t.Errorf("%q: got %v, %v; want %v", c.in, d, err, c.want)
		}
	}
	p := newPeer(t)
	file := writeFile(t, "timeout: 600\n")
	for _, c := range []struct {
		env  map[string]string
		args []string
		says string
	}{
		{nil, []string{"status", "--timeout", "600"}, "--timeout"},
		{map[string]string{"LEASEHOLD_TIMEOUT": "600"}, []string{"status"}, "LEASEHOLD_TIMEOUT"},
		{nil, []string{"status", "--config", file}, "timeout in " + file},
		{nil, []string{"keyspace", "create", "a", "--ttl", "600"}, "--ttl"},
		{nil, []string{"server", "--data-dir", "d", "--election-timeout", "500"}, "--election-timeout"},
	} {
		cmd := p.cli()
		for k, v := range c.env {
			cmd.env[k] = v
		}
		_, errOut := cmd.want(t, exitUsage, c.args...)
		if !strings.Contains(errOut, c.says) || !strings.Contains(errOut, "10s") {
			t.Errorf("%v: %s", c.args, errOut)
		}
	}
	if p.last() != nil {
		t.Error("something was sent all the same")
	}
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 10 * time.Second: "10s", 90 * time.Second: "1m30s", time.Minute: "1m", time.Hour: "1h", 10 * time.Minute: "10m",
		100 * time.Hour: "100h", 250 * time.Millisecond: "250ms", time.Hour + 30*time.Second: "1h0m30s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
		if back, err := parseDuration(want); err != nil || back != d {
			t.Errorf("%s does not read back: %v, %v", want, back, err)
		}
	}
}

// flag > environment > file > default.
func TestLayers(t *testing.T) {
	file := writeFile(t, "server: file:7400\noutput: wide\n")
	for _, c := range []struct {
		name           string
		env            map[string]string
		args           []string
		server, output string
	}{
		{"default", nil, nil, defaultServer, "table"},
		{"file", nil, []string{"--config", file}, "file:7400", "wide"},
		{"file named by the environment", map[string]string{"LEASEHOLD_CONFIG": file}, nil, "file:7400", "wide"},
		{"environment over file", map[string]string{"LEASEHOLD_SERVER": "env:7400"}, []string{"--config", file}, "env:7400", "wide"},
		{"flag over environment", map[string]string{"LEASEHOLD_SERVER": "env:7400", "LEASEHOLD_OUTPUT": "wide"}, []string{"--server", "flag:7400", "-o", "json"}, "flag:7400", "json"},
		{"empty environment is none", map[string]string{"LEASEHOLD_SERVER": ""}, nil, defaultServer, "table"},
	} {
		e := (&cli{env: c.env}).asEnv()
		root := newRootCommand(&e)
		root.SetArgs(append(c.args, "version"))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if e.flags.server != c.server || string(e.flags.output) != c.output {
			t.Errorf("%s: server %s, output %s", c.name, e.flags.server, e.flags.output)
		}
	}
}

func TestConfigFile(t *testing.T) {
	for content, want := range map[string]string{
		"servre: a:7400\n":                 `:1: unknown key "servre"`,
		"server: a:7400\ndata-dir: /x\n":   `:2: unknown key "data-dir", did you mean "data_dir"?`,
		"server: a:7400\nserver: b:7400\n": "",    // yaml itself or we say it
		"ttl: 10s\n":                       "ttl", // what one command is asked does not come from a file
		"yes: true\n":                      `unknown key "yes"`,
		"- server\n":                       "key: value",
		"server: {a: b}\n":                 "want a value",
		"server:\n":                        "has no value",
		"server: [a,\n":                    "read configuration",
		"output: xml\n":                    "want table, wide or json",
		"join: [\"a:1,b:2\"]\n":            "list of single values",
	} {
		file := writeFile(t, content)
		_, errOut := (&cli{}).want(t, exitUsage, "version", "--config", file)
		if !strings.Contains(errOut, want) || !strings.Contains(errOut, file) {
			t.Errorf("%q: %s", content, errOut)
		}
	}
	for _, content := range []string{"", "# nothing\n", "grpc_addr: 127.0.0.1:7400\njoin:\n  - 10.0.0.1:7402\n  - 10.0.0.2:7402\n"} {
		(&cli{}).want(t, exitOK, "version", "--config", writeFile(t, content))
	}
}

// A list in the file is what commas are on the command line.
func TestServerSettingsFromAllLayers(t *testing.T) {
	file := writeFile(t, "join: [10.0.0.2:7402, 10.0.0.3:7402]\nbootstrap_expect: 3\nelection_timeout: 700ms\ninitial_delay: 2s\nid: from-file\n")
	c := &cli{env: map[string]string{"LEASEHOLD_ID": "from-env", "LEASEHOLD_CONFIG": file}}
	e := c.asEnv()
	newRootCommand(&e) // gives e its flags
	var s serverFlags
	root := newRootCommand(&e)
	cmd, _, err := root.Find([]string{"server"})
	if err != nil {
		t.Fatal(err)
	}
	cmd.ResetFlags()
	s.define(cmd)
	if err := cmd.ParseFlags([]string{"--data-dir", "d", "--initial-delay", "3s"}); err != nil {
		t.Fatal(err)
	}
	if err := applyLayers(e, cmd); err != nil {
		t.Fatal(err)
	}
	cfg, err := s.config(e)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.ID != "from-env" || strings.Join(cfg.Join, " ") != "10.0.0.2:7402 10.0.0.3:7402" || cfg.BootstrapExpect != 3 ||
		cfg.ElectionTimeout != 700*time.Millisecond || cfg.InitialDelay != 3*time.Second || cfg.DataDir != "d" {
		t.Errorf("got %+v", cfg)
	}
	for flag, want := range map[string]string{"id": "LEASEHOLD_ID", "initial-delay": "--initial-delay", "join": "join in " + file + ":1", "grpc-addr": "default"} {
		if got := origin(cmd.Flags().Lookup(flag)); got != want {
			t.Errorf("origin of %s is %s, want %s", flag, got, want)
		}
	}
	s.logSettings(cfg.Logger)
	if out := c.stderr.String(); !strings.Contains(out, `"id":{"value":"from-env","from":"LEASEHOLD_ID"}`) {
		t.Errorf("the settings in effect are not told:\n%s", out)
	}
}

// O-34 for what a server listens on: refused, naming the flag, the value and a
// form that works, before anything is opened.
func TestServerAddressesAreRefusedClearly(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"--grpc-addr", "0.0.0.0:7400", "--advertise"},
		{"--grpc-addr", "7400", "host:port"},
		{"--raft-addr", "::1", "[::1]:7400"},
		{"--http-addr", "127.0.0.1:70000", "0 to 65535"},
		{"--gossip-addr", "10.0.0.1:7402", "--insecure"},
		{"--join", "0.0.0.0:7402", "10.0.0.1:7402"},
		{"--advertise", "0.0.0.0", "10.0.0.1"},
		{"--bootstrap-expect", "3", "--join"},
		{"--gossip-key-file", "/does/not/exist", "no such file"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		_, errOut := (&cli{}).want(t, exitUsage, "server", "--data-dir", dir, c.flag, c.value)
		if !strings.Contains(errOut, c.value) || !strings.Contains(errOut, c.want) {
			t.Errorf("%s %s: %s", c.flag, c.value, errOut)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s %s: the data directory was made", c.flag, c.value)
		}
	}
}

func TestGossipKeyIsNeverShown(t *testing.T) {
	file := writeFile(t, "c2VjcmV0c2VjcmV0c2Vj*\n")
	_, errOut := (&cli{}).want(t, exitUsage, "server", "--data-dir", "d", "--gossip-key-file", file)
	if strings.Contains(errOut, "c2Vj") || !strings.Contains(errOut, "base64") {
		t.Error(errOut)
	}
	file = writeFile(t, "c2VjcmV0\n")
	_, errOut = (&cli{}).want(t, exitUsage, "server", "--data-dir", "d", "--gossip-key-file", file)
	if strings.Contains(errOut, "secret") || !strings.Contains(errOut, "16, 24 or 32") {
		t.Error(errOut)
	}
}

// Keyspace and worker names reach the server as they were typed; whether they
// are allowed is for the one that stores them to say (O-79). So do keys (O-70).
func TestNamesAndKeysArePassedOnExactly(t *testing.T) {
	p := newPeer(t)
	for _, name := range []string{"", " ", "a/b", "/a", "..", "%2F", "#", "?", "\u00a0", "\u200f", "😀", strings.Repeat("x", 300), "a\nb", `"`, "-x"} {
		p.cli().want(t, exitOK, "keyspace", "create", "--", name)
		if got := p.last().(*leaseholdv1.CreateKeyspaceRequest).GetName(); got != name {
			t.Errorf("keyspace %q was sent as %q", name, got)
		}
		p.cli().want(t, exitOK, "workers", "undrain", "--", name)
		if got := p.last().(*leaseholdv1.UndrainWorkerRequest).GetId(); got != name {
			t.Errorf("worker %q was sent as %q", name, got)
		}
	}
	for _, key := range []string{"", "a\x00b", "\xff", "e\u0301", "\u00e9", "trailing ", "a/../b", "😀"} {
		p.cli().want(t, exitOK, "locate", "--", "orders", key)
		if got := string(p.last().(*leaseholdv1.LocateRequest).GetKey()); got != key {
			t.Errorf("key %q was sent as %q", key, got)
		}
	}
	p.cli().want(t, exitOK, "locate", "orders", "--hex", "00ff61")
	if got := string(p.last().(*leaseholdv1.LocateRequest).GetKey()); got != "\x00\xffa" {
		t.Errorf("hex key was sent as %q", got)
	}
}

func TestCreateDefaults(t *testing.T) {
	p := newPeer(t)
	p.cli().want(t, exitOK, "keyspace", "create", "orders")
	r := p.last().(*leaseholdv1.CreateKeyspaceRequest)
	if r.GetPartitions() != 256 || r.GetTtlMs() != 10_000 || r.GetTakeover() != leaseholdv1.Takeover_TAKEOVER_STRICT || r.InitialDelayMs != nil {
		t.Errorf("sent %v", r)
	}
	p.cli().want(t, exitOK, "keyspace", "set", "orders", "--ttl", "20s")
	u := p.last().(*leaseholdv1.UpdateKeyspaceRequest)
	if u.GetTtlMs() != 20_000 || u.Takeover != nil || u.Partitions != nil || u.HandoffTimeoutMs != nil || u.RestartGraceMs != nil || u.InitialDelayMs != nil {
		t.Errorf("sent %v, want the TTL alone", u)
	}
}
