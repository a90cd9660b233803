package main

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// fortress is a cluster of real processes with certificates.
type fortress struct {
	*site
	security *cluster.Security
	operator pki.Files
}

func newFortress(t *testing.T, servers int, env ...string) *fortress {
	t.Helper()
	dir := t.TempDir()
	security, err := cluster.NewSecurity(filepath.Join(dir, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fortress{site: &site{t: t, dir: dir}, security: security}
	if f.Cluster, err = cluster.StartSecure(processGroup(t), dir, specs(servers, env...), security); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	f.ready(f.Servers()...)
	f.operator = f.issue(access.Operator, "alice")
	return f
}

func (f *fortress) issue(role access.Role, name string) pki.Files {
	f.t.Helper()
	files, err := f.security.Issue(role, name)
	if err != nil {
		f.t.Fatal(err)
	}
	return files
}

// want runs a command as an operator.
func (f *fortress) want(code int, args ...string) (stdout, stderr string) {
	f.t.Helper()
	return (&cli{env: map[string]string{"LEASEHOLD_SERVER": f.Addrs()}}).with(f.operator).want(f.t, code, args...)
}

// sidecar starts leasehold run with a script for sh that first writes down what can
// be seen of it: its environment, and the arguments of all processes above it.
func (f *fortress) sidecar(id, script string, env ...string) *program {
	f.t.Helper()
	seen := filepath.Join(f.dir, "seen-"+id)
	script = `mkdir -p ` + seen + `; env >` + seen + `/env.$$; cat /proc/$$/cmdline /proc/$PPID/cmdline /proc/$PPID/environ >` + seen + `/proc.$$
` + script
	return startProgramEnv(f.t, append([]string{"LEASEHOLD_SERVER=" + f.Addrs(), "LEASEHOLD_TLS_CA_FILE=" + f.security.CA(), "LEASEHOLD_LOG_LEVEL=info"}, env...),
		"run", "--keyspace", "jobs", "--id", id, "--", "sh", "-c", script)
}

func certificate(f pki.Files) []string {
	return []string{"LEASEHOLD_TLS_CERT_FILE=" + f.Cert, "LEASEHOLD_TLS_KEY_FILE=" + f.Key}
}

// owns waits until a worker's command has said that it runs for so many partitions.
func (f *fortress) owns(id string, partitions int) {
	f.t.Helper()
	waitFor(f.t, id+" to work", func() bool {
		files, err := filepath.Glob(filepath.Join(f.dir, "at-"+id+".*"))
		return err == nil && len(files) >= partitions
	})
}

// Three servers with certificates; a worker with a certificate of its own and one
// with no more than the authority and a credential. The leader is killed and both go
// on; the credential is revoked, and its worker ends within its deadline and says
// why, while the other takes over what it had. No secret can be seen anywhere.
func TestSecuredClusterOfProcesses(t *testing.T) {
	f := newFortress(t, 3)
	const ttl = 4 * time.Second
	f.want(exitOK, "keyspace", "create", "jobs", "--partitions", "2", "--ttl", ttl.String(), "--initial-delay", "0s")
	token := filepath.Join(f.dir, "batch.token")
	f.want(exitOK, "credential", "create", "batch", "--role", "worker", "--keyspace", "jobs", "--out", token)

	work := `touch "` + f.dir + `/at-$LEASEHOLD_OWNER.$LEASEHOLD_PARTITION"; exec sleep 300`
	w1 := f.issue(access.Worker, "w1")
	first := f.sidecar("w1", work, certificate(w1)...)
	second := f.sidecar("w2", work, "LEASEHOLD_CREDENTIAL_FILE="+token)
	f.owns("w1", 1)
	f.owns("w2", 1)

	f.strangers(token)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	leader, err := f.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.kill(leader)
	waitFor(t, "a write under the next leader", func() bool {
		return (&cli{env: map[string]string{"LEASEHOLD_SERVER": f.Addrs()}}).with(f.operator).run(t, "kv", "put", "k", "v", "--timeout", "2s") == exitOK
	})
	if out, _ := f.want(exitOK, "workers", "ls"); !strings.Contains(out, "w1") || !strings.Contains(out, "w2") {
		t.Errorf("workers after the leader was killed:\n%s", out)
	}
	for _, p := range []*program{first, second} {
		if p.cmd.ProcessState != nil {
			t.Error("a worker has ended with the leader")
		}
	}

	f.want(exitOK, "credential", "revoke", "batch", "--yes")
	revoked := time.Now()
	if code := second.code(); code != exitDenied {
		t.Errorf("the revoked worker ended with %d, want %d", code, exitDenied)
	}
	if d := time.Since(revoked); d > ttl+3*time.Second {
		t.Errorf("the revoked worker ended after %v at a TTL of %v", d, ttl)
	}
	if said := second.stderr.String(); !strings.Contains(said, "credential") || !strings.Contains(said, "revoked") || !strings.Contains(said, "next: ") {
		t.Errorf("it does not say why:\n%s", said)
	}
	f.owns("w1", 2)
	if got := first.stderr.String(); strings.Contains(got, "expired") {
		t.Errorf("the other worker lost its lease:\n%s", got)
	}
	f.noSecrets(token, w1.Key, first.stderr.String()+second.stderr.String())
	first.stop(t)
}

// strangers are those who are not let in, and those who may not do everything. Real
// servers are to be told apart as well as those of other tests.
func (f *fortress) strangers(token string) {
	f.t.Helper()
	servers := map[string]string{"LEASEHOLD_SERVER": f.Addrs()}
	other, err := cluster.NewSecurity(filepath.Join(f.dir, "other"))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, x := range []struct {
		env   map[string]string
		args  []string
		code  int
		wants []string
	}{
		{nil, []string{"keyspace", "ls"}, exitUnreachable, []string{"it may want TLS", "--tls-ca-file"}},
		{map[string]string{"LEASEHOLD_TLS_CA_FILE": f.security.CA()}, []string{"keyspace", "ls"}, exitDenied, []string{"--credential-file"}},
		{map[string]string{"LEASEHOLD_TLS_CA_FILE": other.CA()}, []string{"keyspace", "ls"}, exitUnreachable, []string{"not of the authority", "is --tls-ca-file"}},
		{map[string]string{"LEASEHOLD_TLS_CA_FILE": f.security.CA(), "LEASEHOLD_CREDENTIAL_FILE": token}, []string{"keyspace", "create", "x"}, exitDenied, []string{"worker", "next: "}},
		{map[string]string{"LEASEHOLD_TLS_CA_FILE": f.security.CA(), "LEASEHOLD_CREDENTIAL_FILE": token}, []string{"kv", "put", "k", "v"}, exitDenied, []string{"next: "}},
	} {
		c := &cli{env: maps.Clone(servers)}
		maps.Copy(c.env, x.env)
		_, stderr := c.want(f.t, x.code, x.args...)
		for _, want := range x.wants {
			if !strings.Contains(stderr, want) {
				f.t.Errorf("%v as %v does not say %q:\n%s", x.args, x.env, want, stderr)
			}
		}
	}
	if out, _ := f.want(exitOK, "status"); !strings.Contains(out, "on, callers are asked") {
		f.t.Errorf("status does not say that there is TLS:\n%s", out)
	}
	if out, _ := f.want(exitOK, "kv", "put", "k", "v"); out == "" {
		f.t.Error("an operator's put says nothing")
	}
}

// noSecrets looks for the contents of secret files in what was written: by the
// servers into their logs, and by the workers' commands of what they saw.
func (f *fortress) noSecrets(token, key, said string) {
	f.t.Helper()
	var secrets []string
	for _, file := range []string{token, key, filepath.Join(f.dir, "pki", "gossip.key")} {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.t.Fatal(err)
		}
		text := strings.TrimSpace(string(raw))
		if lines := strings.Split(text, "\n"); len(lines) > 2 {
			text = lines[1] // of a PEM file, whose first line is the same in all
		}
		secrets = append(secrets, text[len(text)-24:])
	}
	places := map[string]string{"standard error": said}
	err := filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".log") && !strings.HasPrefix(filepath.Base(filepath.Dir(path)), "seen-") {
			return err
		}
		raw, err := os.ReadFile(path)
		places[path] = string(raw)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if len(places) < 8 { // three logs, and two files of each worker
		f.t.Errorf("looked at %d places only", len(places))
	}
	for place, text := range places {
		for i, secret := range secrets {
			if strings.Contains(text, secret) {
				f.t.Errorf("secret %d is in %s", i, place)
			}
		}
	}
}
