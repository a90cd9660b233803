package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program starts this program as a process of its own.
type program struct {
	cmd    *exec.Cmd
	stdout io.Reader
	stderr *lockedBuffer
	alarm  *time.Timer // ends it when it seems to hang
}

var freePorts = []string{"--grpc-addr", "127.0.0.1:0", "--raft-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}

func startProgram(t *testing.T, args ...string) *program {
	t.Helper()
	return startProgramEnv(t, nil, args...)
}

// startProgramEnv adds to the environment.
func startProgramEnv(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0], args...), stderr: &lockedBuffer{}}
	p.cmd.Env = append(append(os.Environ(), asProgramEnv+"=1"), env...)
	p.cmd.Stderr = p.stderr
	// A program that hangs shows where, instead of hanging the test. One that the
	// test only works with lives as long as that takes on a busy machine.
	alarm := time.AfterFunc(5*time.Minute, func() { p.cmd.Process.Signal(syscall.SIGQUIT) })
	p.alarm = alarm
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = out
	if err := p.cmd.Start(); err != nil {
		alarm.Stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		alarm.Stop()
		p.cmd.Process.Kill() // nothing when it has ended
		p.cmd.Wait()
		if t.Failed() {
			t.Logf("%v:\n%s", args, p.stderr)
		}
	})
	return p
}

// stop sends SIGTERM and wants an orderly end.
func (p *program) stop(t *testing.T) {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// eventually runs a command line until its output says what is wanted.
func eventually(t *testing.T, server, want string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out string
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		c := &cli{env: map[string]string{"LEASEHOLD_SERVER": server}}
		code := c.run(t, args...)
		out = c.stdout.String() + c.stderr.String()
		return code == exitOK && strings.Contains(out, want), nil
	})
	if err != nil {
		t.Fatalf("%v never said %q, last:\n%s", args, want, out)
	}
	return out
}

// dev on real parts: ready, its workers own everything, the commands work on
// it, and SIGTERM ends it in order.
func TestDev(t *testing.T) {
	p := startProgram(t, append([]string{"dev", "--workers", "2", "--partitions", "6", "--keyspace", "jobs", "--ttl", "5s", "-o", "json"}, freePorts...)...)
	var d devResult
	if err := json.NewDecoder(p.stdout).Decode(&d); err != nil {
		t.Fatal(err)
	}
	if d.Keyspace != "jobs" || d.Partitions != 6 || d.TTLMs != 5000 || d.Workers != 2 || strings.HasSuffix(d.GRPCAddr, ":0") || d.DataDir != "" {
		t.Errorf("told %+v", d)
	}
	eventually(t, d.GRPCAddr, `"owned": "6"`, "keyspace", "show", "jobs", "-o", "json")
	eventually(t, d.GRPCAddr, "dev-2", "workers", "ls")
	eventually(t, d.GRPCAddr, "ready        yes", "status", "--wait")
	eventually(t, d.GRPCAddr, "leader", "raft", "peers")
	eventually(t, d.GRPCAddr, "owner       dev-", "locate", "jobs", "some key")
	eventually(t, d.GRPCAddr, "grant", "events", "--keyspace", "jobs")

	c := &cli{env: map[string]string{"LEASEHOLD_SERVER": d.GRPCAddr}}
	for _, line := range []struct {
		args string
		code int
	}{
		{"keyspace create jobs", exitRefused},
		{"keyspace create a/b", exitUsage},
		{"keyspace create none --partitions 0", exitUsage},
		{"keyspace create many --partitions 1048577", exitUsage},
		{"keyspace create quick --ttl 1ms", exitUsage},
		{"keyspace create slow --ttl 2h", exitUsage},
		{"keyspace show nosuch", exitNotFound},
		{"keyspace rm nosuch --yes", exitNotFound},
		{"partitions show jobs 6", exitNotFound},
		{"partitions move jobs 0 --to nosuch", exitNotFound},
		{"workers drain nosuch", exitNotFound},
		{"locate nosuch key", exitNotFound},
		{"keyspace create mails --partitions 2", exitOK},
		{"keyspace rm mails --yes", exitOK},
	} {
		if got := c.run(t, strings.Fields(line.args)...); got != line.code {
			t.Errorf("%s: exit %d, want %d: %s", line.args, got, line.code, c.stderr.String())
		}
	}
	// A worker that is evicted goes alone.
	if got := c.run(t, "workers", "evict", "dev-2", "--yes"); got != exitOK {
		t.Errorf("evict: exit %d: %s", got, c.stderr.String())
	}
	eventually(t, d.GRPCAddr, `"owned": "6"`, "keyspace", "show", "jobs", "-o", "json")
	eventually(t, d.GRPCAddr, `"held": "6"`, "workers", "ls", "-o", "json")
	p.stop(t)
}

