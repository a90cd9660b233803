package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/sidecar"
)

// hold starts `leasehold hold` with a script for sh.
func (f *field) hold(script string, flags ...string) *program {
	f.t.Helper()
	args := append([]string{"hold", "--server", f.server, f.keyspace, "--log-format", "text"}, flags...)
	return startProgram(f.t, append(args, "--", "sh", "-c", f.prelude()+script)...)
}

func (p *program) code() int {
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func TestHoldEndsWithItsCommandsCode(t *testing.T) {
	t.Parallel()
	f := newField(t, 1, "--ttl", "10s")
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137} {
		if p := f.hold(script); p.code() != want {
			t.Errorf("%s: exit code %d, want %d\n%s", script, p.code(), want, p.stderr)
		}
	}
}

// Standard input, output and arguments are the command's, byte for byte.
func TestHoldPassesBytesUnchanged(t *testing.T) {
	t.Parallel()
	f := newField(t, 1, "--ttl", "10s")
	cmd := exec.Command(os.Args[0], "hold", f.keyspace, "--server", f.server, "--", "sh", "-c", `cat; printf %s "$1$NOTE"`, "sh", "\xff\xfe")
	cmd.Env = append(os.Environ(), asProgramEnv+"=1", "NOTE=\xe9")
	cmd.Stdin = strings.NewReader("from stdin ")
	out, err := cmd.Output()
	if want := "from stdin \xff\xfe\xe9"; err != nil || string(out) != want {
		t.Errorf("output %q, %v; want %q", out, err, want)
	}
}

// One at a time; who does not want to wait hears who has it; the next one comes
// when the first has ended, at once.
func TestHoldTakesTurns(t *testing.T) {
	t.Parallel()
	f := newField(t, 1, "--ttl", "10s")
	first := f.hold(`trap 'say bye; exit 3' TERM; beat first`, "--id", "w1")
	f.until("the first", func() bool { return len(f.said("first")) > 5 })
	// Nothing is started, so it can run in this process.
	_, errOut := f.want(exitRefused, "hold", f.keyspace, "--wait", "0", "--", "true")
	if !strings.Contains(errOut, "held by w1") {
		t.Errorf("who has it? %s", errOut)
	}
	began := time.Now()
	late := f.hold("say late", "--wait", "300ms")
	code := late.code()
	if took := time.Since(began); code != exitRefused || took < 300*time.Millisecond || !strings.Contains(late.stderr.String(), "held by w1, and --wait is 300ms") {
		t.Errorf("exit code %d after %v: %s", code, took, late.stderr)
	}
	second := f.hold(`say second`)
	first.cmd.Process.Signal(syscall.SIGTERM)
	if code := first.code(); code != 3 {
		t.Errorf("first: exit code %d, want its command's 3\n%s", code, first.stderr)
	}
	if code := second.code(); code != 0 || len(f.said("second")) != 1 || len(f.said("bye")) != 1 {
		t.Errorf("second: exit code %d\n%s", code, second.stderr)
	}
	f.neverTwo()
}

// 75: the lease was lost, the command was stopped.
func TestHoldLosesItsLease(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	p := f.hold(`trap '' TERM; beat old`, "--id", "w1")
	f.until("the command", func() bool { return len(f.said("old")) > 5 })
	f.want(exitOK, "workers", "evict", "w1", "--yes")
	if code := p.code(); code != sidecar.CodeLostLease {
		t.Errorf("exit code %d, want %d\n%s", code, sidecar.CodeLostLease, p.stderr)
	}
}

func TestHoldCreates(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	f.keyspace = "fresh"
	f.want(exitNotFound, "hold", "fresh", "--wait", "0", "--", "true")
	for range 2 { // the second finds it
		if p := f.hold("exit 0", "--create", "--wait", "0", "--ttl", "7s"); p.code() != 0 {
			t.Errorf("exit code %d\n%s", p.code(), p.stderr)
		}
	}
	out, _ := f.want(exitOK, "keyspace", "show", "fresh")
	if !strings.Contains(out, "7s") {
		t.Errorf("its TTL:\n%s", out)
	}
}
