package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// logged are the JSON lines with that message.
func logged(t *testing.T, log, msg string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(log) {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == msg {
			out = append(out, m)
		}
	}
	return out
}

func rewrite(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A real server: what can take effect does, what cannot is named, a bad file
// changes nothing, and a terminal that hangs up ends no server.
func TestServerReloads(t *testing.T) {
	m := newManager(t)
	settings := "bootstrap_expect: 1\nlog_level: info\nelection_timeout: 500ms\n"
	file := writeFile(t, settings)
	p := serve(t, file, []string{"NOTIFY_SOCKET=" + m.path, "LEASEHOLD_INITIAL_DELAY=2s"}, "--id", "s1", "--shutdown-timeout", "9s")
	m.until("STATUS=ready", 1)
	seed, tried := strangeSeed(t)
	reloads := 0
	reload := func(content string) (log string) {
		t.Helper()
		rewrite(t, file, content)
		before := len(p.stderr.String())
		p.cmd.Process.Signal(syscall.SIGHUP)
		reloads++
		m.until("READY=1", 1+reloads)
		until(t, "told", func() bool { return strings.Contains(p.stderr.String()[before:], "reloaded") })
		return p.stderr.String()[before:]
	}
	if strings.Contains(p.stderr.String(), `"level":"DEBUG"`) {
		t.Fatal("debug lines at info")
	}

	// What is wrong with it: the level may not be taken from it either.
	log := reload("bootstrap_expect: 1\nlog_level: debug\nelection_timeout: 700\nservre: a\n")
	refused := logged(t, log, "settings were not reloaded, nothing has changed")
	if len(refused) != 1 || refused[0]["level"] != "ERROR" || refused[0]["file"] != file {
		t.Fatalf("got:\n%s", log)
	}
	for _, want := range []string{"election_timeout in " + file + ":3", `unknown key "servre"`} {
		if text, _ := refused[0]["error"].(string); !strings.Contains(text, want) {
			t.Errorf("%q does not name %q", text, want)
		}
	}
	m.until("STATUS=ready; the last reload was refused", 1)

	log = reload(strings.Replace(settings, "500ms", "700ms", 1) + "join: [" + seed + "]\nshutdown_timeout: 1s\ninitial_delay: 3s\ngrpc_addr: 127.0.0.1:1\n")
	changed, restart := logged(t, log, "setting changed"), logged(t, log, "setting needs a restart")
	if len(changed) != 1 || changed[0]["key"] != "join" || changed[0]["old"] != "[]" || changed[0]["new"] != "["+seed+"]" || changed[0]["from"] != "join in "+file+":4" {
		t.Errorf("applied %v", changed)
	}
	// What the command line and the environment say is stronger than the file.
	if len(restart) != 1 || restart[0]["level"] != "WARN" || restart[0]["key"] != "election_timeout" || restart[0]["old"] != "500ms" || restart[0]["new"] != "700ms" {
		t.Errorf("needs a restart %v", restart)
	}
	if done := logged(t, log, "settings reloaded"); len(done) != 1 || done[0]["applied"] != 1.0 || done[0]["needs_restart"] != 1.0 {
		t.Errorf("told %v", done)
	}
	until(t, "the new seed is tried", func() bool { return tried.Load() > 0 })

	log = reload(strings.Replace(settings, "info", "debug", 1) + "join: [" + seed + "]\n")
	if changed := logged(t, log, "setting changed"); len(changed) != 1 || changed[0]["new"] != "debug" {
		t.Errorf("the level alone has changed, got:\n%s", log)
	}
	until(t, "debug lines on tries of the seed", func() bool { return strings.Contains(p.stderr.String(), `"level":"DEBUG"`) })

	// A change to warn is still told, then it is quiet.
	if log = reload(strings.Replace(settings, "info", "warn", 1)); len(logged(t, log, "setting changed")) != 2 {
		t.Errorf("the change to warn hides itself:\n%s", log)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	before := len(p.stderr.String())
	p.cmd.Process.Signal(syscall.SIGHUP)
	until(t, "told", func() bool { return strings.Contains(p.stderr.String()[before:], "no such file") })
	p.stop(t)
}

// strangeSeed accepts connections and closes them, and counts.
func strangeSeed(t *testing.T) (addr string, tried *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tried = new(atomic.Int64)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			tried.Add(1)
			conn.Close()
		}
	})
	t.Cleanup(func() { ln.Close(); done.Wait() })
	return ln.Addr().String(), tried
}

