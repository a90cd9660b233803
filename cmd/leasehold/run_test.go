package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/sidecar"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// field is a server with one keyspace, and what commands wrote about
// themselves.
type field struct {
	t        *testing.T
	server   string
	keyspace string
	evidence string
}

// newField starts a server. Its keyspace has a TTL of 2 s and a handoff timeout
// of 2 s, unless the settings say otherwise.
func newField(t *testing.T, partitions int, settings ...string) *field {
	t.Helper()
	p := startProgram(t, append([]string{"dev", "--keyspace", "unused", "-o", "json"}, freePorts...)...)
	var d devResult
	if err := json.NewDecoder(p.stdout).Decode(&d); err != nil {
		t.Fatal(err)
	}
	f := &field{t, d.GRPCAddr, "jobs", filepath.Join(t.TempDir(), "evidence")}
	f.want(exitOK, append([]string{"keyspace", "create", f.keyspace, "--partitions", strconv.Itoa(partitions), "--ttl", "2s",
		"--handoff-timeout", "2s", "--initial-delay", "0s"}, settings...)...)
	return f
}

// want runs a command line that must end with the code.
func (f *field) want(code int, args ...string) (stdout, stderr string) {
	f.t.Helper()
	c := &cli{env: map[string]string{"LEASEHOLD_SERVER": f.server}}
	return c.want(f.t, code, args...)
}

// sidecar starts `leasehold run` with a name and a script for sh.
func (f *field) sidecar(id, script string, flags ...string) *program {
	f.t.Helper()
	args := append([]string{"run", "--server", f.server, "--keyspace", f.keyspace, "--id", id, "--log-format", "text", "--gossip", "off"}, flags...)
	return startProgram(f.t, append(args, "--", "sh", "-c", f.prelude()+script)...)
}

// prelude gives a script: say WORD writes a line of evidence, beat WORD writes
// one every 20 ms for ever. /proc/uptime is the boot clock.
func (f *field) prelude() string {
	return `say() { read up _ </proc/uptime; echo "$up $LEASEHOLD_PARTITION $LEASEHOLD_TOKEN $1" >>` + f.evidence + `; }
beat() { while :; do say "$1"; sleep 0.02; done; }
`
}

// line is what a command wrote.
type line struct {
	at               time.Duration // boot clock
	partition, token uint64
	word             string
}

func (f *field) lines() []line {
	f.t.Helper()
	raw, err := os.ReadFile(f.evidence)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	var out []line
	for text := range strings.Lines(string(raw)) {
		if !strings.HasSuffix(text, "\n") {
			break // it is being written
		}
		w := strings.Fields(text)
		if len(w) != 4 {
			f.t.Fatalf("evidence %q", text)
		}
		at, err1 := strconv.ParseFloat(w[0], 64)
		p, err2 := strconv.ParseUint(w[1], 10, 64)
		tok, err3 := strconv.ParseUint(w[2], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			f.t.Fatal(err)
		}
		out = append(out, line{time.Duration(at * float64(time.Second)), p, tok, w[3]})
	}
	return out
}

// said returns the lines with a word.
func (f *field) said(word string) []line {
	f.t.Helper()
	return slices.DeleteFunc(f.lines(), func(l line) bool { return l.word != word })
}

// until waits for evidence.
func (f *field) until(what string, ok func() bool) {
	f.t.Helper()
	waitFor(f.t, what, ok)
}

// waitFor waits for what other processes do.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if poll(ctx, 10*time.Millisecond, func() (bool, error) { return ok(), nil }) != nil {
		t.Fatalf("waited in vain for %s", what)
	}
}

// silence waits until no line with the word has come for 300 ms, and returns
// when the last one was written.
func (f *field) silence(word string) time.Duration {
	f.t.Helper()
	var last time.Duration
	f.until("the end of "+word, func() bool {
		all := f.said(word)
		if len(all) == 0 {
			return false
		}
		last = all[len(all)-1].at
		return bootclock.Boot().Now()-last > 300*time.Millisecond
	})
	return last
}

