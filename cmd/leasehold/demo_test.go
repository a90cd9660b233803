package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
)

// built is the binary as a user builds it, once for all tests, in a directory of
// TestMain's: demo and bench start copies of it, which the test binary cannot
// stand in for.
var built = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(builtDir, "leasehold")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return bin, nil
})

// buildBinary gives a test the binary under a name of its own, by which its
// processes can be told from those of other tests.
func buildBinary(t *testing.T) string {
	t.Helper()
	original, err := built()
	bin := filepath.Join(t.TempDir(), "leasehold")
	if err == nil {
		err = os.Link(original, bin)
	}
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// runBinary runs it, in a directory for temporary files of its own, and
// returns exit code and output. Nothing may be left of it: no file, no process.
func runBinary(t *testing.T, bin string, started func(*exec.Cmd, []byte), args ...string) (code int, stdout, stderr string) {
	t.Helper()
	code, stdout, stderr, left := runBinaryOnce(t, bin, started, args...)
	if len(left) > 0 {
		t.Errorf("%v: files are left: %v", args, left)
	}
	return code, stdout, stderr
}

// runBinaryOnce returns the files that are left, too.
func runBinaryOnce(t *testing.T, bin string, started func(*exec.Cmd, []byte), args ...string) (code int, stdout, stderr string, left []os.DirEntry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	tmp := t.TempDir()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if started != nil {
		cmd.Stdout = writerFunc(func(p []byte) (int, error) {
			started(cmd, p)
			return out.Write(p)
		})
	}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s%s", args, err, out.String(), errs.String())
	}
	if left := processesOf(t, bin); len(left) > 0 {
		t.Errorf("%v: processes are left: %v", args, left)
	}
	left, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String(), left
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// processesOf lists the processes that run a binary, where /proc tells.
func processesOf(t *testing.T, bin string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && exe == bin {
			found = append(found, filepath.Dir(link))
		}
	}
	return found
}

// lastLine decodes the last line of standard output.
func lastLine(t *testing.T, stdout string, into any) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	dec := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		t.Fatalf("decode the last line: %v\n%s", err, stdout)
	}
}

// stoodStill tells whether all that is wrong with a run is that leases did not
// outlive the leader's death, and the machine took so long to elect another that
// they could not: of the TTL of 3 s there are 1.7 s left for that, three election
// timeouts and a bit, when the last keep-alive is as old as it may be.
func stoodStill(r demo.Result, story string) bool {
	return len(r.Modes) == 1 && r.Modes[0].LeaderChangeMoves > 0 && r.Modes[0].LeaderFailover.Max > 1500 && strings.Count(story, "✗") == 1
}

func TestDemoHolds(t *testing.T) {
	bin := buildBinary(t)
	var r demo.Result
	var code int
	var stdout, story string
	for try := 1; ; try++ {
		var left []os.DirEntry
		code, stdout, story, left = runBinaryOnce(t, bin, nil, "demo", "--strict", "--partitions", "16", "--workers", "3", "-o", "json")
		if code != exitOK && code != exitFailed || stdout == "" {
			break // there is no verdict
		}
		r = demo.Result{}
		lastLine(t, stdout, &r)
		if code == exitFailed && try < 4 && stoodStill(r, story) {
			t.Logf("another leader was there after %.0f ms: once more", r.Modes[0].LeaderFailover.Max)
			continue
		}
		if len(left) > 0 {
			t.Errorf("files are left: %v", left)
		}
		break
	}
	if code != exitOK {
		t.Fatalf("exit code %d\n%s\n%s", code, stdout, story)
	}
	if !r.OK || len(r.Modes) != 1 {
		t.Fatalf("result %+v", r)
	}
	m := r.Modes[0]
	if m.Mode != demo.Strict || m.Partitions != 16 || m.TTLMillis != 3000 {
		t.Errorf("result of another run: %+v", m)
	}
	if m.OrdersWritten == 0 || m.OrdersMissing != 0 || m.OrdersDuplicated != 0 || m.TokenRegressions != 0 || m.Overlaps != 0 || m.LeaderChangeMoves != 0 {
		t.Errorf("the verdict holds although %+v", m)
	}
	if m.StaleWritesRejected == 0 || m.IntervalsChecked < 16 || m.Moves["initial"] != 16 {
		t.Errorf("too little happened: %+v", m)
	}
	if m.TakeoverCrash.P50 == 0 || m.TakeoverPause.P50 == 0 || m.Handoff.P50 == 0 || m.LeaderFailover.Max == 0 {
		t.Errorf("a figure was not measured: %+v", m)
	}
	for _, want := range []string{"SIGSTOP of", "writes are rejected", "orders/", " → ", "token "} {
		if !strings.Contains(story, want) {
			t.Errorf("the story does not tell %q:\n%s", want, story)
		}
	}
}

