package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
)

// ground is a place where the procedures of deploy/operations are tried: servers
// of the local site file, and a stream of orders beside them.
type ground struct {
	t      *testing.T
	dir    string
	ledger string
	env    []string
	addrs  string // of all servers there may be
}

func newGround(t *testing.T) *ground {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		lacking(t, "the procedures need bash: %v", err)
	}
	s := &ground{t: t, dir: t.TempDir()}
	s.ledger = filepath.Join(s.dir, "orders")
	program := filepath.Join(s.dir, "bin", "leasehold")
	s.program(program)
	s.program(program + ".next")
	base := s.freeBase()
	s.env = append(os.Environ(),
		"PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "NEXT="+program+".next",
		"SITE="+filepath.Join(root(t), "deploy/operations/local.sh"), "DIR="+filepath.Join(s.dir, "servers"),
		"BASE="+strconv.Itoa(base), "TMPDIR="+s.dir, "PATIENCE=120", "SURE=yes",
	)
	var all []string
	for i := range 4 {
		all = append(all, fmt.Sprintf("127.0.0.1:%d", base+10*(i+1)))
	}
	s.addrs = strings.Join(all, ",")
	t.Cleanup(s.killServers)
	return s
}

// program writes a leasehold that is this test binary.
func (s *ground) program(path string) {
	s.t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, []byte(fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asProgramEnv, self)), 0o755)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// freeBase finds a BASE with free ports for four servers. The last of them begins
// late: they lie below those that cluster.FreePorts gives to others meanwhile.
func (s *ground) freeBase() int {
	s.t.Helper()
	for base := 10_000 + os.Getpid()%20*50; base < 11_900; base += 50 {
		free := true
		for i := 10; i <= 43 && free; i++ {
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+i))
			if free = err == nil; free {
				ln.Close()
			}
		}
		if free {
			return base
		}
	}
	s.t.Fatal("no free ports")
	return 0
}

// run runs a procedure, which must succeed.
func (s *ground) run(script string, args ...string) string {
	s.t.Helper()
	out, err := s.try(script, args...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s\n%s", script, strings.Join(args, " "), err, out, s.logs())
	}
	return out
}

// with is the same place with a setting more.
func (s *ground) with(setting string) *ground {
	other := *s
	other.env = append(slices.Clone(s.env), setting)
	return &other
}

func (s *ground) try(script string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, filepath.Join(root(s.t), "deploy/operations", script), args...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	s.t.Logf("%s %s: %v", script, strings.Join(args, " "), time.Since(began).Round(100*time.Millisecond))
	return string(out), err
}

func (s *ground) logs() string {
	var all strings.Builder
	files, _ := filepath.Glob(filepath.Join(s.dir, "servers", "*.log"))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		fmt.Fprintf(&all, "== %s\n%s", filepath.Base(f), b[max(0, len(b)-3000):])
	}
	return all.String()
}

// killServers ends what the procedures have started, each by its own id.
func (s *ground) killServers() {
	files, _ := filepath.Glob(filepath.Join(s.dir, "servers", "*.pid"))
	for _, f := range files {
		s.kill(strings.TrimSuffix(filepath.Base(f), ".pid"))
	}
}

// kill is SIGKILL of a server. The process is a child of a script that has
// ended, so its end is seen by its id.
func (s *ground) kill(id string) {
	raw, err := os.ReadFile(filepath.Join(s.dir, "servers", id+".pid"))
	pid, cerr := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || cerr != nil {
		return
	}
	for syscall.Kill(pid, syscall.SIGKILL) == nil && !zombie(pid) {
		<-time.After(10 * time.Millisecond)
	}
}

// zombie tells whether a process has ended, and nobody has asked how.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	return err != nil || ok && strings.HasPrefix(rest, "Z")
}

// relay starts a worker of the stream of orders; it lives as long as the test.
func (s *ground) relay(id string) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.dir, "bin", "leasehold"), "demo", "relay", "--id", id, "--dir", s.ledger, "--partitions", "16", "--pace", "100ms",
		"--server", s.addrs, "--metrics-addr", "127.0.0.1:0")
	log, err := os.Create(filepath.Join(s.dir, id+".log"))
	if err == nil {
		cmd.Stderr = log
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
	})
}