// The banner's worker program compiles and works as it is printed.
func TestDevBannerProgramRuns(t *testing.T) {
	p := startProgram(t, append([]string{"dev"}, freePorts...)...)
	var banner, source strings.Builder
	in := bufio.NewScanner(p.stdout)
	for in.Scan() && in.Text() != "Stop with Ctrl-C." {
		banner.WriteString(in.Text() + "\n")
	}
	_, rest, _ := strings.Cut(banner.String(), "    package main\n")
	source.WriteString("package main\n")
	for line := range strings.Lines(rest) {
		source.WriteString(strings.TrimPrefix(line, "    "))
	}
	_, server, ok := strings.Cut(banner.String(), "export LEASEHOLD_SERVER=")
	if !ok {
		t.Fatalf("no export line:\n%s", banner.String())
	}
	server, _, _ = strings.Cut(server, "\n")
	if got, want := strings.TrimSpace(source.String()), strings.TrimSpace(workerProgram(server, "demo")); got != want {
		t.Fatalf("printed:\n%s\nwant:\n%s", got, want)
	}
	for _, want := range []string{"http://127.0.0.1:", "in memory", "16 partitions, TTL 10s, strict", "not for production"} {
		if !strings.Contains(banner.String(), want) {
			t.Errorf("the banner does not say %q:\n%s", want, banner.String())
		}
	}

	dir := t.TempDir()
	file, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "worker")
	if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", bin, file).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var log lockedBuffer
	w := exec.Command(bin)
	w.Stderr = &log
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, server, `"owned": "16"`, "keyspace", "show", "demo", "-o", "json")
	eventually(t, server, `"running": "16"`, "workers", "ls", "-o", "json")
	w.Process.Signal(syscall.SIGTERM)
	if err := w.Wait(); err != nil {
		t.Errorf("the worker's end: %v\n%s", err, log.String())
	}
	if n := strings.Count(log.String(), "got demo/"); n != 16 {
		t.Errorf("it had %d partitions, want 16:\n%s", n, log.String())
	}
	p.stop(t)
}

// A server keeps its state over a restart, and tells its settings.
func TestServerKeepsState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := append([]string{"server", "--id", "s1", "--data-dir", dir, "--bootstrap-expect", "1", "--election-timeout", "150ms"}, freePorts...)
	first := startProgram(t, args...)
	addr := grpcAddr(t, first)
	eventually(t, addr, "ready        yes", "status", "--wait")
	eventually(t, addr, "created", "keyspace", "create", "orders", "--partitions", "3")
	if log := first.stderr.String(); !strings.Contains(log, `"data_dir":{"value":"`+dir+`","from":"--data-dir"}`) {
		t.Errorf("settings are not in the log:\n%s", log)
	}
	first.stop(t)
	if log := first.stderr.String(); strings.Contains(log, "not handed over") {
		t.Errorf("a server that is alone warns that nobody took over:\n%s", log)
	}

	second := startProgram(t, args...)
	eventually(t, grpcAddr(t, second), "orders", "keyspace", "ls")
	second.stop(t)
}

// grpcAddr reads the address out of the line that a server logs at its start.
func grpcAddr(t *testing.T, p *program) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addr := ""
	err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
		for line := range strings.Lines(p.stderr.String()) {
			var l struct{ Msg, GRPC string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "server starts" {
				addr = l.GRPC
			}
		}
		return addr != "", nil
	})
	if err != nil {
		t.Fatalf("the server did not start:\n%s", p.stderr)
	}
	return addr
}
