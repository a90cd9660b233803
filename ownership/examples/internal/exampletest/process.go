package exampletest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a running program. Its methods are safe for concurrent use.
type Process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	out  lockedBuffer
	done chan struct{}
	err  error // of Wait, once done is closed
}

// Start starts a program whose output is shown if the test fails. The name is
// for messages.
func Start(t testing.TB, name, bin string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, name: name, cmd: exec.Command(bin, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
		if t.Failed() {
			t.Logf("%s said:\n%s", name, tail(p.out.String(), 40))
		}
	})
	return p
}

func (p *Process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill ends the process as a crash does.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// Pause stops the process where it is, as a long page-out or a suspended
// machine does. It returns when the kernel says that every thread has stopped.
func (p *Process) Pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	Eventually(p.t, 10*time.Second, p.name+" is stopped", func() bool { return stopped(p.cmd.Process.Pid) })
}

// Resume lets a paused process go on; it does not know that it was paused.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// Terminate asks the process to end in order and returns its error, which is
// nil for exit status 0. It waits for its first word, before which a process may
// not listen to signals. One that has not ended within a minute fails the test.
func (p *Process) Terminate() error {
	p.t.Helper()
	Eventually(p.t, 30*time.Second, p.name+" says something", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return p.out.String() != ""
		}
	})
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p.err
	case <-time.After(time.Minute):
		p.signal(syscall.SIGQUIT) // a Go program then shows where it is
		<-p.done
		p.t.Fatalf("%s did not end within a minute of SIGTERM:\n%s", p.name, p.out.String())
		return nil
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is why the process has ended, nil for exit status 0. Call it after Done.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Output is what the process has written to stdout and stderr so far.
func (p *Process) Output() string { return p.out.String() }

// Await waits for a line of output that has the text and returns what follows
// the text in it. The test fails if the process ends before.
func (p *Process) Await(text string) string {
	p.t.Helper()
	var found string
	Eventually(p.t, 30*time.Second, p.name+" says "+text, func() bool {
		for line := range strings.Lines(p.out.String()) {
			if _, after, ok := strings.Cut(line, text); ok && strings.HasSuffix(line, "\n") {
				found = strings.TrimSpace(after)
				return true
			}
		}
		select {
		case <-p.done:
			p.t.Fatalf("%s ended (%v) before it said %q:\n%s", p.name, p.err, text, p.out.String())
		default:
		}
		return false
	})
	return found
}

// Eventually waits for a condition outside this process, such as in a database.
// The limit is for a machine with nothing else to do: a busy one gets three times
// as long.
func Eventually(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * limit); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", 3*limit, what)
		}
	}
}

// stopped asks the kernel whether every thread is stopped by a signal, which is
// state T. Where there is no /proc, the signal has to do.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		// pid (name) state …; the name may have spaces and parentheses.
		if i := strings.LastIndex(string(stat), ") "); i < 0 || !strings.HasPrefix(string(stat)[i+2:], "T") {
			return false
		}
	}
	return true
}

func tail(s string, lines int) string {
	all := strings.SplitAfter(s, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
