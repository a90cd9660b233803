package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/sidecar"
)

// A command per partition, with its lease in the environment; SIGTERM ends all
// in order.
func TestRunGivesEachPartitionACommand(t *testing.T) {
	t.Parallel()
	f := newField(t, 3)
	p := f.sidecar("w1", `trap 'say done; exit 0' TERM
echo "$LEASEHOLD_KEYSPACE $LEASEHOLD_PARTITIONS $LEASEHOLD_RANGE $LEASEHOLD_TTL $LEASEHOLD_TTL_MS $LEASEHOLD_OWNER"
say up; while :; do sleep 0.05; done`, "--prefix", "on")
	f.heard("up", 3)
	tokens := map[uint64]bool{}
	for _, l := range f.said("up") {
		out, _ := f.want(exitOK, "partitions", "show", "jobs", strconv.FormatUint(l.partition, 10), "-o", "json")
		if !strings.Contains(strings.ReplaceAll(out, " ", ""), fmt.Sprintf(`"token":"%d"`, l.token)) {
			t.Errorf("partition %d runs under token %d: %s", l.partition, l.token, out)
		}
		tokens[l.token] = true
	}
	if len(tokens) != 3 {
		t.Errorf("tokens %v", tokens)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	out := readAll(t, p)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if n := len(f.said("done")); n != 3 {
		t.Errorf("%d commands finished in order, want 3", n)
	}
	if want := "[jobs/1] jobs 3 5555555555555556-aaaaaaaaaaaaaaaa 2s 2000 w1\n"; !strings.Contains(out, want) {
		t.Errorf("output %q, want a line %q", out, want)
	}
	f.want(exitOK, "keyspace", "show", "jobs")
}

func readAll(t *testing.T, p *program) string {
	t.Helper()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := p.stdout.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}

// A planned move asks with SIGTERM; who needs time has the drain's budget, who
// does not listen is killed when it is over, and only then the next one begins.
func TestRunDrainsWithItsBudget(t *testing.T) {
	t.Parallel()
	f := newField(t, 2)
	f.sidecar("w1", `if [ $LEASEHOLD_PARTITION = 0 ]; then trap 'say asked; sleep 0.3; say finished; exit 0' TERM
else trap 'say deaf' TERM; fi
beat old`)
	f.heard("old", 2) // both have set their traps
	f.owner(0, "w1")
	f.owner(1, "w1")
	f.sidecar("w2", "beat new")
	f.want(exitOK, "workers", "drain", "w1")
	f.owner(0, "w2")
	f.owner(1, "w2")
	f.heard("new", 2)
	if len(f.said("asked")) != 1 || len(f.said("finished")) != 1 {
		t.Errorf("asked %v, finished %v: it has 2 s", f.said("asked"), f.said("finished"))
	}
	var deaf, last time.Duration
	for _, l := range f.lines() {
		if l.partition == 1 && l.word == "deaf" && deaf == 0 {
			deaf = l.at
		}
		if l.partition == 1 && l.word == "old" {
			last = l.at
		}
	}
	if lived := last - deaf; deaf == 0 || lived < time.Second || lived > 3*time.Second {
		t.Errorf("a command that ignores SIGTERM lived for %v after it, want about 1.8 s of the 2 s", lived)
	}
	f.neverTwo()
}

// A command that ends at once for ever is started less and less often, however
// often the partition comes back; and it is known to the servers.
func TestRunBacksOff(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	f.sidecar("w1", "say up; exit 7")
	f.until("a third start", func() bool { return len(f.said("up")) >= 3 })
	ups := f.said("up")
	// 0.5 s and 1 s, less the jitter of a quarter.
	if a, b := ups[1].at-ups[0].at, ups[2].at-ups[1].at; a < 350*time.Millisecond || b < 700*time.Millisecond {
		t.Errorf("started again after %v and %v", a, b)
	}
	if ups[0].token >= ups[1].token || ups[1].token >= ups[2].token {
		t.Errorf("the lease was not given back in between: %v", ups)
	}
	eventually(t, f.server, "failed on   1 workers", "partitions", "show", f.keyspace, "0")
}

// Exit code 0 gives the partition back; a start a second is the most. (The pause
// counts from when the command was asked for, and a shell may be slow to speak.)
func TestRunCommandThatIsDoneYields(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	f.sidecar("w1", "say up; exit 0")
	f.until("a third start", func() bool { return len(f.said("up")) >= 3 })
	if ups := f.said("up"); ups[2].at-ups[0].at < time.Second || ups[1].token <= ups[0].token || ups[2].token <= ups[1].token {
		t.Errorf("starts %v", ups)
	}
	out, _ := f.want(exitOK, "partitions", "show", f.keyspace, "0")
	if strings.Contains(out, "failure") {
		t.Errorf("it counts as a failure:\n%s", out)
	}
}

// An evicted sidecar does not come back, and says that its leases are lost.
func TestRunEvicted(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	p := f.sidecar("w1", `trap '' TERM; beat old`)
	f.until("the command", func() bool { return len(f.said("old")) > 5 })
	f.want(exitOK, "workers", "evict", "w1", "--yes")
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != sidecar.CodeLostLease {
		t.Errorf("exit code %d, want %d\n%s", code, sidecar.CodeLostLease, p.stderr)
	}
	if n := len(f.said("old")); f.silence("old") == 0 || n == 0 {
		t.Error("no evidence")
	}
}

// Two sidecars of one name: the second is refused and told what to do.
func TestRunNameInUse(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	f.sidecar("w1", "beat old")
	f.until("the command", func() bool { return len(f.said("old")) > 5 })
	p := f.sidecar("w1", "beat new")
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != exitRefused || !strings.Contains(p.stderr.String(), "--id") {
		t.Errorf("exit code %d, want %d\n%s", code, exitRefused, p.stderr)
	}
	if n := len(f.said("new")); n > 0 {
		t.Error("both work")
	}
}

// Bad input is named before anything is started.
func TestRunRefusesNonsense(t *testing.T) {
	t.Parallel()
	f := newField(t, 2)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.want(exitOK, "keyspace", "create", "quick", "--ttl", "1200ms", "--partitions", "1")
	for _, c := range []struct {
		args string
		code int
		say  string
	}{
		{"run", exitUsage, "CMD is missing"},
		{"run --keyspace jobs --", exitUsage, "CMD is missing"},
		{"run --keyspace jobs", exitUsage, "CMD is missing"},
		{"run --keyspace jobs true", exitUsage, `"true": put -- before the command`},
		{"run jobs -- true", exitUsage, `"jobs" is one argument too many`},
		{"run -- true", exitUsage, "--keyspace is missing"},
		{"run --keyspace a/b -- true", exitUsage, "a/b"},
		{"run --keyspace jobs --mode both -- true", exitUsage, "want per-partition or per-worker"},
		{"run --keyspace jobs --prefix maybe -- true", exitUsage, "want auto, on or off"},
		{"run --keyspace jobs --stop-grace 1 -- true", exitUsage, "without a unit"},
		{"run --keyspace jobs --stop-grace 3s -- true", exitUsage, "stop grace 3s: at most 750ms"},
		{"run --keyspace jobs --stop-grace 40m -- true", exitUsage, "stop grace 40m0s"},
		{"run --keyspace jobs --shutdown-timeout 2h -- true", exitUsage, "limit of 1h"},
		{"run --keyspace jobs --capacity -1 -- true", exitUsage, "-1"},
		{"run --keyspace jobs --id a/b -- true", exitUsage, "ID"},
		{"run --keyspace jobs --gossip here -- true", exitUsage, "Gossip"},
		{"run --keyspace " + strings.Repeat("k", 200) + " -- true", exitUsage, "at most 126"},
		{"run --keyspace nosuch -- true", exitNotFound, "nosuch"},
		{"run --keyspace jobs -- nosuchcommand", sidecar.CodeNotFound, "nosuchcommand"},
		{"run --keyspace jobs -- /nosuch/command", sidecar.CodeNotFound, "/nosuch/command"},
		{"run --keyspace jobs -- " + script, sidecar.CodeNotExecutable, "permission denied"},
		{"hold", exitUsage, "KEYSPACE is missing"},
		{"hold -- true", exitUsage, "KEYSPACE is missing"},
		{"hold jobs", exitUsage, "CMD is missing"},
		{"hold jobs true", exitUsage, `"true": put -- before the command`},
		{"hold jobs more -- true", exitUsage, `"more" is one argument too many`},
		{"hold jobs --wait 10 -- true", exitUsage, "without a unit"},
		{"hold jobs --wait -1s -- true", exitUsage, "below 0"},
		{"hold jobs -- true", exitRefused, "it has 2 partitions"},
		{"hold jobs --create -- true", exitRefused, "it has 2 partitions"},
		{"hold nosuch -- true", exitNotFound, "nosuch"},
		{"hold fresh --create --ttl 1ms -- true", exitUsage, "ttl"},
		{"hold quick -- nosuchcommand", sidecar.CodeNotFound, "nosuchcommand"},
		{"run-keeper", exitUsage, "not by people"},
	} {
		cmd := &cli{env: map[string]string{"LEASEHOLD_SERVER": f.server}}
		code := cmd.run(t, strings.Fields(c.args)...)
		if out := cmd.stderr.String(); code != c.code || !strings.Contains(out, c.say) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s", c.args, code, c.code, c.say, out)
		}
	}
	down := &cli{env: map[string]string{"LEASEHOLD_SERVER": "127.0.0.1:1"}}
	down.want(t, exitUnreachable, "run", "--keyspace", "jobs", "--", "true")
	down.want(t, exitUnreachable, "hold", "jobs", "--", "true")
}
