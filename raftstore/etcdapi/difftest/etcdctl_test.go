package difftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ctl runs etcdctl against one cluster.
type ctl struct {
	addrs []string
	names map[string]string // what arguments stand for, such as {lease}
}

func newCtl(t *testing.T, addrs []string) *ctl {
	t.Helper()
	_, err := exec.LookPath("etcdctl")
	need(t, "etcdctl (Debian: etcd-client)", err == nil)
	return &ctl{addrs: addrs, names: map[string]string{}}
}

func (c *ctl) command(ctx context.Context, addrs []string, args ...string) *exec.Cmd {
	for i, arg := range args {
		for name, value := range c.names {
			arg = strings.ReplaceAll(arg, name, value)
		}
		args[i] = arg
	}
	cmd := exec.CommandContext(ctx, "etcdctl", args...)
	cmd.Env = []string{"ETCDCTL_API=3", "ETCDCTL_ENDPOINTS=" + strings.Join(addrs, ","), "PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}
	return cmd
}

// run returns what etcdctl prints, both outputs, and its exit code.
func (c *ctl) run(ctx context.Context, addrs []string, stdin string, args ...string) (string, int) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := c.command(ctx, addrs, append([]string{}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err.Error(), -1
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

var (
	leaseLine = regexp.MustCompile(`lease ([0-9a-f]+) granted`)
	// own is what each cluster has for itself: ids, terms, times, warnings of
	// the client's log.
	own = []*regexp.Regexp{
		regexp.MustCompile(`"(?:cluster_id|member_id|raft_term)":\d+,?`), regexp.MustCompile(`"(?:ClusterID|MemberID|RaftTerm)" : \d+`),
		regexp.MustCompile(`(?m)^\{"level":"warn".*\n`), regexp.MustCompile(`remaining\(\d+s\)`), regexp.MustCompile(`"ttl":\d+`), regexp.MustCompile(`took = \S+|took: \S+`),
		regexp.MustCompile(`"TTL" : \d+`),
	}
)

// normal blanks what each cluster has for itself.
func (c *ctl) normal(out string) string {
	if m := leaseLine.FindStringSubmatch(out); m != nil {
		id, _ := strconv.ParseInt(m[1], 16, 64)
		c.names["{lease}"], c.names["{decimal}"] = m[1], strconv.FormatInt(id, 10)
	}
	for name, value := range c.names {
		out = strings.ReplaceAll(out, value, name)
	}
	for i, addr := range c.addrs {
		out = strings.ReplaceAll(out, addr, "{addr"+strconv.Itoa(i)+"}")
	}
	for _, re := range own {
		out = re.ReplaceAllString(out, "…")
	}
	return out
}

// ctlSteps are command lines whose output is the same on both, in order; the
// text after " < " is their input.
var ctlSteps = []string{
	"put a 1", "put a 2 --prev-kv", "put a 3 -w json", "put b 4 -w json --prev-kv", "put b 5 --prev-kv -w json", "put c 6 -w fields", "put empty < ", "put d/1 x", "put d/2 y",
	"get a", "get a -w json", "get a -w fields", "get a -w simple", "get a --print-value-only", "get a c", "get a c -w json", "get d --prefix", "get d --prefix --keys-only",
	"get --from-key b", "get --from-key b --limit 2", "get --prefix --order=DESCEND --sort-by=MODIFY  d", "get --prefix --order=ASCEND --sort-by=VERSION a", "get a --rev 3", "get a --rev 3 -w json",
	"get a --consistency=s", "get a --hex", "get nothing", "get nothing -w json", "get a --rev 100000", "get --prefix --limit 1 d -w json",
	"put nothing --ignore-value", "put a --ignore-value", "put a 7 --ignore-value", "put a 8 --ignore-lease", "put a 9 --lease=123456", "put a 9 --lease=zz", "get a",
	"del a", "del a", "del b --prev-kv", "del d --prefix --prev-kv", "del --from-key zzz", "del a z -w json",
	"put t 1", "txn < mod(\"t\") > \"0\"\n\nput t 2\nget t\ndel other\n\nput t 3\n\n", "txn -w json < value(\"t\") = \"nope\"\n\nput t 4\n\nget t\nput u 5\n\n", "txn < create(\"v\") = \"0\"\nver(\"t\") > \"1\"\n\nput v 6\n\nget v\n\n",
	"txn < bad\n\n\n\n",
	"compaction 4", "compaction 4", "compaction 99999", "compaction 6 --physical", "get t --rev 2", "get t --rev 6",
	"lease grant 600", "lease timetolive {lease}", "lease timetolive {lease} --keys", "put leased 1 --lease={lease}", "lease timetolive {lease} --keys", "lease timetolive {lease} --keys -w json",
	"lease list", "lease list -w json", "lease keep-alive {lease} --once", "lease keep-alive {lease} --once -w json", "get leased -w json", "lease revoke {lease}", "lease revoke {lease}",
	"get leased", "lease timetolive {lease}", "lease keep-alive {lease} --once", "lease grant 99999999999", "lease grant zz", "lease list",
	"alarm list", "alarm disarm", "get health", "lock",
}

// TestEtcdctl runs etcdctl, step by step, on etcd and on three servers of
// Leasehold, and compares what it prints.
func TestEtcdctl(t *testing.T) {
	e, err := StartEtcd(t.TempDir(), 1)
	must(t, err)
	t.Cleanup(e.Close)
	l := leasehold(t, 3, calm)
	waitServing(t, l.Addrs)
	judge, ours := newCtl(t, e.Addrs), newCtl(t, l.Addrs)
	for i, step := range ctlSteps {
		line, stdin, _ := strings.Cut(step, " < ")
		args := strings.Fields(line)
		want, code := judge.run(t.Context(), judge.addrs, stdin, args...)
		at := l.Addrs[i%3 : i%3+1] // one after the other
		got, ourCode := ours.run(t.Context(), at, stdin, args...)
		want, got = judge.normal(want), ours.normal(got)
		for _, addr := range []string{"{addr0}", "{addr1}", "{addr2}"} {
			got, want = strings.ReplaceAll(got, addr, "{addr}"), strings.ReplaceAll(want, addr, "{addr}")
		}
		if got != want || code != ourCode {
			t.Errorf("etcdctl %s\n  etcd %d: %q\n  ours %d: %q", step, code, want, ourCode, got)
		}
	}
	t.Run("watch", func(t *testing.T) { ctlWatch(t, judge, ours) })
	t.Run("cluster", func(t *testing.T) { ctlCluster(t, ours) })
	t.Run("lock", func(t *testing.T) { ctlLock(t, ours) })
	t.Run("elect", func(t *testing.T) { ctlElect(t, ours) })
	t.Run("keep-alive", func(t *testing.T) { ctlKeepAlive(t, ours) })
	t.Run("snapshot", func(t *testing.T) { ctlSnapshot(t, ours) })
	t.Run("move-leader", func(t *testing.T) { ctlMoveLeader(t, ours) })
}

// start runs a command that goes on, and returns its lines as they come. It is
// killed when the test ends.
func (c *ctl) start(t *testing.T, args ...string) <-chan string {
	t.Helper()
	cmd := c.command(t.Context(), c.addrs, args...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		readLines(out, lines)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines {
		}
	})
	return lines
}

// next returns the next n lines.
func next(t *testing.T, lines <-chan string, n int) string {
	t.Helper()
	var got []string
	timeout := time.After(30 * time.Second)
	for len(got) < n {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("the output ended after %q", got)
			}
			got = append(got, line)
		case <-timeout:
			t.Fatalf("%d lines are to come, but in 30s there were %q", n, got)
		}
	}
	return strings.Join(got, "\n")
}

