package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/sidecar"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// What a command leaves behind dies with it: background jobs, and daemons that
// left its process group by a double fork and a session of their own.
func TestRunKillsWhatWasForked(t *testing.T) {
	needTool(t, "setsid")
	t.Parallel()
	f := newField(t, 1)
	prelude := strings.ReplaceAll(f.prelude(), `'`, `'\''`)
	daemon := `( setsid sh -c '` + prelude + `beat daemon' & )
( setsid env -i PATH="$PATH" LEASEHOLD_PARTITION=0 LEASEHOLD_TOKEN=$LEASEHOLD_TOKEN sh -c '` + prelude + `beat naked' & )
`
	p := f.sidecar("w1", daemon+`beat job &
while ! grep -q daemon `+f.evidence+` || ! grep -q naked `+f.evidence+`; do sleep 0.02; done
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
	for _, word := range []string{"job", "daemon", "naked"} {
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

// An outage of the servers ends the lease: the command is asked, then killed,
// before its time is over; afterwards it works again, under a higher token.
func TestRunOutageEndsTheCommand(t *testing.T) {
	t.Parallel()
	f := newField(t, 1, "--ttl", "6s")
	f.sidecar("w1", `trap 'say asked' TERM; beat up`, "--stop-grace", "2s")
	f.until("the command", func() bool { return len(f.said("up")) > 10 })
	token := f.said("up")[0].token
	stopped := bootclock.Boot().Now()
	f.dev.cmd.Process.Signal(syscall.SIGSTOP)
	f.until("the question", func() bool { return len(f.said("asked")) > 0 })
	if last := f.silence("up"); last > stopped+6*time.Second {
		t.Errorf("the command lived for %v without the servers: longer than the TTL of 6 s", last-stopped)
	}
	f.dev.cmd.Process.Signal(syscall.SIGCONT)
	f.until("the command again", func() bool {
		all := f.said("up")
		return all[len(all)-1].token > token
	})
	f.neverTwo()
}

// A stopped sidecar in per-worker mode: the command cannot be told, so it dies.
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