// applied is what reached the server.
type applied struct {
	joined [][]string
	loaded int
}

// reloading returns a reloader on flags as a server of these arguments has them.
func reloading(t *testing.T, c *cli, args ...string) (*reloader, *applied) {
	t.Helper()
	e := c.asEnv()
	root := newRootCommand(&e)
	cmd, _, err := root.Find([]string{"server"})
	if err != nil {
		t.Fatal(err)
	}
	cmd.ResetFlags()
	var s serverFlags
	s.define(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err := applyLayers(e, cmd); err != nil {
		t.Fatal(err)
	}
	cfg, err := s.config(e)
	if err != nil {
		t.Fatal(err)
	}
	a := &applied{}
	return &reloader{
		e: e, known: knownKeys(root), running: &s, key: cfg.GossipKey, log: cfg.Logger,
		setJoin: func(list []string) error {
			if slices.Contains(list, "refused:1") {
				return errors.New("no")
			}
			a.joined = append(a.joined, list)
			return nil
		},
		done: func(time.Time) { a.loaded++ },
	}, a
}

// All or nothing, wherever the fault is.
func TestReloadIsAllOrNothing(t *testing.T) {
	for name, content := range map[string]string{
		"syntax":         "log_level: debug\njoin: [10.0.0.2:7402]\n[",
		"unknown key":    "log_level: debug\njoin: [10.0.0.2:7402]\nx: y\n",
		"other value":    "log_level: debug\njoin: [10.0.0.2:7402]\ngrpc_addr: 7400\n",
		"contradiction":  "log_level: debug\njoin: [10.0.0.2:7402]\nhttp_addr: 127.0.0.1:7400\n",
		"level":          "log_level: loud\njoin: [10.0.0.2:7402]\n",
		"join":           "log_level: debug\njoin: [10.0.0.2]\n",
		"refused inside": "log_level: debug\njoin: [refused:1]\n",
		"key file":       "log_level: debug\njoin: [10.0.0.2:7402]\ngossip_key_file: /does/not/exist\n",
	} {
		file := writeFile(t, "log_level: info\n")
		c := &cli{}
		r, a := reloading(t, c, "--config", file, "--data-dir", "d")
		rewrite(t, file, content)
		if err := r.reload(); err == nil {
			t.Errorf("%s: reloaded", name)
		}
		if len(a.joined) != 0 || a.loaded != 0 || r.running.logs.level.v.Level() != slog.LevelInfo || len(r.running.cfg.Join) != 0 {
			t.Errorf("%s: half of it was applied: join %v, level %v", name, a.joined, r.running.logs.level.v.Level())
		}
		if log := c.stderr.String(); len(logged(t, log, "settings were not reloaded, nothing has changed")) != 1 || len(logged(t, log, "settings reloaded")) != 0 {
			t.Errorf("%s: told:\n%s", name, log)
		}
		// The next good one is taken.
		rewrite(t, file, "log_level: debug\njoin: [10.0.0.2:7402]\n")
		if err := r.reload(); err != nil || len(a.joined) != 1 || a.loaded != 1 || r.running.logs.level.v.Level() != slog.LevelDebug {
			t.Errorf("%s: then %v, join %v", name, err, a.joined)
		}
	}
}

// Every setting that differs is named, each by itself; those that are not
// reloadable again and again, since they are still not in effect.
func TestReloadNamesEveryChange(t *testing.T) {
	key := writeFile(t, "MDEyMzQ1Njc4OWFiY2RlZg==\n")
	other := map[string]string{
		"audit_log": "/var/log/leasehold/audit.log", "audit_log_bytes": "1000000", "audit_log_files": "3",
		"admin_addr": "127.0.0.1:7490", "advertise": "10.0.0.9", "bootstrap_expect": "1", "data_dir": "elsewhere", "election_timeout": "700ms",
		"gossip_addr": "127.0.0.1:1402", "gossip_key_file": key, "gossip_label": "other", "grpc_addr": "127.0.0.1:1400", "http_addr": "127.0.0.1:1480",
		"id": "s9", "initial_delay": "2s", "insecure": "true", "join": "[10.0.0.3:7402]", "log_format": "json", "log_level": "debug",
		"console":     "read",
		"quota_bytes": "2097152", "compact_age": "2h", "compact_revisions": "5000",
		"raft_addr": "127.0.0.1:1401", "shutdown_timeout": "11s", "token_floor": "7",
		"tls_cert_file": "c2.pem", "tls_key_file": "k2.pem", "tls_ca_file": "a2.pem", "tls_crl_file": "r2.pem",
		"max_connections": "9", "max_connections_per_address": "8", "max_handshakes": "7", "max_streams": "6", "max_request_bytes": "100000",
	}
	secure := []string{"tls_cert_file", "tls_key_file", "tls_ca_file"} // all or none
	all := &serverFlags{}
	all.flags(pflag.NewFlagSet("server", pflag.ContinueOnError))
	all.each(func(f *pflag.Flag) {
		name := fileKey(f.Name)
		value, ok := other[name]
		if !ok {
			t.Fatalf("setting %s is new: give another value here, and say in reloadable whether it takes effect", name)
		}
		base := "data_dir: d\n"
		for _, key := range secure {
			if strings.HasPrefix(name, "tls_") && key != name {
				base += key + ": f.pem\n"
			}
		}
		before := base
		if slices.Contains(secure, name) {
			before += name + ": f.pem\n"
		}
		file := writeFile(t, before)
		c := &cli{env: map[string]string{"LEASEHOLD_CONFIG": file}}
		r, _ := reloading(t, c)
		old := shown(r.running.set.Lookup(f.Name))
		content := base + name + ": " + value + "\n"
		if name == "data_dir" {
			content = name + ": " + value + "\n"
		}
		rewrite(t, file, content)
		for again := range 2 {
			before := len(c.stderr.String())
			if err := r.reload(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			log := c.stderr.String()[before:]
			changed, restart := logged(t, log, "setting changed"), logged(t, log, "setting needs a restart")
			told, wantChanged, wantRestart := append(changed, restart...), 0, 1
			if reloadable[f.Name] {
				wantChanged, wantRestart = 1-again, 0 // the second time it is in effect
			}
			if len(changed) != wantChanged || len(restart) != wantRestart {
				t.Errorf("%s: told %v", name, told)
				continue
			}
			for _, c := range told {
				from, _ := c["from"].(string)
				if c["key"] != name || c["new"] != value || c["old"] != old || !strings.HasPrefix(from, name+" in "+file) {
					t.Errorf("%s: told %v", name, c)
				}
			}
		}
	})
}

// Another key in the same file is a change too, and neither is shown.
func TestReloadSeesAnotherGossipKey(t *testing.T) {
	key := writeFile(t, "MDEyMzQ1Njc4OWFiY2RlZg==\n")
	c := &cli{env: map[string]string{"LEASEHOLD_GOSSIP_KEY_FILE": key}}
	r, _ := reloading(t, c, "--data-dir", "d")
	if err := r.reload(); err != nil || len(logged(t, c.stderr.String(), "setting needs a restart")) > 0 {
		t.Fatalf("%v:\n%s", err, c.stderr.String())
	}
	rewrite(t, key, "ZmVkY2JhOTg3NjU0MzIxMA==\n")
	if err := r.reload(); err != nil {
		t.Fatal(err)
	}
	restart := logged(t, c.stderr.String(), "setting needs a restart")
	if len(restart) != 1 || restart[0]["key"] != "gossip_key_file" || !strings.Contains(restart[0]["new"].(string), "another key") {
		t.Errorf("told %v", restart)
	}
	for _, secret := range []string{"MDEy", "ZmVk", "0123", "fedc"} {
		if strings.Contains(c.stderr.String(), secret) {
			t.Errorf("a key is shown:\n%s", c.stderr.String())
		}
	}
}