// ctlWatch watches from the past and on, in two formats.
func ctlWatch(t *testing.T, judge, ours *ctl) {
	for _, c := range []*ctl{judge, ours} {
		for _, step := range []string{"put w/1 a", "put w/1 b", "del w/1", "put w/2 c"} {
			if out, code := c.run(t.Context(), c.addrs, "", strings.Fields(step)...); code != 0 {
				t.Fatal(out)
			}
		}
	}
	for _, args := range []string{"watch w/ --prefix --rev 2000", "watch w/ --prefix --rev 6 --prev-kv", "watch w/1 --rev 6 -w fields", "watch w/ w0 --rev 6 -w json", "watch gone --rev 1"} {
		n := map[string]int{"watch w/ --prefix --rev 6 --prev-kv": 3 + 5 + 4 + 3, "watch w/1 --rev 6 -w fields": 20, "watch w/ w0 --rev 6 -w json": 1}[args]
		if args == "watch gone --rev 1" { // compacted: it ends
			want, code := judge.run(t.Context(), judge.addrs, "", strings.Fields(args)...)
			got, ourCode := ours.run(t.Context(), ours.addrs, "", strings.Fields(args)...)
			if w, g := judge.normal(want), ours.normal(got); g != w || code != ourCode {
				t.Errorf("etcdctl %s\n  etcd %d: %q\n  ours %d: %q", args, code, w, ourCode, g)
			}
			continue
		}
		want := judge.normal(next(t, judge.start(t, strings.Fields(args)...), n))
		got := ours.normal(next(t, ours.start(t, strings.Fields(args)...), n))
		if got != want {
			t.Errorf("etcdctl %s\n  etcd: %q\n  ours: %q", args, want, got)
		}
	}
}

