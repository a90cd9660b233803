package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// unpack reads an archive, by name below its directory.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: mode %v, %v", file, info.Mode(), err)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		if _, twice := files[name]; twice || h.Mode != 0o600 {
			t.Errorf("%s: there twice, or mode %o", h.Name, h.Mode)
		}
		files[name] = string(data)
	}
}

// The archive has what helps, and no secret, whatever way it
// might have got there. One interrupted has what it has.
func TestDebugArchive(t *testing.T) {
	t.Parallel()
	const password, envSecret, labelSecret = "pa55word-of-the-url", "value-of-the-environment", "value-of-a-label"
	key := []byte("0123456789abcdef0123456789abcdef")
	dir := t.TempDir()
	keyFile := filepath.Join(dir, "gossip.key")
	if err := os.WriteFile(keyFile, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.StartServers(processGroup(t), dir, specs(3, "LEASEHOLD_GOSSIP_KEY_FILE="+keyFile, "DB_PASSWORD="+envSecret))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := func() *cli { return &cli{env: map[string]string{"LEASEHOLD_SERVER": c.Addrs()}} }
	at().want(t, exitOK, "keyspace", "create", "orders", "--partitions", "4", "--initial-delay", "0s")
	guardedWorker(t, c.Addrs(), "w1", "orders", func(cfg *worker.Config) {
		cfg.Gossip, cfg.Endpoint = worker.GossipOff, "http://app:"+password+"@10.0.0.1:9000"
		cfg.Labels = map[string]string{"password": labelSecret, "note": envSecret, "blob": base64.StdEncoding.EncodeToString(key), "rack": "kept"}
	})
	eventually(t, c.Addrs(), "OK - 0 partitions", "check", "unowned", "--keyspace", "orders")
	dead := c.Servers()[2]
	if err := c.Kill(dead); err != nil {
		t.Fatal(err)
	}
	eventually(t, c.Addrs(), "ready        yes", "status", "--wait")

	file := filepath.Join(dir, "x.tar.gz")
	_, errOut := at().want(t, exitOK, "debug", "--duration", "300ms", "--profile", "-O", file)
	if !strings.Contains(errOut, "server "+dead.ID) {
		t.Errorf("nothing is said of the dead server: %s", errOut)
	}
	files := unpack(t, file)
	for name, text := range files {
		if strings.HasSuffix(name, ".pprof") {
			z, err := gzip.NewReader(strings.NewReader(text))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			raw, _ := io.ReadAll(z)
			text = string(raw)
		}
		for _, secret := range []string{password, envSecret, labelSecret, string(key), base64.StdEncoding.EncodeToString(key)} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q", name, secret)
			}
		}
	}
	for _, server := range []string{"s1", "s2"} {
		for name, want := range map[string]string{
			"goroutines.txt": "goroutine ", "metrics.prom": "leasehold_raft_term", "end/metrics.prom": "leasehold_raft_term", "log.jsonl": `"msg":"settings"`,
			"status.json": `"server_id"`, "health.json": `"boot_clock_ns"`, "peers.json": `"s3"`, "members.json": `"s3"`, "keyspaces.json": `"orders"`,
			"workers.json": "kept", "partitions.json": `"w1": 4`, "events.json": `"grant"`, "config.json": "32 bytes, not shown", "build.json": `"go"`, "heap.pprof": "", "cpu.pprof": "",
		} {
			if text, ok := files[server+"/"+name]; !ok || !strings.Contains(text, want) {
				t.Errorf("%s/%s: there %v, no %q in it", server, name, ok, want)
			}
		}
	}
	if !strings.Contains(files["doctor.json"], "server_") {
		t.Errorf("doctor.json: %s", files["doctor.json"])
	}
	var m debugManifest
	if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil {
		t.Fatal(err)
	}
	redactions := 0
	for _, f := range m.Servers[0].Files {
		redactions += f.Redacted
		if got, ok := files["s1/"+f.Name]; !ok || len(got) != f.Bytes {
			t.Errorf("manifest: %s has %d bytes, it says %d", f.Name, len(got), f.Bytes)
		}
	}
	if m.Interrupted || len(m.Servers) != 3 || m.Servers[2].Error == "" || redactions < 3 || m.Redaction == "" {
		t.Errorf("manifest: %s", files["manifest.json"])
	}

	// A file that is there is not written over.
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at().want(t, exitUsage, "debug", "--duration", "0s", "-O", file)
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the archive was changed: %v", err)
	}

	// Interrupted.
	ctx, interrupt := context.WithCancelCause(t.Context())
	cmd := at()
	cmd.ctx, cmd.terminal = ctx, true
	half := filepath.Join(dir, "half.tar.gz")
	ended := make(chan int, 1)
	go func() { ended <- cmd.run(t, "debug", "--duration", "5m", "-O", half) }()
	// One server has about a dozen of them before the wait.
	waitFor(t, "the first files of both", func() bool { return regexp.MustCompile(`2\d files`).MatchString(cmd.stderr.String()) })
	interrupt(&signalError{syscall.SIGINT})
	if code := <-ended; code != 128+int(syscall.SIGINT) {
		t.Errorf("interrupted: exit %d\n%s", code, cmd.stderr.String())
	}
	files = unpack(t, half)
	if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil || !m.Interrupted || !strings.Contains(files["s1/status.json"], "server_id") {
		t.Errorf("interrupted: %v, %v", err, m)
	}
}

// A server gives names of files; they must not leave the archive's directory.
func TestNamesInArchivesStayBelow(t *testing.T) {
	for name, want := range map[string]string{
		"a/b.txt": "a/b.txt", "../../etc/passwd": "_/_/etc/passwd", "/abs": "_/abs", "a\\b": "a_b", "": "_", "a/\x1b[2J": "a/_[2J",
	} {
		if got := safePath(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}