// neverTwo checks that no two tokens of a partition were at work at the same
// time. The clock has a resolution of 10 ms.
func (f *field) neverTwo() {
	f.t.Helper()
	first, last := map[[2]uint64]time.Duration{}, map[[2]uint64]time.Duration{}
	for _, l := range f.lines() {
		key := [2]uint64{l.partition, l.token}
		if _, ok := first[key]; !ok {
			first[key] = l.at
		}
		first[key], last[key] = min(first[key], l.at), max(last[key], l.at)
	}
	keys := slices.SortedFunc(maps.Keys(first), func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	for i := 1; i < len(keys); i++ {
		old, young := keys[i-1], keys[i]
		if old[0] == young[0] && last[old] > first[young] {
			f.t.Errorf("partition %d: the command of token %d worked until %v, that of token %d from %v", old[0], old[1], last[old], young[1], first[young])
		}
	}
}

// owner waits until a worker owns a partition.
func (f *field) owner(partition int, id string) {
	f.t.Helper()
	eventually(f.t, f.server, `"owner": "`+id+`"`, "partitions", "show", f.keyspace, strconv.Itoa(partition), "-o", "json")
}

// A command per partition, with its lease in the environment; SIGTERM ends all
// in order.
func TestRunGivesEachPartitionACommand(t *testing.T) {
	t.Parallel()
	f := newField(t, 3)
	p := f.sidecar("w1", `trap 'say done; exit 0' TERM
echo "$LEASEHOLD_KEYSPACE $LEASEHOLD_PARTITIONS $LEASEHOLD_RANGE $LEASEHOLD_TTL $LEASEHOLD_TTL_MS $LEASEHOLD_OWNER"
say up; while :; do sleep 0.05; done`, "--prefix", "on")
	f.until("three commands", func() bool { return len(f.said("up")) == 3 })
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
	f.until("both commands", func() bool { return len(f.said("old")) > 10 })
	f.owner(0, "w1")
	f.owner(1, "w1")
	f.sidecar("w2", "beat new")
	f.want(exitOK, "workers", "drain", "w1")
	f.owner(0, "w2")
	f.owner(1, "w2")
	f.until("both new commands", func() bool {
		seen := map[uint64]bool{}
		for _, l := range f.said("new") {
			seen[l.partition] = true
		}
		return len(seen) == 2
	})
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
	if lived := last - deaf; deaf == 0 || lived < 1300*time.Millisecond || lived > 2500*time.Millisecond {
		t.Errorf("a command that ignores SIGTERM lived for %v after it, want about 1.8 s of the 2 s", lived)
	}
	f.neverTwo()
}

// What a command leaves behind dies with it: background jobs, and daemons that
// left its process group by a double fork and a session of their own.
func TestRunKillsWhatWasForked(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid is not installed")
	}
	t.Parallel()
	f := newField(t, 1)
	daemon := `( setsid sh -c '` + strings.ReplaceAll(f.prelude(), `'`, `'\''`) + `beat daemon' & )
`
	p := f.sidecar("w1", daemon+`beat job &
while ! grep -q daemon `+f.evidence+`; do sleep 0.02; done
say leaving; exit 0`)
	f.until("the command's end", func() bool { return len(f.said("leaving")) >= 1 })
	token := f.said("leaving")[0].token
	f.until("another lease", func() bool {
		all := f.lines()
		return len(all) > 0 && all[len(all)-1].token > token
	})
	f.neverTwo()
	p.stop(t)
	end := bootclock.Boot().Now()
	for _, word := range []string{"job", "daemon"} {
		if last := f.silence(word); last > end {
			t.Errorf("%s lived until %v, the sidecar had ended at %v", word, last, end)
		}
	}
}

// The command dies with the sidecar: kill -9, and everything is gone at once,
// daemons too. Another sidecar takes over, with a higher token, and never before.
func TestRunCommandsDieWithTheirSidecar(t *testing.T) {
	t.Parallel()
	f := newField(t, 2)
	w1 := f.sidecar("w1", `( setsid sh -c '`+strings.ReplaceAll(f.prelude(), `'`, `'\''`)+`beat old' & )
beat old`)
	f.until("both commands", func() bool { return len(f.said("old")) > 40 })
	f.owner(0, "w1")
	f.owner(1, "w1")
	f.sidecar("w2", "beat new")
	killed := bootclock.Boot().Now()
	w1.cmd.Process.Kill()
	if last := f.silence("old"); last > killed+time.Second {
		t.Errorf("commands lived for %v after their sidecar", last-killed)
	}
	f.owner(0, "w2")
	f.owner(1, "w2")
	f.until("the new commands", func() bool { return len(f.said("new")) > 10 })
	f.neverTwo()
}

// A stopped sidecar can kill nobody and hears nothing. The keeper does it, before
// the servers give the partition to somebody else.
func TestRunStoppedSidecarsCommandsDie(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	w1 := f.sidecar("w1", `trap '' TERM; beat old`)
	f.until("the command", func() bool { return len(f.said("old")) > 10 })
	f.owner(0, "w1")
	f.sidecar("w2", "beat new")
	stopped := bootclock.Boot().Now()
	w1.cmd.Process.Signal(syscall.SIGSTOP)
	f.until("the new command", func() bool { return len(f.said("new")) > 20 })
	old := f.said("old")
	if last := old[len(old)-1].at; last > stopped+2*time.Second {
		t.Errorf("the command lived for %v after its sidecar had been stopped: longer than the TTL of 2 s", last-stopped)
	}
	w1.cmd.Process.Signal(syscall.SIGCONT)
	f.until("the old sidecar's word", func() bool { return strings.Contains(w1.stderr.String(), "expired") })
	f.neverTwo()
}