// ctlCluster: what tells of the servers.
func ctlCluster(t *testing.T, c *ctl) {
	for _, step := range []struct {
		args string
		want []string
	}{
		{"member list", []string{"started, s1, http://", "started, s2, http://", "started, s3, http://", c.addrs[0], c.addrs[1], c.addrs[2]}},
		{"member list -w table", []string{"| started |   s1 |", "| started |   s3 |", "http://" + c.addrs[1]}},
		{"member list -w json", []string{`"name":"s1"`, `"clientURLs":["http://` + c.addrs[2] + `"]`}},
		{"endpoint status", []string{c.addrs[0] + ", ", c.addrs[1] + ", ", c.addrs[2] + ", ", "true", "3.6.0"}},
		{"endpoint status -w table", []string{"ENDPOINT", "IS LEADER", c.addrs[2], "true"}},
		{"endpoint status -w json", []string{`"version":"3.6.0"`, `"raftIndex":`, `"leader":`, `"dbSize":`}},
		{"endpoint status -w fields", []string{`"Leader" : `, `"RaftAppliedIndex" : `}},
		{"endpoint health", []string{c.addrs[0] + " is healthy", c.addrs[1] + " is healthy", c.addrs[2] + " is healthy"}},
		{"endpoint hashkv", []string{c.addrs[0] + ", ", c.addrs[1] + ", ", c.addrs[2] + ", "}},
		{"endpoint status --cluster", []string{c.addrs[0], c.addrs[1], c.addrs[2]}},
		{"endpoint health --cluster", []string{c.addrs[0] + " is healthy", c.addrs[1] + " is healthy", c.addrs[2] + " is healthy"}},
		{"defrag", []string{"Finished defragmenting etcd member[" + c.addrs[0]}},
	} {
		out, code := c.run(t.Context(), c.addrs, "", strings.Fields(step.args)...)
		if code != 0 {
			t.Errorf("etcdctl %s ended with %d: %s", step.args, code, out)
		}
		for _, want := range step.want {
			if !strings.Contains(out, want) {
				t.Errorf("etcdctl %s does not tell %q:\n%s", step.args, want, out)
			}
		}
	}
	if out, _ := c.run(t.Context(), c.addrs, "", "endpoint", "status"); strings.Count(out, ", true, false, ") != 1 {
		t.Errorf("not one server leads:\n%s", out)
	}
	hashes := map[string]bool{}
	out, _ := c.run(t.Context(), c.addrs, "", "endpoint", "hashkv")
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		hashes[line[strings.LastIndex(line, " ")+1:]] = true
	}
	if len(hashes) != 1 {
		t.Errorf("the servers' hashes differ:\n%s", out)
	}
	for _, none := range []string{"user list", "role list"} {
		if out, code := c.run(t.Context(), c.addrs, "", strings.Fields(none)...); code != 0 || strings.TrimSpace(out) != "" {
			t.Errorf("etcdctl %s ended with %d: %s", none, code, out)
		}
	}
	for _, refused := range []string{"member add s4 --peer-urls=http://127.0.0.1:1", "member remove 1", "member update 1 --peer-urls=http://127.0.0.1:1", "user add root:x", "role add r", "auth enable"} {
		if out, code := c.run(t.Context(), c.addrs, "", strings.Fields(refused)...); code == 0 || strings.Contains(out, "nknown service") || !strings.Contains(out, "etcdserver: ") {
			t.Errorf("etcdctl %s ended with %d: %s", refused, code, out)
		}
	}
}

// ctlLock: one has the lock, another waits, a command runs under it.
func ctlLock(t *testing.T, c *ctl) {
	first := c.command(t.Context(), c.addrs, "lock", "ctl-lock")
	out, err := first.StdoutPipe()
	must(t, err)
	must(t, first.Start())
	lines := make(chan string, 10)
	go func() { defer close(lines); readLines(out, lines) }()
	if key := next(t, lines, 1); !strings.HasPrefix(key, "ctl-lock/") {
		t.Errorf("lock printed %q", key)
	}
	second := c.start(t, "lock", "ctl-lock", "--", "echo", "under the lock")
	must(t, poll(within(t, 30*time.Second), 20*time.Millisecond, func() bool {
		out, _ := c.run(t.Context(), c.addrs, "", "get", "--prefix", "--keys-only", "ctl-lock/")
		return strings.Count(out, "ctl-lock/") == 2
	}))
	must(t, first.Process.Signal(os.Interrupt))
	if out := next(t, second, 1); out != "under the lock" {
		t.Errorf("the command under the lock printed %q", out)
	}
	_ = first.Wait()
}

