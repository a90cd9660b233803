package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
)

// secured is a place with four machines, on which the commands of the section
// Secure of deploy/OPERATIONS.md are run as they stand there.
type secured struct {
	t    *testing.T
	net  *chaos.Network
	dir  string
	path string            // of the environment
	addr *strings.Replacer // the addresses of the page, as they are here
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	n, err := chaos.OpenNetwork()
	if err != nil {
		lacking(t, "machines of our own: %v", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	var addrs []string
	for i, host := range []string{"s1", "s2", "s3", "w1"} {
		addr, err := n.Add(host)
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, "10.0.0."+string(rune('1'+i)), addr)
	}
	s := &secured{t: t, net: n, dir: t.TempDir(), addr: strings.NewReplacer(addrs...)}
	bin := filepath.Join(s.dir, "bin")
	g := &ground{t: t, dir: s.dir}
	g.program(filepath.Join(bin, "leasehold"))
	s.path = "PATH=" + bin + ":" + os.Getenv("PATH")
	return s
}

// command is one line of the page, on its machine.
func (s *secured) command(ctx context.Context, host, line string) *exec.Cmd {
	args := []string{"sh", "-c", "exec " + s.addr.Replace(line)}
	if host != "admin" {
		args = append(s.net.Wrap(host), args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.dir
	// Machines have a /var/lib each; these share one file system.
	cmd.Env = append(os.Environ(), s.path, "LEASEHOLD_DATA_DIR="+filepath.Join(s.dir, "data-"+host))
	return cmd
}

// run waits for a command.
func (s *secured) run(host, line string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := s.command(ctx, host, line).CombinedOutput(); err != nil {
		s.t.Fatalf("%s$ %s: %v\n%s\n%s", host, line, err, out, s.logs())
	}
}

// begin leaves a command running until the test ends.
func (s *secured) begin(host, line string) {
	s.t.Helper()
	log, err := os.Create(filepath.Join(s.dir, host+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := s.command(context.Background(), host, line)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		cut := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		cut.Stop()
		_ = log.Close()
	})
}

func (s *secured) logs() string {
	var all strings.Builder
	files, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		all.WriteString("== " + filepath.Base(f) + "\n" + string(text[max(0, len(text)-3000):]))
	}
	return all.String()
}

// A secured cluster of three servers and a worker takes ten commands, and those of
// the page are they.
func TestOperationsSecureInTenCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "deploy/OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Secure\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, file, _ := strings.Cut(section, "```yaml\n")
	file, rest, ok := strings.Cut(file, "```")
	if !ok {
		t.Fatal("the section Secure has no cluster.yaml")
	}
	lines := regexp.MustCompile(`(?m)^(admin|s1|s2|s3|w1)\$ (.+)$`).FindAllStringSubmatch(rest, -1)
	if len(lines) == 0 || len(lines) > 10 {
		t.Fatalf("%d commands: at most ten", len(lines))
	}

	s := newSecured(t)
	work := "#!/bin/sh\necho \"$LEASEHOLD_PARTITION\" >>worked\nexec sleep 1000\n"
	for name, text := range map[string]string{"cluster.yaml": s.addr.Replace(file), "work": work} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const as = " --server 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400 --tls-ca-file pki/ca.pem --tls-cert-file pki/alice.pem --tls-key-file pki/alice-key.pem"
	for _, l := range lines {
		host, line := l[1], l[2]
		if strings.HasPrefix(line, "leasehold server ") || host == "w1" {
			s.begin(host, line)
			continue
		}
		if strings.HasPrefix(line, "leasehold keyspace ") { // a person has seen that the servers are up
			s.run("admin", "leasehold status --wait --timeout 40s"+as)
		}
		s.run(host, line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = poll(ctx, 50*time.Millisecond, func() (bool, error) {
		text, err := os.ReadFile(filepath.Join(s.dir, "worked"))
		return err == nil && strings.Count(string(text), "\n") >= 10, nil
	})
	if err != nil {
		t.Fatalf("the worker has not begun: %v\n%s", err, s.logs())
	}

	// Nobody else gets in: not without a proof, nor in the clear.
	for _, line := range []string{
		"leasehold status --server 10.0.0.1:7400 --tls-ca-file pki/ca.pem",
		"leasehold status --server 10.0.0.1:7400",
		"leasehold keyspace rm orders --yes --server 10.0.0.1:7400 --tls-ca-file pki/ca.pem --tls-cert-file pki/w1.pem --tls-key-file pki/w1-key.pem",
		"leasehold server --id s4 --data-dir other --advertise 10.0.0.4 --grpc-addr 0.0.0.0:7400 --raft-addr 0.0.0.0:7401 --gossip-addr 0.0.0.0:7402 --http-addr 0.0.0.0:7480",
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		out, err := s.command(ctx, "w1", line).CombinedOutput()
		cancel()
		if err == nil {
			t.Errorf("%s is done:\n%s", line, out)
		}
	}
	s.run("admin", "leasehold workers ls"+as)
}

// Procedures ask servers with TLS in the name that the environment gives, Prometheus
// in that of a reader; who is not let in is told so, and nothing is stopped.
func TestOperationsOverTLS(t *testing.T) {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			lacking(t, "no %s: %v", program, err)
		}
	}
	f := newFortress(t, 1)
	server := f.Servers()[0]
	ports, err := cluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(f.dir, "prometheus.token")
	f.want(exitOK, "credential", "create", "prometheus", "--role", "reader", "--out", token)
	site := filepath.Join(f.dir, "site.sh")
	text := fmt.Sprintf("SERVERS=s1\nsite_addr() { [[ $2 == grpc ]] && echo %s || echo %s; }\nsite_stop() { touch %s/stopped; }\n", server.GRPCAddr, server.HTTPAddr, f.dir)
	if err := os.WriteFile(site, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(f.dir, "bin")
	g := &ground{t: t, dir: f.dir}
	g.program(filepath.Join(bin, "leasehold"))
	g.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "SITE="+site, fmt.Sprintf("LISTEN=127.0.0.1:%d", ports[0]), "LEASEHOLD_TLS_CA_FILE="+f.security.CA())

	if out, err := g.try("roll.sh"); err == nil || !strings.Contains(out, "no certificate and no credential was presented") {
		t.Errorf("roll.sh without a certificate: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "stopped")); err == nil {
		t.Error("it stopped a server that it may not ask")
	}
	monitor := filepath.Join(f.dir, "monitor")
	if out, err := g.try("monitor.sh", monitor); err == nil || !strings.Contains(out, "set TOKEN") {
		t.Errorf("monitor.sh without a reader: %v\n%s", err, out)
	}
	out := strings.Split(strings.TrimSpace(g.with("TOKEN="+token).run("monitor.sh", monitor)), "\n")
	prom, stop := startPrometheus(t, out[len(out)-1])
	defer stop()
	prom.until("the server is up", func() error { return prom.targetsUp(map[string]int{"leasehold-server": 1}) })
}
