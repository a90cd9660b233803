package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
)

// newKeys starts a server for tests of keys and queues. Commands under a lock write
// evidence as under run; the partition in it is 0.
func newKeys(t *testing.T) *field {
	t.Helper()
	p := startProgram(t, append([]string{"dev", "--keyspace", "unused", "-o", "json"}, freePorts...)...)
	return &field{t, p, devAddr(t, p), "", filepath.Join(t.TempDir(), "evidence")}
}

// devAddr reads where a server has said that it is.
func devAddr(t *testing.T, p *program) string {
	t.Helper()
	var d devResult
	if err := json.NewDecoder(p.stdout).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d.GRPCAddr
}

// locked starts a command with a script for sh after its own arguments.
func (f *field) locked(script string, args ...string) *program {
	f.t.Helper()
	args = append(args, "--server", f.server, "--log-format", "text", "--", "sh", "-c", "LEASEHOLD_PARTITION=0\n"+f.prelude()+script)
	return startProgram(f.t, args...)
}

// TestCoordinationRecipes runs every recipe of COORDINATION.md on one server.
func TestCoordinationRecipes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		lacking(t, "the recipes need bash: %v", err)
	}
	f := newKeys(t)
	f.dev.alarm.Reset(10 * time.Minute) // the recipes wait for their turn among all tests
	g := &ground{t: t, dir: t.TempDir()}
	program := filepath.Join(g.dir, "bin", "leasehold")
	g.program(program)
	env := append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "LEASEHOLD_SERVER="+f.server, "TMPDIR="+g.dir)
	for _, script := range recipes(t) {
		t.Run(filepath.Base(script), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), script)
			cmd.Env = env
			cmd.WaitDelay = 10 * time.Second
			began := time.Now()
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "ok: ") {
				t.Errorf("%v\n%s", err, out)
			}
			t.Log(time.Since(began).Round(10 * time.Millisecond))
		})
	}
}

func recipes(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root(t), "deploy/coordination/*.sh"))
	all = slices.DeleteFunc(all, func(s string) bool { return filepath.Base(s) == "lib.sh" })
	if err != nil || len(all) < 12 {
		t.Fatalf("recipes %v: %v", all, err)
	}
	return all
}