// The check of the check: without the guard the same story must end badly.
func TestDemoWithoutGuardIsDamaged(t *testing.T) {
	code, stdout, story := runBinary(t, buildBinary(t), nil, "demo", "--no-guard", "--fenced", "--partitions", "16", "--workers", "3", "-o", "json")
	if code != exitFailed {
		t.Fatalf("exit code %d\n%s\n%s", code, stdout, story)
	}
	var r demo.Result
	lastLine(t, stdout, &r)
	if r.OK || len(r.Modes) != 1 {
		t.Fatalf("result %+v", r)
	}
	if m := r.Modes[0]; m.OrdersDuplicated == 0 || m.TokenRegressions == 0 || m.StaleWritesRejected != 0 {
		t.Errorf("the zombie did no damage: %+v\n%s", m, story)
	}
}

func TestDemoEndsItsProcessesWhenInterrupted(t *testing.T) {
	t.Parallel()
	asked := false
	code, stdout, stderr := runBinary(t, buildBinary(t), func(cmd *exec.Cmd, line []byte) {
		if !asked && bytes.Contains(line, []byte("run all")) { // servers and workers are up
			asked = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}, "demo", "--strict", "--partitions", "16", "--workers", "3")
	if code != 130 || !asked {
		t.Fatalf("exit code %d, interrupted: %v\n%s%s", code, asked, stdout, stderr)
	}
}

func TestDemoRefusesBadSizes(t *testing.T) {
	for _, args := range [][]string{
		{"demo", "--workers", "2"}, {"demo", "--partitions", "0"}, {"demo", "--partitions", "-1"}, {"demo", "--partitions", "5"},
		{"demo", "--partitions", "5000"}, {"demo", "--seed", "x"}, {"demo", "extra"},
		{"bench", "assign", "--partitions", "0"}, {"bench", "handoff", "--handoffs", "0"}, {"bench", "takeover", "--workers", "1"},
		{"bench", "sessions", "--sessions", "-5"}, {"bench", "sessions", "--for", "0s"}, {"bench", "sessions", "--for", "10"}, {"bench", "nothing"},
	} {
		c := &cli{}
		if code := c.run(t, args...); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d\n%s", args, code, exitUsage, c.stderr.String())
		}
	}
}

func TestBenches(t *testing.T) {
	bin := buildBinary(t)
	for _, b := range []struct {
		args []string
		want []string // fields that must be above 0
	}{
		{[]string{"assign", "--workers", "4", "--processes", "2", "--partitions", "500"}, []string{"seconds"}},
		{[]string{"takeover", "--kills", "1", "--workers", "2", "--partitions", "16"}, []string{"ops_per_second", "p50_ms", "p99_ms"}},
		{[]string{"handoff", "--handoffs", "8", "--workers", "2", "--partitions", "8", "--strict"}, []string{"ops_per_second", "p50_ms", "p99_ms"}},
		{[]string{"sessions", "--sessions", "50", "--processes", "2", "--for", "2s"}, []string{"seconds"}},
	} {
		code, stdout, stderr := runBinary(t, bin, nil, append(append([]string{"bench"}, b.args...), "-o", "json")...)
		if code != exitOK {
			t.Errorf("%v: exit code %d\n%s%s", b.args, code, stdout, stderr)
			continue
		}
		var r map[string]any
		lastLine(t, stdout, &r)
		for _, field := range b.want {
			if v, ok := r[field].(float64); !ok || v <= 0 {
				t.Errorf("%v: %s is %v in %s", b.args, field, r[field], stdout)
			}
		}
	}
}
