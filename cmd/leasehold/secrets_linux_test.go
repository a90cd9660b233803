package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// planted are secrets with their spellings, and the places where they were looked
// for.
type planted struct {
	t       *testing.T
	secrets map[string][]string
	places  map[string]int // bytes, by place
}

// file plants what is in a file of a token, a key in base64 or PEM.
func (p *planted) file(what, name string) (text string) {
	p.t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		p.t.Fatal(err)
	}
	text = strings.TrimSpace(string(raw))
	needle := text
	if lines := strings.Split(text, "\n"); len(lines) > 2 {
		needle = lines[1] // of PEM, whose first is the same in all
	}
	p.plant(what, needle)
	return text
}

// plant also looks for what the text stands for, in the encodings that a log or an
// answer could have it in. Parts will do: nobody writes only the beginning.
func (p *planted) plant(what, text string) {
	half := text[len(text)/2:]
	forms := []string{half, base64.StdEncoding.EncodeToString([]byte(text))[8:32], hex.EncodeToString([]byte(text))[8:40]}
	if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
		forms = append(forms, hex.EncodeToString(raw)[8:40], string(raw), fmt.Sprint(raw)[1:40])
	}
	if _, secret, err := access.ParseToken(text); err == nil {
		forms = append(forms, hex.EncodeToString(secret)[8:40], string(secret), fmt.Sprint(secret)[1:40])
	}
	p.secrets[what] = forms
}

// find returns which secrets are in a text.
func (p *planted) find(text string) (found []string) {
	for _, what := range slices.Sorted(maps.Keys(p.secrets)) {
		if slices.ContainsFunc(p.secrets[what], func(form string) bool { return strings.Contains(text, form) }) {
			found = append(found, what)
		}
	}
	return found
}

func (p *planted) look(place, text string) {
	p.t.Helper()
	p.places[place] += len(text)
	if found := p.find(text); len(found) > 0 {
		p.t.Errorf("%s shows %s", place, strings.Join(found, ", "))
	}
}

// processes looks at what everybody on the machine can read, or the user, of all
// that this test has started.
func (p *planted) processes() {
	p.t.Helper()
	parent := map[int]int{}
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, name := range entries {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		stat, _ := os.ReadFile(name) // it may have ended
		if at := bytes.LastIndexByte(stat, ')'); at > 0 {
			if fields := strings.Fields(string(stat[at+1:])); len(fields) > 1 {
				parent[pid], _ = strconv.Atoi(fields[1])
			}
		}
	}
	ours := func(pid int) bool {
		for range 64 {
			if pid = parent[pid]; pid == os.Getpid() {
				return true
			}
		}
		return false
	}
	for pid := range parent {
		if !ours(pid) {
			continue
		}
		for _, what := range []string{"cmdline", "environ"} {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, what))
			p.look("the "+what+" of processes", string(text))
		}
	}
}

