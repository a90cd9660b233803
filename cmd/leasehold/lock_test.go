package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/sidecar"
)

// Case O-63: SIGTERM to a holder whose job takes 3 s. The place is given back when the job
// has returned, or was killed at the stop deadline, and never while it works.
func TestLockIsGivenBackAfterTheJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		deadline    string
		least, most time.Duration // from SIGTERM to the end of the job
		code        int
	}{{"10s", 2 * time.Second, 8 * time.Second, 3}, {"1s", 400 * time.Millisecond, 2800 * time.Millisecond, 137}} { // 3 s and 1 s, on a busy machine
		t.Run(c.deadline, func(t *testing.T) {
			t.Parallel()
			f := newKeys(t)
			// The job goes on writing for 3 s after it has heard of its end.
			first := f.locked(`(trap '' TERM; beat first) & trap 'say asked; sleep 3; exit 3' TERM; while :; do wait; done`,
				"lock", "job", "--shutdown-timeout", c.deadline)
			f.until("the first", func() bool { return len(f.said("first")) > 5 })
			second := f.locked(`trap 'exit 0' TERM; beat second`, "lock", "job")
			waiting(t, f, "job/", 2)
			first.cmd.Process.Signal(syscall.SIGTERM)
			if code := first.code(); code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, first.stderr)
			}
			f.until("the second", func() bool { return len(f.said("second")) > 5 })
			second.cmd.Process.Signal(syscall.SIGTERM)
			second.code()
			asked, job := f.said("asked"), f.said("first")
			if len(asked) != 1 {
				t.Fatalf("asked %v", asked)
			}
			if took := job[len(job)-1].at - asked[0].at; took < c.least || took > c.most {
				t.Errorf("the job worked for %v after it was asked, want %v to %v", took, c.least, c.most)
			}
			if idle := f.said("second")[0].at - job[len(job)-1].at; idle > 5*time.Second {
				t.Errorf("the next one came %v after the job had ended", idle)
			}
			if a, b := job[0].token, f.said("second")[0].token; a == 0 || b <= a {
				t.Errorf("tokens %d, then %d", a, b)
			}
			f.neverTwo()
		})
	}
}

// waiting waits until so many keys begin with a prefix.
func waiting(t *testing.T, f *field, prefix string, n int) {
	t.Helper()
	eventually(t, f.server, fmt.Sprintln(n), "kv", "get", prefix, "--prefix", "--count")
}

// A holder that is stopped past its session stops nothing itself: its keeper does, before
// the next one is let in.
func TestLockStoppedHolderLosesItsCommand(t *testing.T) {
	t.Parallel()
	f := newKeys(t)
	first := f.locked(`trap '' TERM; beat first`, "lock", "job", "--ttl", "2s")
	f.until("the first", func() bool { return len(f.said("first")) > 5 })
	second := f.locked(`say second`, "lock", "job")
	waiting(t, f, "job/", 2)
	first.cmd.Process.Signal(syscall.SIGSTOP)
	if code := second.code(); code != 0 {
		t.Errorf("second: %d\n%s", code, second.stderr)
	}
	first.cmd.Process.Signal(syscall.SIGCONT)
	if code := first.code(); code != sidecar.CodeLostLease {
		t.Errorf("first: exit code %d, want %d\n%s", code, sidecar.CodeLostLease, first.stderr)
	}
	f.neverTwo()
}