// The README's commands run as they are printed.
func TestREADMECoordinationRuns(t *testing.T) {
	t.Parallel()
	_, section, ok := strings.Cut(readme(t), "\n## Locks, elections, keys\n")
	_, block, ok2 := strings.Cut(section, "```\n")
	block, _, ok3 := strings.Cut(block, "```")
	if !ok || !ok2 || !ok3 || strings.Count(block, "leasehold ") < 8 {
		t.Fatalf("the section has no block of commands: %q", block)
	}
	f := newKeys(t)
	g := &ground{t: t, dir: t.TempDir()}
	program := filepath.Join(g.dir, "bin", "leasehold")
	g.program(program)
	cmd := exec.Command("sh", "-e", "-c", block)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "LEASEHOLD_SERVER="+f.server)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "my turn, token 4") || !strings.Contains(string(out), "put\tconfig/limit\t200\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The page and the folder have the same recipes, and every command that they show
// exists, with its flags.
func TestCoordinationPage(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root(t), "deploy/COORDINATION.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, script := range recipes(t) {
		if name := filepath.Base(script); !strings.Contains(page, "`"+name+"`") {
			t.Errorf("COORDINATION.md does not name %s", name)
		}
	}
	for _, m := range regexp.MustCompile("`([a-z-]+\\.sh)`").FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(root(t), "deploy/coordination", m[1])); err != nil {
			t.Errorf("COORDINATION.md names %s: %v", m[1], err)
		}
	}
	found := 0
	texts := map[string]string{"COORDINATION.md": page}
	for _, script := range recipes(t) {
		b, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(script)] = string(b)
	}
	for where, text := range texts {
		for _, m := range regexp.MustCompile("(?:`|\\(|^| )leasehold ((?:kv|lock|elect|semaphore|session|seq|doctor|backup|workers|raft|status) [^`|)>;&\n]*)").FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "kv ") && !regexp.MustCompile(`^kv [a-z]+`).MatchString(m[1]) {
				continue
			}
			commandExists(t, where, strings.TrimRight(m[1], `\`))
			found++
		}
	}
	if found < 40 {
		t.Errorf("only %d commands were found", found)
	}
}

func TestCoordinationScriptsAreClean(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		lacking(t, "shellcheck is not installed: %v", err)
	}
	cmd := exec.Command("shellcheck", append([]string{"-x"}, recipes(t)...)...)
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Keys and values are bytes; what is shown says which exit code.
func TestKVSaysWhatItDid(t *testing.T) {
	t.Parallel()
	f := newKeys(t)
	rev, _ := f.want(exitOK, "kv", "put", "a", "1")
	if out, _ := f.want(exitOK, "kv", "get", "a"); out != "1" {
		t.Errorf("get: %q", out)
	}
	// From standard input, any bytes.
	binary := "\x00\xff\n\tü"
	c := &cli{env: map[string]string{"LEASEHOLD_SERVER": f.server}, stdin: binary}
	c.want(t, exitOK, "kv", "put", "b", "-")
	if out, _ := f.want(exitOK, "kv", "get", "b"); out != binary {
		t.Errorf("get: %q, want %q", out, binary)
	}
	if out, _ := f.want(exitOK, "kv", "get", "", "--prefix"); out != "a\t1\nb\t\"\\x00\\xff\\n\\tü\"\n" {
		t.Errorf("list: %q", out)
	}
	out, _ := f.want(exitOK, "kv", "get", "b", "-o", "json")
	var r struct{ Kvs []struct{ Key, Value []byte } }
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != binary {
		t.Errorf("json: %v, %s", err, out)
	}
	if out, _ := f.want(exitOK, "kv", "put", "a", "2", "--prev"); out != "1" {
		t.Errorf("put --prev: %q", out)
	}
	if out, _ := f.want(exitOK, "kv", "get", "a", "--rev", strings.TrimSpace(rev)); out != "1" {
		t.Errorf("get --rev: %q", out)
	}
	if out, _ := f.want(exitOK, "kv", "get", "", "--prefix", "--count"); out != "2\n" {
		t.Errorf("count: %q", out)
	}
	if out, errOut := f.want(exitOK, "kv", "get", "", "--prefix", "--keys-only", "--limit", "1"); out != "a\n" || !strings.Contains(errOut, "1 of 2") {
		t.Errorf("limit: %q, %q", out, errOut)
	}
	f.want(exitNotFound, "kv", "get", "none")
	f.want(exitNotFound, "kv", "del", "none")
	f.want(exitUsage, "kv", "get", "")
	f.want(exitUsage, "kv", "get", "a", "--rev", "99999")
	f.want(exitUsage, "kv", "put", "a", "1", "--session", "abc")
	if _, errOut := f.want(exitNotFound, "kv", "put", "a", "1", "--session", "4711"); !strings.Contains(errOut, "there is no such session") {
		t.Errorf("a session that is not there: %s", errOut)
	}
	if _, errOut := f.want(exitUsage, "session", "--ttl", "9000000001s"); !strings.Contains(errOut, "from 2s to 9000000000s") {
		t.Errorf("a TTL that is too long: %s", errOut)
	}
	f.want(exitUsage, "kv", "del", "", "--prefix") // asks, and nobody is there to
	for size, says := range map[int]string{2 << 20: "request is too large: at most 1.5 MiB", maxValue + 1: "more than 4194304 bytes"} {
		big := &cli{env: map[string]string{"LEASEHOLD_SERVER": f.server}, stdin: strings.Repeat("x", size)}
		if _, errOut := big.want(t, exitUsage, "kv", "put", "a", "-"); !strings.Contains(errOut, says) {
			t.Errorf("%d bytes: %s", size, errOut)
		}
	}
	if out, _ := f.want(exitOK, "kv", "ls"); !strings.HasPrefix(out, "KEY  BYTES  VERSION  REVISION  SESSION\na        1        2 ") {
		t.Errorf("ls: %s", out)
	}
	f.want(exitOK, "kv", "del", "", "--prefix", "--yes")
	if out, _ := f.want(exitOK, "kv", "ls", "-o", "json"); strings.Join(strings.Fields(out), "") != `{"items":[]}` {
		t.Errorf("ls: %s", out)
	}
}

// What runs out of time because there is no leader says so.
func TestKeysWithoutALeader(t *testing.T) {
	t.Parallel()
	args := []string{"server", "--id", "s1", "--data-dir", filepath.Join(t.TempDir(), "data"), "--bootstrap-expect", "3", "--join", "127.0.0.1:1"}
	p := startProgram(t, append(args, freePorts...)...)
	c := &cli{env: map[string]string{"LEASEHOLD_SERVER": grpcAddr(t, p), "LEASEHOLD_TIMEOUT": "3s"}}
	for code, line := range map[int]string{exitUnreachable: "kv get a", exitFailed: "kv put a 1"} { // a put may wait in the server still
		if _, errOut := c.want(t, code, strings.Fields(line)...); !strings.Contains(errOut, "the cluster has no leader") {
			t.Errorf("%s: %s", line, errOut)
		}
	}
	if _, errOut := c.want(t, exitUnreachable, "session"); !strings.Contains(errOut, "the cluster has no leader") {
		t.Errorf("session: %s", errOut)
	}
}

// cas writes only what it was told it may, and says what is there.
func TestKVCasTellsThePresentRevision(t *testing.T) {
	t.Parallel()
	f := newKeys(t)
	first, _ := f.want(exitOK, "kv", "cas", "a", "--if-absent", "1")
	first = strings.TrimSpace(first)
	if _, errOut := f.want(exitRefused, "kv", "cas", "a", "--if-absent", "2"); !strings.Contains(errOut, "last changed by revision "+first) {
		t.Errorf("refused with %q", errOut)
	}
	f.want(exitRefused, "kv", "cas", "a", "--if-value", "0", "2")
	f.want(exitRefused, "kv", "cas", "a", "--if-rev", "1", "2")
	if out, _ := f.want(exitOK, "kv", "get", "a"); out != "1" {
		t.Errorf("a refused cas has written %q", out)
	}
	f.want(exitOK, "kv", "cas", "a", "--if-value", "1", "2")
	f.want(exitRefused, "kv", "del", "a", "--if-rev", first)
	second, _ := f.want(exitOK, "kv", "cas", "a", "--if-value", "2", "3")
	f.want(exitOK, "kv", "del", "a", "--if-rev", strings.TrimSpace(second))
	if _, errOut := f.want(exitRefused, "kv", "cas", "a", "--if-rev", first, "4"); !strings.Contains(errOut, "it does not exist") {
		t.Errorf("refused with %q", errOut)
	}
	f.want(exitUsage, "kv", "cas", "a", "4")
	f.want(exitUsage, "kv", "cas", "a", "--if-absent", "--if-rev", "1", "4")
}

// A watch tells from its revision on, in order, once each.
func TestKVWatchBeginsAtItsRevision(t *testing.T) {
	t.Parallel()
	f := newKeys(t)
	rev, _ := f.want(exitOK, "kv", "put", "w/a", "1")
	f.want(exitOK, "kv", "put", "w/b", "tab\there")
	f.want(exitOK, "kv", "put", "x", "other")
	f.want(exitOK, "kv", "del", "w/a")
	var at int
	fmt.Sscan(rev, &at)
	want := fmt.Sprintf("%d\tput\tw/a\t1\n%d\tput\tw/b\t\"tab\\there\"\n%d\tdelete\tw/a\n", at, at+1, at+3)
	if out, _ := f.want(exitOK, "kv", "watch", "w/", "--prefix", "--rev", strings.TrimSpace(rev), "--limit", "3"); out != want {
		t.Errorf("watch:\n%swant\n%s", out, want)
	}
	out, _ := f.want(exitOK, "kv", "watch", "w/a", "--rev", strings.TrimSpace(rev), "--limit", "2", "-o", "json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var ev struct {
		Type string
		KV   struct {
			Key         []byte
			ModRevision string `json:"mod_revision"`
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &ev); err != nil || len(lines) != 2 || ev.Type != "DELETE" || string(ev.KV.Key) != "w/a" || ev.KV.ModRevision != fmt.Sprint(at+3) {
		t.Errorf("json: %v\n%s", err, out)
	}
	f.want(exitUsage, "kv", "watch", "w/", "--until", "2")
}

// A watch goes on over the death of its server: nothing is missing, nothing comes twice.
func TestKVWatchResumes(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	kept, err := cluster.FreePorts(1) // nobody takes it while the server is down
	if err != nil {
		t.Fatal(err)
	}
	ports := slices.Clone(freePorts)
	ports[slices.Index(ports, "--grpc-addr")+1] = fmt.Sprintf("127.0.0.1:%d", kept[0])
	args := append([]string{"dev", "--keyspace", "unused", "--data-dir", data, "-o", "json"}, ports...)
	p := startProgram(t, args...)
	f := &field{t: t, server: devAddr(t, p)}
	f.want(exitOK, "kv", "put", "w/0", "0")
	w := f.holding("kv", "watch", "w/", "--prefix", "--rev", "1")
	var want strings.Builder
	put := func(i int) {
		t.Helper()
		rev, _ := f.want(exitOK, "kv", "put", fmt.Sprintf("w/%d", i), "x")
		fmt.Fprintf(&want, "%s\tput\tw/%d\tx\n", strings.TrimSpace(rev), i)
	}
	put(1)
	f.until("what was put first", func() bool { return strings.HasSuffix(w.cli.stdout.String(), want.String()) })
	p.cmd.Process.Kill()
	p.cmd.Wait()
	devAddr(t, startProgram(t, args...))
	put(2)
	put(3)
	f.until("the rest", func() bool { return strings.HasSuffix(w.cli.stdout.String(), want.String()) })
	w.end(t)
	if n := strings.Count(w.cli.stdout.String(), "\n"); n != 4 {
		t.Errorf("%d lines:\n%s", n, w.cli.stdout.String())
	}
}