// mistakes are commands that fail since a secret stands in a wrong place, or a wrong
// secret in the right one. What was typed is seen by whoever typed it, and by nobody
// who reads what was said about it.
func (p *planted) mistakes(f *fortress, token, gossipKey string, worker pki.Files) {
	p.t.Helper()
	ca := map[string]string{"LEASEHOLD_SERVER": f.Addrs(), "LEASEHOLD_TLS_CA_FILE": f.security.CA()}
	keyText := p.file("a worker's key", worker.Key)
	for i, x := range []struct {
		env  map[string]string
		args []string
	}{
		{nil, []string{"server", "--data-dir", p.t.TempDir(), "--gossip-key-file", gossipKey}},
		{nil, []string{"server", "--data-dir", p.t.TempDir(), "--gossip-key-file", worker.Key}},
		{nil, []string{"server", "--data-dir", p.t.TempDir(), "--tls-key-file", keyText, "--tls-cert-file", worker.Cert, "--tls-ca-file", worker.CA}},
		{nil, []string{"server", "--data-dir", p.t.TempDir(), "--tls-key-file", worker.Key, "--tls-cert-file", worker.Key, "--tls-ca-file", worker.Key}},
		{nil, []string{"config", "check", "--data-dir", p.t.TempDir(), "--gossip-key-file", gossipKey, "--tls-key-file", worker.Key, "--tls-cert-file", token, "--tls-ca-file", token}},
		{ca, []string{"status", "--credential-file", token}},
		{ca, []string{"status", "--credential-file", worker.Key}},
		{ca, []string{"status", "--tls-cert-file", worker.Key, "--tls-key-file", worker.Key}},
		{ca, []string{"credential", "revoke", token, "--yes"}},
		{ca, []string{"tls", "inspect", worker.Key}},
		{ca, []string{"gossip", "keyring", "use", gossipKey}},
		{map[string]string{"LEASEHOLD_SERVER": "user:" + token + "@127.0.0.1:1"}, []string{"status", "--timeout", "1s"}},
		{map[string]string{"LEASEHOLD_CREDENTIAL_FILE": token}, []string{"status"}},
		{map[string]string{"LEASEHOLD_GOSSIP_KEY": gossipKey, "LEASEHOLD_CREDENTIAL": token}, []string{"status", "--timeout", "1s"}},
	} {
		c := &cli{env: map[string]string{}}
		maps.Copy(c.env, x.env)
		ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
		c.ctx = ctx
		if code := c.run(p.t, x.args...); code == exitOK {
			p.t.Errorf("mistake %d, %s, passes", i, x.args[0])
		}
		cancel()
		p.look(fmt.Sprintf("the answer to mistake %d, of %s", i, x.args[0]), c.stdout.String()+c.stderr.String())
	}
}

// requests asks the HTTP port for all that it shows, and shows it secrets.
func (p *planted) requests(f *fortress, token string) {
	p.t.Helper()
	cfg, err := pki.Client(f.operator)
	if err != nil {
		p.t.Fatal(err)
	}
	stranger := cfg.Clone()
	stranger.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil }
	send := func(cfg *tls.Config, method, path, body string, header ...string) string {
		p.t.Helper()
		ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, "https://"+f.Servers()[0].HTTPAddr+path, strings.NewReader(body))
		if err != nil {
			p.t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		transport := &http.Transport{TLSClientConfig: cfg}
		defer transport.CloseIdleConnections()
		resp, err := transport.RoundTrip(r)
		if err != nil {
			p.t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // the feed has no end but the context's
		return fmt.Sprintf("%d %v\n%s", resp.StatusCode, resp.Header, text)
	}
	for _, path := range []string{"/", "/metrics", "/version", "/readyz", "/ui/", "/ui/feed"} {
		p.look("GET "+path, send(cfg, "GET", path, ""))
	}
	for _, call := range []string{"CredentialService/ListCredentials", "ClusterService/GetStatus", "GossipService/GetKeyring", "ClusterService/GetHealth"} {
		p.look("POST "+call, send(cfg, "POST", "/leasehold.v1."+call, "{}"))
	}
	wrong := access.Token("zzzzzzzzzzzz", bytes.Repeat([]byte("wrong-secret-of-"), 2))
	p.plant("a wrong token", wrong)
	p.plant("a wrong password", "a-password-that-somebody-has-typed")
	for _, header := range []string{"Bearer " + wrong, "Bearer " + token, token, "Basic " + base64.StdEncoding.EncodeToString([]byte("batch:"+token)), "Basic " + base64.StdEncoding.EncodeToString([]byte("batch:a-password-that-somebody-has-typed"))} {
		p.look("a login at /metrics", send(stranger, "GET", "/metrics", "", "Authorization", header))
		p.look("a login at a call", send(stranger, "POST", "/leasehold.v1.PartitionService/ListPartitions", `{"keyspace":"jobs"}`, "Authorization", header))
		p.look("a login at etcd's gateway", send(stranger, "POST", "/v3/kv/range", `{"key":"YQ=="}`, "Authorization", header))
	}
	p.look("a wrong login of etcd's", send(stranger, "POST", "/v3/auth/authenticate", `{"name":"batch","password":"a-password-that-somebody-has-typed"}`))
	send(stranger, "POST", "/v3/auth/authenticate", `{"name":"batch","password":"`+token+`"}`) // its answer is a token: for who asked
	// A secret in place of something that is told of.
	p.look("a token as a name", send(cfg, "POST", "/leasehold.v1.CredentialService/RevokeCredential", `{"credential":"`+token+`"}`))
	p.look("a token in a path", send(cfg, "GET", "/leasehold.v1.ClusterService/"+token[:8], ""))
}