// A session that has ended at the servers: the command is stopped, the code is 75, and what
// a command finds is in its environment.
func TestLockLosesItsSession(t *testing.T) {
	t.Parallel()
	f := newKeys(t)
	first := f.locked(`trap 'say bye; exit 0' TERM; echo "$LEASEHOLD_SESSION $LEASEHOLD_LOCK_KEY $LEASEHOLD_LOCK_REVISION"; beat first`, "lock", "job", "--ttl", "8s", "--stop-grace", "3s")
	var id int64
	var key string
	var revision int64
	if _, err := fmt.Fscan(first.stdout, &id, &key, &revision); err != nil || key != fmt.Sprintf("job/%x", id) || revision < 2 {
		t.Fatalf("session %d, key %q, revision %d: %v", id, key, revision, err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{f.server}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Revoke(t.Context(), clientv3.LeaseID(id)); err != nil {
		t.Fatal(err)
	}
	if code := first.code(); code != sidecar.CodeLostLease || len(f.said("bye")) != 1 || !strings.Contains(first.stderr.String(), "session was lost") {
		t.Errorf("exit code %d, said %v\n%s", code, f.said("bye"), first.stderr)
	}
}

// holdingLock is a `lock NAME` without a command, in this process.
type holdingLock struct {
	cli  *cli
	stop context.CancelFunc
	done sync.WaitGroup
	code int
}

func (f *field) holding(args ...string) *holdingLock {
	ctx, stop := context.WithCancel(f.t.Context())
	h := &holdingLock{cli: &cli{env: map[string]string{"LEASEHOLD_SERVER": f.server}, ctx: ctx}, stop: stop}
	h.done.Go(func() { h.code = h.cli.run(f.t, args...) })
	f.t.Cleanup(func() { stop(); h.done.Wait() })
	return h
}

// end ends it and wants it to have ended well.
func (h *holdingLock) end(t *testing.T) {
	t.Helper()
	h.stop()
	h.done.Wait()
	if h.code != exitOK {
		t.Errorf("exit %d\n%s", h.code, h.cli.stderr.String())
	}
}

// Case O-61: ordinary keys below a name, and names that begin with one another, block nobody.
func TestLockNamesAreTheirOwn(t *testing.T) {
	t.Parallel()
	f := newKeys(t)
	f.want(exitOK, "kv", "put", "path/1", "v")
	f.want(exitOK, "kv", "put", "a/b/00", "v")
	var all []*holdingLock
	tokens := map[string]bool{}
	for _, name := range []string{"path", "a", "a/", "a/b", "ab"} {
		h := f.holding("lock", name)
		f.until("lock "+name, func() bool { return strings.HasSuffix(h.cli.stdout.String(), "\n") })
		key, token, _ := strings.Cut(strings.TrimSpace(h.cli.stdout.String()), "\t")
		if !strings.HasPrefix(key, name+"/") || tokens[token] {
			t.Errorf("lock %s: key %q, token %q", name, key, token)
		}
		tokens[token] = true
		all = append(all, h)
	}
	f.want(exitRefused, "lock", "a", "--wait", "0")
	all[1].end(t)
	next := f.holding("lock", "a", "--wait", "1m")
	f.until("lock a", func() bool { return strings.HasSuffix(next.cli.stdout.String(), "\n") })
	for i, h := range append(all, next) {
		if i != 1 {
			h.end(t)
		}
	}
	if out, _ := f.want(exitOK, "kv", "get", "", "--prefix", "--keys-only"); out != "a/b/00\npath/1\n" {
		t.Errorf("left behind: %q", out)
	}
}

// Who leads is told at once and at each change; nobody is an empty line.
func TestElectTellsWhoLeads(t *testing.T) {
	t.Parallel()
	f := newKeys(t)
	f.want(exitOK, "kv", "put", "e/aa", "no candidate")
	seen := f.holding("elect", "-l", "e")
	f.until("nobody", func() bool { return seen.cli.stdout.String() == "\n" })
	a := f.holding("elect", "e", "A")
	f.until("A", func() bool { return seen.cli.stdout.String() == "\nA\n" })
	b := f.holding("elect", "e", "B")
	waiting(t, f, "e/", 3)
	a.end(t)
	f.until("B", func() bool { return seen.cli.stdout.String() == "\nA\nB\n" })
	b.end(t)
	f.until("nobody again", func() bool { return seen.cli.stdout.String() == "\nA\nB\n\n" })
	seen.end(t)
}

// Case O-66: the order of bytes is that of creation over every change of width, no number
// comes twice, also after a delete and a restart, and behind the last one there is an error.
func TestSeqKeepsItsOrderOverEveryWidth(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	serve := func() *field {
		p := startProgram(t, append([]string{"dev", "--keyspace", "unused", "--data-dir", data, "-o", "json"}, freePorts...)...)
		return &field{t: t, dev: p, server: devAddr(t, p)}
	}
	f := serve()
	var numbers []uint64
	draw := func(after ...string) {
		t.Helper()
		out, _ := f.want(exitOK, append([]string{"seq", "n", "x"}, after...)...)
		n, err := strconv.ParseUint(strings.TrimSpace(out), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	for _, last := range []uint64{8, 98, 9_999_999_998, 1<<31 - 2 + 1<<40} {
		draw("--after", fmt.Sprint(last))
		draw()
		draw()
	}
	f.want(exitOK, "kv", "del", fmt.Sprintf("n/%019d", numbers[len(numbers)-1]))
	draw()
	f.dev.cmd.Process.Signal(syscall.SIGKILL)
	f.dev.cmd.Wait()
	f = serve()
	draw()
	draw("--after", fmt.Sprint(uint64(1<<63-2)))
	if last := numbers[len(numbers)-1]; last != 1<<63-1 {
		t.Errorf("the last number is %d", last)
	}
	if _, errOut := f.want(exitRefused, "seq", "n", "x"); !strings.Contains(errOut, "9223372036854775807") {
		t.Errorf("after the last one: %s", errOut)
	}
	if !slices.IsSorted(numbers) || len(slices.Compact(slices.Clone(numbers))) != len(numbers) {
		t.Errorf("numbers %v", numbers)
	}
	out, _ := f.want(exitOK, "kv", "get", "n/", "--prefix", "--keys-only")
	var want strings.Builder
	for i, n := range numbers {
		if i != 11 { // deleted
			fmt.Fprintf(&want, "n/%019d\n", n)
		}
	}
	if out != want.String() {
		t.Errorf("in the order of bytes:\n%swant\n%s", out, want.String())
	}
}

// Who reads only the exit code must not believe that the job has run: 127 and 126 as
// shells have them, when the command is looked up and when it is executed.
func TestLockThatCannotRunItsCommandFails(t *testing.T) {
	t.Parallel()
	f := newKeys(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/there/is/no/such/shell\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		args []string
	}{
		{127, []string{"lock", "job", "--", "/there/is/no/such/command"}},
		{126, []string{"elect", "job", "me", "--", "/"}},
		{127, []string{"semaphore", "job", "3", "--", script}},
		{127, []string{"session", "--", "there-is-no-such-command"}},
	} {
		p := startProgram(t, append(c.args[:1:1], append([]string{"--server", f.server}, c.args[1:]...)...)...)
		if code := p.code(); code != c.code || !strings.Contains(p.stderr.String(), "start ") {
			t.Errorf("%v: exit code %d, want %d\n%s", c.args, code, c.code, p.stderr)
		}
	}
}
