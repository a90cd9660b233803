package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Spec says what to start.
type Spec struct {
	// Name is for messages and the name of the log file.
	Name string
	// Args follow the name of this same binary.
	Args []string
	// Wrap, when set, is a command that runs the binary in its own place, such
	// as "ip netns exec NAME": signals must reach the binary under its pid.
	Wrap []string
	// Env is added to this process's environment.
	Env []string
	// LogFile receives standard error, appended, and standard output too when
	// Line is nil.
	LogFile string
	// Line, when set, is called with each line of standard output, without
	// its end, from one goroutine. It must not block for long: the child
	// waits. The bytes are only valid during the call.
	Line func([]byte)
}

// Process is a child of this process. Methods may be called from any
// goroutine.
type Process struct {
	Name string

	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}
	err   error // of Wait; valid once done is closed
}

// startProcess starts the child and the two goroutines that serve it: one
// reads its lines, one reaps it. Both end with the child.
func startProcess(executable string, spec Spec) (*Process, error) {
	logs, err := os.OpenFile(spec.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", spec.Name, err)
	}
	defer logs.Close() // the child has its own descriptor

	line := slices.Concat(spec.Wrap, []string{executable}, spec.Args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(environment(), spec.Env...)
	cmd.Stderr = logs
	cmd.SysProcAttr = attributes()
	p := &Process{Name: spec.Name, cmd: cmd, done: make(chan struct{})}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("open pipe to %s: %w", spec.Name, err)
	}
	var stdout io.ReadCloser
	if spec.Line == nil {
		cmd.Stdout = logs
	} else if stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, fmt.Errorf("open pipe from %s: %w", spec.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	go p.reap(stdout, spec.Line)
	return p, nil
}

// reap reads lines until the child closes its end, then waits for the child.
func (p *Process) reap(stdout io.Reader, line func([]byte)) {
	defer close(p.done)
	if stdout != nil {
		lines := bufio.NewScanner(stdout)
		lines.Buffer(make([]byte, 64<<10), 4<<20)
		for lines.Scan() {
			line(lines.Bytes())
		}
		// A scanner that gives up must not leave the child blocked.
		_, _ = io.Copy(io.Discard, stdout)
	}
	p.err = p.cmd.Wait()
}

// Pid of the child.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and been reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the child ended: nil for exit code 0. It waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// failure is how the child ended, in words also when its code was 0.
func (p *Process) failure() error {
	if err := p.Err(); err != nil {
		return err
	}
	return errors.New("exit status 0")
}

// Signal sends a signal to exactly this process: os.Process never signals a
// number that has been reaped. Then it returns os.ErrProcessDone, wrapped.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Send writes one line to the child's standard input.
func (p *Process) Send(line string) error {
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		return fmt.Errorf("write to %s: %w", p.Name, err)
	}
	return nil
}

// CloseInput tells the child, by the end of its input, that nobody will
// speak to it any more.
func (p *Process) CloseInput() { _ = p.stdin.Close() }

// environment is ours without what would configure a child behind our back.
func environment() []string {
	var kept []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LEASEHOLD_") {
			kept = append(kept, v)
		}
	}
	return kept
}