// authority makes one as people do, and plants its key.
func (p *planted) authority() {
	p.t.Helper()
	dir := filepath.Join(p.t.TempDir(), "pki")
	said := ""
	for _, args := range [][]string{{"tls", "ca", "create", "--dir", dir}, {"tls", "issue", "--dir", dir, "--role", "worker", "w1", "-o", "json"}, {"tls", "revoke", "--dir", dir, "--yes", filepath.Join(dir, "w1.pem")}} {
		var c cli
		if code := c.run(p.t, args...); code != exitOK {
			p.t.Fatalf("%v: exit code %d\n%s", args, code, c.stderr.String())
		}
		said += c.stdout.String() + c.stderr.String()
	}
	p.file("the authority's key", filepath.Join(dir, "ca-key.pem"))
	p.file("a key that was issued", filepath.Join(dir, "w1-key.pem"))
	p.look("what is said of the authority", said)
}

// drawn draws a gossip key, plants it and has everybody encrypt with it.
func (p *planted) drawn(f *fortress) {
	p.t.Helper()
	out, said := f.want(exitOK, "gossip", "keyring", "add", "-o", "json")
	p.look("gossip keyring add", out+said)
	// Until the workers have been told of it as well.
	f.want(exitOK, "gossip", "keyring", "status", "--wait", "--timeout", "60s")
	var key string
	waitFor(p.t, "a server to keep the key that was drawn", func() bool {
		text, err := os.ReadFile(filepath.Join(f.data(f.Servers()[0]), "gossip-keyring"))
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		key = lines[len(lines)-1]
		return err == nil && len(lines) == 4 && len(p.find(lines[2])) == 1 && len(p.find(key)) == 0 && len(key) == 44
	})
	p.plant("a gossip key that was drawn", key)
	var keyring struct{ Keys []struct{ Digest string } }
	if err := json.Unmarshal([]byte(out), &keyring); err != nil || len(keyring.Keys) != 2 {
		p.t.Fatalf("%v\n%s", err, out)
	}
	out, said = f.want(exitOK, "gossip", "keyring", "use", keyring.Keys[1].Digest)
	p.look("gossip keyring use", out+said)
}