// monitor starts Prometheus as the procedure says, which then sees everybody.
func (s *ground) monitor(workers ...string) {
	s.t.Helper()
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			lacking(s.t, "no %s: %v", program, err)
		}
	}
	args := []string{filepath.Join(s.dir, "monitor")}
	for _, id := range workers {
		log, err := os.ReadFile(filepath.Join(s.dir, id+".log"))
		m := regexp.MustCompile(`http://(\S+)/metrics`).FindSubmatch(log)
		if err != nil || m == nil {
			s.t.Fatalf("%s does not say where its metrics are: %v\n%s", id, err, log)
		}
		args = append(args, fmt.Sprintf("%s=%s", id, m[1]))
	}
	ports, err := cluster.FreePorts(1)
	if err != nil {
		s.t.Fatal(err)
	}
	out := strings.Split(strings.TrimSpace(s.with(fmt.Sprintf("LISTEN=127.0.0.1:%d", ports[0])).run("monitor.sh", args...)), "\n")
	prom, stop := startPrometheus(s.t, out[len(out)-1])
	defer stop()
	prom.until("all targets are up", func() error {
		return prom.targetsUp(map[string]int{"leasehold-server": 3, "leasehold-worker": len(workers)})
	})
	prom.until("the rules work", prom.rulesWork)
}