// Without the keeper nothing runs: its death is the commands' and the sidecar's.
func TestRunKeeperKilled(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	pids := filepath.Join(t.TempDir(), "keeper")
	p := f.sidecar("w1", `echo $PPID >`+pids+`.new; mv `+pids+`.new `+pids+`
( setsid sh -c '`+strings.ReplaceAll(f.prelude(), `'`, `'\''`)+`beat stray' & )
trap '' TERM; beat main`)
	keeper := 0
	f.until("the keeper's number", func() bool {
		raw, err := os.ReadFile(pids)
		keeper, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil && keeper > 1 && len(f.said("stray")) > 5
	})
	killed := bootclock.Boot().Now()
	syscall.Kill(keeper, syscall.SIGKILL)
	for _, word := range []string{"main", "stray"} {
		if last := f.silence(word); last > killed+time.Second {
			t.Errorf("%s lived for %v after the keeper", word, last-killed)
		}
	}
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(p.stderr.String(), "keeper") {
		t.Errorf("exit code %d, want %d:\n%s", code, exitFailed, p.stderr)
	}
}

// The same in per-worker mode: the command cannot be told, so it dies.
func TestRunStoppedSidecarsSharedCommandDies(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	w1, w := f.perWorker("w1", "trap '' TERM; LEASEHOLD_PARTITION=0 LEASEHOLD_TOKEN=1; beat old")
	w.leases(1)
	f.until("the command", func() bool { return len(f.said("old")) > 3 })
	stopped := bootclock.Boot().Now()
	w1.cmd.Process.Signal(syscall.SIGSTOP)
	if last := f.silence("old"); last > stopped+2*time.Second {
		t.Errorf("the command lived for %v after its sidecar had been stopped: longer than the TTL of 2 s", last-stopped)
	}
	w1.cmd.Process.Signal(syscall.SIGCONT)
	w1.cmd.Wait()
	if code := w1.cmd.ProcessState.ExitCode(); code != sidecar.CodeLostLease {
		t.Errorf("exit code %d, want %d\n%s", code, sidecar.CodeLostLease, w1.stderr)
	}
}

// A stopped keeper kills nobody: the sidecar does it.
func TestRunStoppedKeeper(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	pids := filepath.Join(t.TempDir(), "keeper")
	p := f.sidecar("w1", `echo $PPID >`+pids+`.new; mv `+pids+`.new `+pids+`
trap '' TERM; beat old`)
	keeper := 0
	f.until("the keeper's number", func() bool {
		raw, err := os.ReadFile(pids)
		keeper, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil && keeper > 1 && len(f.said("old")) > 5
	})
	syscall.Kill(keeper, syscall.SIGSTOP)
	f.want(exitOK, "workers", "evict", "w1", "--yes")
	evicted := bootclock.Boot().Now()
	if last := f.silence("old"); last > evicted+2*time.Second {
		t.Errorf("the command lived for %v without its lease: longer than the TTL of 2 s", last-evicted)
	}
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != sidecar.CodeLostLease {
		t.Errorf("exit code %d, want %d\n%s", code, sidecar.CodeLostLease, p.stderr)
	}
}

// The first signal asks, the second one means now.
func TestRunSecondSignalKills(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	p := f.sidecar("w1", `trap 'say asked' TERM; beat old`)
	f.until("the command", func() bool { return len(f.said("old")) > 5 })
	p.cmd.Process.Signal(syscall.SIGINT)
	f.until("the question", func() bool { return len(f.said("asked")) > 0 })
	second := bootclock.Boot().Now()
	p.cmd.Process.Signal(syscall.SIGINT)
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d, want 130\n%s", code, p.stderr)
	}
	if last := f.silence("old"); last > second+time.Second {
		t.Errorf("the command lived for %v after the second signal", last-second)
	}
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

// Exit code 0 gives the partition back; a start a second is the most.
func TestRunCommandThatIsDoneYields(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	f.sidecar("w1", "say up; exit 0")
	f.until("a second start", func() bool { return len(f.said("up")) >= 2 })
	if ups := f.said("up"); ups[1].at-ups[0].at < 900*time.Millisecond || ups[1].token <= ups[0].token {
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
		{"run --keyspace jobs --gossip-key-file /nosuch -- true", exitUsage, "/nosuch"},
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