// A cluster with certificates at debug level, a worker with one and a worker with a
// credential: whatever it writes, shows, says about mistakes, or passes on to
// processes, its secrets are in none of that.
func TestPlantedSecretsAreSeenNowhere(t *testing.T) {
	f := newFortress(t, 2, "LEASEHOLD_LOG_LEVEL=debug")
	p := &planted{t: t, secrets: map[string][]string{}, places: map[string]int{}}
	gossipKey := p.file("the gossip key", filepath.Join(f.dir, "pki", "gossip.key"))
	p.file("a server's key", filepath.Join(f.dir, "pki", "server-s1-key.pem"))
	p.file("the operator's key", f.operator.Key)
	p.authority()

	f.want(exitOK, "keyspace", "create", "jobs", "--partitions", "2", "--ttl", "4s", "--initial-delay", "0s")
	file := filepath.Join(f.dir, "batch.token")
	f.want(exitOK, "credential", "create", "batch", "--role", "worker", "--keyspace", "jobs", "--key-prefix", "/batch/", "--out", file)
	token := p.file("a credential", file)
	text, err := os.ReadFile(file)
	if err != nil || len(p.find(string(text))) != 1 {
		t.Fatal("a secret is not found where it is", err)
	}

	work := `touch "` + f.dir + `/at-$LEASEHOLD_OWNER.$LEASEHOLD_PARTITION"; exec sleep 300`
	w1 := f.issue(access.Worker, "w1")
	p.file("a worker's key", w1.Key)
	first := f.sidecar("w1", work, append(certificate(w1), "LEASEHOLD_LOG_LEVEL=debug", "LEASEHOLD_METRICS_ADDR=127.0.0.1:0")...)
	second := f.sidecar("w2", work, "LEASEHOLD_CREDENTIAL_FILE="+file, "LEASEHOLD_LOG_LEVEL=debug")
	third := startProgramEnv(t, []string{"LEASEHOLD_SERVER=" + f.Addrs(), "LEASEHOLD_TLS_CA_FILE=" + f.security.CA(), "LEASEHOLD_CREDENTIAL_FILE=" + file, "LEASEHOLD_LOG_LEVEL=debug"},
		"lock", "/batch/job", "--", "sh", "-c", `touch "`+f.dir+`/at-lock.1"; exec sleep 300`)
	f.owns("w1", 1)
	f.owns("w2", 1)
	f.owns("lock", 1)
	p.processes()

	p.mistakes(f, token, gossipKey, w1)
	p.requests(f, token)
	p.drawn(f)
	backup := filepath.Join(f.dir, "backup")
	f.want(exitOK, "backup", "save", backup)
	for _, args := range [][]string{
		{"credential", "ls", "-o", "json"}, {"gossip", "keyring", "status", "-o", "json"}, {"status", "-o", "json"}, {"workers", "ls", "-o", "json"},
		{"events", "-o", "json"}, {"doctor"}, {"doctor", "-o", "json"}, {"kv", "get", "/", "--prefix", "-o", "json"},
		{"backup", "inspect", backup, "-o", "json"}, {"backup", "verify", backup, "-o", "json"}, {"__complete", "credential", "revoke", ""}, {"__complete", "gossip", "keyring", "remove", ""},
		{"config", "print", "--gossip-key-file", filepath.Join(f.dir, "pki", "gossip.key"), "--tls-key-file", f.operator.Key, "--tls-cert-file", f.operator.Cert, "--tls-ca-file", f.operator.CA},
		{"tls", "inspect", f.operator.Cert, "-o", "json"}, {"audit", "verify", filepath.Join(f.dir, f.Servers()[0].ID, "audit.log")},
	} {
		c := (&cli{env: map[string]string{"LEASEHOLD_SERVER": f.Addrs()}}).with(f.operator)
		c.run(t, args...) // doctor may find something
		p.look(strings.Join(args, " "), c.stdout.String()+c.stderr.String())
	}
	archive := filepath.Join(f.dir, "debug.tar.gz")
	f.want(exitOK, "debug", "--duration", "1s", "--profile", "-O", archive)
	for name, content := range unpack(t, archive) {
		p.look("the debug archive's "+name, content)
	}
	p.look("a worker's metrics", strings.Join(scrape(t, regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).FindString(first.stderr.String())), "\n"))
	first.stop(t)
	// These end with all that the runtime can tell.
	second.cmd.Process.Signal(syscall.SIGQUIT)
	third.cmd.Process.Signal(syscall.SIGQUIT)
	if code := second.code() + third.code(); code != 4 || !strings.Contains(second.stderr.String(), "goroutine 1") {
		t.Errorf("after SIGQUIT: codes that make %d, want 2 and 2", code)
	}
	p.look("what workers write", first.stderr.String()+second.stderr.String()+third.stderr.String())
	last := f.Servers()[1]
	if err := last.Process().Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	<-last.Process().Done()
	for _, s := range f.Servers() {
		log, err := os.ReadFile(filepath.Join(f.dir, s.ID+".log"))
		if err != nil || !bytes.Contains(log, []byte("DEBUG")) {
			t.Errorf("no debug lines in the log of %s, %v", s.ID, err)
		}
		p.look("the servers' logs", string(log))
		audit, err := os.ReadFile(filepath.Join(f.dir, s.ID, "audit.log"))
		if err != nil {
			t.Error(err)
		}
		p.look("the audit logs", string(audit))
	}
	for place, least := range map[string]int{"the environ of processes": 1000, "the audit logs": 1000, "GET /metrics": 10_000, "GET /ui/feed": 200, "what workers write": 10_000, "a worker's metrics": 1000, "what is said of the authority": 100} {
		if p.places[place] < least {
			t.Errorf("%s has %d bytes: something was not looked at", place, p.places[place])
		}
	}
	if len(p.places) < 85 || len(p.secrets) < 10 {
		t.Errorf("looked for %d secrets in %d places only", len(p.secrets), len(p.places))
	}
}