// ctlElect: a leader, a listener, a successor.
func ctlElect(t *testing.T, c *ctl) {
	listen := c.start(t, "elect", "-l", "ctl-office")
	first := c.command(t.Context(), c.addrs, "elect", "ctl-office", "anna")
	out, err := first.StdoutPipe()
	must(t, err)
	must(t, first.Start())
	lines := make(chan string, 10)
	go func() { defer close(lines); readLines(out, lines) }()
	if got := next(t, lines, 2); !strings.HasPrefix(got, "ctl-office/") || !strings.HasSuffix(got, "\nanna") {
		t.Errorf("elect printed %q", got)
	}
	second := c.start(t, "elect", "ctl-office", "bert")
	if got := next(t, listen, 2); !strings.HasSuffix(got, "\nanna") {
		t.Errorf("the listener printed %q", got)
	}
	must(t, first.Process.Signal(os.Interrupt))
	_ = first.Wait()
	if got := next(t, second, 2); !strings.HasSuffix(got, "\nbert") {
		t.Errorf("the successor printed %q", got)
	}
	if got := next(t, listen, 2); !strings.HasSuffix(got, "\nbert") {
		t.Errorf("the listener printed %q", got)
	}
}

// ctlKeepAlive keeps a short lease, and says so when it is revoked.
func ctlKeepAlive(t *testing.T, c *ctl) {
	out, code := c.run(t.Context(), c.addrs, "", "lease", "grant", "3")
	m := leaseLine.FindStringSubmatch(out)
	if code != 0 || m == nil {
		t.Fatal(out)
	}
	kept := c.start(t, "lease", "keep-alive", m[1])
	if got, want := next(t, kept, 3), "lease "+m[1]+" keepalived with TTL(3)"; strings.Count(got, want) != 3 {
		t.Errorf("keep-alive printed %q", got)
	}
	if out, code := c.run(t.Context(), c.addrs, "", "lease", "revoke", m[1]); code != 0 {
		t.Error(out)
	}
	for line := range kept {
		if line == fmt.Sprintf("lease %s expired or revoked.", m[1]) {
			return
		}
	}
	t.Error("keep-alive did not tell of the end")
}

// ctlSnapshot saves what has the length of a snapshot of etcd. Its body is
// Leasehold's: etcdctl's look into it is not expected to work.
func ctlSnapshot(t *testing.T, c *ctl) {
	path := filepath.Join(t.TempDir(), "saved")
	out, code := c.run(t.Context(), c.addrs[:1], "", "snapshot", "save", path)
	if code != 0 || !strings.Contains(out, "Snapshot saved at "+path) {
		t.Fatalf("snapshot save ended with %d: %s", code, out)
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Size()%512 != 32 {
		t.Errorf("the snapshot has %d bytes: that is not blocks and a sum", info.Size())
	}
	out, code = c.run(t.Context(), c.addrs[:1], "", "snapshot", "status", path)
	t.Logf("snapshot status ends with %d: %s", code, strings.TrimSpace(out))
}

// ctlMoveLeader moves the leadership to each follower, asked at the leader, and
// is refused elsewhere.
func ctlMoveLeader(t *testing.T, c *ctl) {
	leader, follower, id := c.leader(t)
	if out, code := c.run(t.Context(), []string{follower}, "", "move-leader", id); code == 0 || !strings.Contains(out, "no leader endpoint given at") {
		t.Errorf("move-leader at a follower ended with %d: %s", code, out)
	}
	out, code := c.run(t.Context(), []string{leader}, "", "move-leader", id)
	if code != 0 || !strings.Contains(out, "Leadership transferred from ") {
		t.Fatalf("move-leader ended with %d: %s", code, out)
	}
	must(t, poll(within(t, 30*time.Second), 50*time.Millisecond, func() bool {
		now, _, _ := c.leader(t)
		return now == follower
	}))
}

// leader returns the addresses of the leader and of a follower, and the
// latter's id.
func (c *ctl) leader(t *testing.T) (leader, follower, id string) {
	t.Helper()
	must(t, poll(within(t, 30*time.Second), 50*time.Millisecond, func() bool {
		out, _ := c.run(t.Context(), c.addrs, "", "endpoint", "status")
		leader, follower = "", ""
		for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
			f := strings.Split(line, ", ")
			switch {
			case len(f) < 6:
				return false
			case f[4] == "true":
				leader = f[0]
			default:
				follower, id = f[0], f[1]
			}
		}
		return leader != "" && follower != ""
	}))
	return leader, follower, id
}