// leases are the tokens and owners of all partitions; nil while one has none.
func (s *ground) leases() map[int]string {
	var c cli
	if c.run(s.t, "partitions", "ls", demo.Keyspace, "-o", "json", "--timeout", "2s", "--server", s.addrs) != 0 {
		return nil
	}
	var list struct {
		Items []struct {
			Partition    int
			Owner, Token string
		}
	}
	if err := json.Unmarshal([]byte(c.stdout.String()), &list); err != nil {
		s.t.Fatal(err)
	}
	all := map[int]string{}
	for _, p := range list.Items {
		if p.Owner == "" {
			return nil
		}
		all[p.Partition] = p.Token + " " + p.Owner
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// owned waits until all partitions have owners, and says who.
func (s *ground) owned() (all map[int]string) {
	s.t.Helper()
	for limit := time.Now().Add(3 * time.Minute); time.Now().Before(limit); <-time.After(100 * time.Millisecond) {
		if all = s.leases(); all != nil {
			return all
		}
	}
	s.t.Fatalf("not within three minutes: all partitions are owned\n%s", s.logs())
	return nil
}

// still wants the leases as they were: nothing has moved.
func (s *ground) still(what string, before map[int]string) {
	s.t.Helper()
	if now := s.owned(); !maps.Equal(now, before) {
		s.t.Errorf("%s moved something:\nbefore %v\nafter  %v", what, before, now)
	}
}

// higher wants every token above what it was.
func (s *ground) higher(what string, before map[int]string) map[int]string {
	s.t.Helper()
	now := s.owned()
	for p, was := range before {
		if tokenOf(now[p]) <= tokenOf(was) {
			s.t.Errorf("%s: partition %d had %q, now %q", what, p, was, now[p])
		}
	}
	return now
}

func tokenOf(lease string) uint64 {
	token, _, _ := strings.Cut(lease, " ")
	n, _ := strconv.ParseUint(token, 10, 64)
	return n
}

// TestOperationsFormAnsweredTooLate: the call that forms the cluster does not
// learn of it, and form.sh says neither that there is none nor waits for one. It
// is not parallel: the ports of two grounds are the same.
func TestOperationsFormAnsweredTooLate(t *testing.T) {
	s := newGround(t)
	bin := filepath.Join(s.dir, "late")
	late := fmt.Sprintf("#!/bin/sh\n%q \"$@\" || exit\n[ \"$1 $2\" != 'cluster init' ] || exit %d\n", filepath.Join(s.dir, "bin", "leasehold"), exitUnreachable)
	if err := errors.Join(os.Mkdir(bin, 0o755), os.WriteFile(filepath.Join(bin, "leasehold"), []byte(late), 0o755)); err != nil {
		t.Fatal(err)
	}
	out := s.with("PATH=" + bin + ":" + os.Getenv("PATH")).with("PROGRAM=" + filepath.Join(s.dir, "bin", "leasehold")).run("form.sh")
	if !strings.Contains(out, "already") || strings.Count(out, "yes") != 3 {
		t.Errorf("form.sh says\n%s", out)
	}
}

// TestOperationsNewServerHasTheKey: an empty disk and a new server come into a
// cluster whose key of gossip is not that of the key file any more.
func TestOperationsNewServerHasTheKey(t *testing.T) {
	s := newGround(t)
	first := filepath.Join(s.dir, "gossip.key")
	(&cli{}).want(t, exitOK, "gossip", "keyring", "generate", "--out", first)
	s = s.with("LEASEHOLD_GOSSIP_KEY_FILE=" + first)
	s.run("form.sh")
	keyring := func(args ...string) string {
		out, _ := (&cli{}).want(t, exitOK, append(append([]string{"gossip", "keyring"}, args...), "--server", s.addrs)...)
		return out
	}
	digest := regexp.MustCompile(`\b[0-9a-f]{8}\b`)
	old := digest.FindString(keyring("status", "--wait"))
	drawn := digest.FindString(keyring("add"))
	keyring("status", "--wait")
	keyring("use", drawn)
	keyring("status", "--wait")
	keyring("remove", old)
	keyring("status", "--wait")

	s.run("replace.sh", "s2")
	s.run("grow.sh", "s4")
	if info, err := os.Stat(filepath.Join(s.dir, "servers", "s4", "gossip-keyring")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key of the new server: %v, %v", info, err)
	}
}

// TestOperationsProcedures runs every procedure of deploy/operations on one
// cluster, while orders go through it.
func TestOperationsProcedures(t *testing.T) {
	t.Parallel()
	s := newGround(t)
	s.run("form.sh")
	if out, err := s.with("PATIENCE=2").try("form.sh"); err == nil {
		t.Errorf("a cluster was formed twice:\n%s", out)
	}
	// With a TTL that a busy machine does not use up between two keep-alives.
	(&cli{}).want(t, exitOK, "keyspace", "create", demo.Keyspace, "--partitions", "16", "--ttl", "10s", "--server", s.addrs)
	s.relay("w1")
	s.relay("w2")
	before := s.owned()

	s.run("roll.sh", "restart")
	s.still("a rolling restart", before)
	s.run("roll.sh", "upgrade")
	s.still("an upgrade", before)
	s.run("grow.sh", "s4")
	s.run("retire.sh", "s4")
	s.still("growing and shrinking", before)
	for _, id := range []string{"s1", "s2", "s3"} {
		s.run("replace.sh", id)
	}
	s.still("the replacement of all servers", before)
	if out := s.run("size.sh"); !strings.Contains(out, "fsync") || !strings.Contains(out, "w1") {
		t.Errorf("size.sh says\n%s", out)
	}
	s.monitor("w1", "w2")

	if out := s.run("why.sh", demo.Keyspace); !strings.Contains(out, "initial") || !strings.Contains(out, "PLACED") {
		t.Errorf("why.sh says\n%s", out)
	}

	backups := filepath.Join(s.dir, "backups")
	for range 2 {
		s.run("backup.sh", backups)
	}
	files, err := filepath.Glob(filepath.Join(backups, "leasehold-*.backup"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no backup in %s: %v", backups, err)
	}
	s.run("restore.sh", files[len(files)-1])
	before = s.higher("a restore", before)

	// Two of three are lost for good.
	for _, id := range []string{"s1", "s2"} {
		s.kill(id)
		if err := os.RemoveAll(filepath.Join(s.dir, "servers", id)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := s.try("replace.sh", "s1"); err == nil || !strings.Contains(out, "recover.sh") {
		t.Errorf("a server was emptied without a majority: %v\n%s", err, out)
	}
	s.run("recover.sh", "s3")
	s.higher("a recovery", before)
	s.audit()
}

// Of several survivors the one that is furthest on is saved, wherever it stands
// in the list: what the others lack would be lost else.
func TestOperationsRecoverTakesTheFurthest(t *testing.T) {
	s := newGround(t).with("SERVERS=s1")
	dir := func(id string) string { return filepath.Join(s.dir, "servers", id) }
	if err := os.MkdirAll(dir(""), 0o755); err != nil {
		t.Fatal(err)
	}
	// A restored directory is one entry and one term after what it was made of.
	file := put(t, filepath.Join(s.dir, "first"), fakeBackup(t, 8, nil))
	for _, id := range []string{"s1", "s2"} {
		(&cli{}).want(t, exitOK, "backup", "restore", file, "--data-dir", dir(id), "--id", id, "--raft-addr", "127.0.0.1:7401", "--yes")
		next := filepath.Join(s.dir, "after-"+id)
		(&cli{}).want(t, exitOK, "backup", "save", next, "--data-dir", dir(id))
		file = next
	}
	if out := s.run("recover.sh", "s1", "s2"); !strings.Contains(out, "s2 is furthest on") {
		t.Errorf("recovered from another:\n%s", out)
	}
}

// audit ends the stream and wants it whole.
func (s *ground) audit() {
	s.t.Helper()
	var c cli
	code := c.run(s.t, "demo", "audit", "--dir", s.ledger, "--end", "--wait", "3m", "-o", "json")
	s.t.Log(c.stdout.String())
	if code != 0 {
		s.t.Errorf("the orders are not whole, exit code %d: %s%s", code, c.stdout.String(), c.stderr.String())
	}
}

// TestOperationsScriptsAreClean holds the scripts against shellcheck.
func TestOperationsScriptsAreClean(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		lacking(t, "shellcheck is not installed: %v", err)
	}
	scripts, err := filepath.Glob(filepath.Join(root(t), "deploy/operations/*.sh"))
	if err != nil || len(scripts) < 8 {
		t.Fatalf("scripts %v: %v", scripts, err)
	}
	cmd := exec.Command("shellcheck", append([]string{"-x"}, scripts...)...)
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
