package live

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Process is a child of the test, or its place while it is down.
type Process struct {
	// Name is the name of the log file, too.
	Name string

	tb   testing.TB
	dir  string
	line []string
	cmd  *exec.Cmd
	done chan struct{}
}

// newProcess prepares a process with its log below dir. It is not started yet.
func newProcess(tb testing.TB, dir, name string, line ...string) *Process {
	p := &Process{Name: name, tb: tb, dir: dir, line: line}
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("the log of %s ends:\n%s", p.Name, p.Log())
		}
	})
	return p
}

// Start starts the process, again after its end. It does not wait until it
// serves.
func (p *Process) Start() {
	p.tb.Helper()
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.tb.Fatalf("open log of %s: %v", p.Name, err)
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(p.line[0], p.line[1:]...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, v := range os.Environ() { // nothing may configure it behind our back
		if !strings.HasPrefix(v, "LEASEHOLD_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if err := cmd.Start(); err != nil {
		p.tb.Fatalf("start %s: %v", p.Name, err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	p.cmd, p.done = cmd, done
}

// Up reports whether the process runs.
func (p *Process) Up() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to exactly this process; one that has ended hears
// nothing.
func (p *Process) Signal(sig syscall.Signal) {
	p.tb.Helper()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Errorf("signal %s: %v", p.Name, err)
	}
}

// Kill ends the process with SIGKILL, which also ends a stopped one, and waits
// for its end.
func (p *Process) Kill() {
	p.tb.Helper()
	p.end(syscall.SIGKILL)
}

// Terminate asks the process to end in order and waits for its end.
func (p *Process) Terminate() {
	p.tb.Helper()
	p.end(syscall.SIGTERM)
}

func (p *Process) end(sig syscall.Signal) {
	p.tb.Helper()
	p.Signal(sig)
	if p.done != nil {
		<-p.done
	}
}

func (p *Process) logFile() string { return filepath.Join(p.dir, p.Name+".log") }

// Log is the end of what the process has printed.
func (p *Process) Log() string {
	text, _ := os.ReadFile(p.logFile())
	return string(text[max(0, len(text)-3000):])
}
