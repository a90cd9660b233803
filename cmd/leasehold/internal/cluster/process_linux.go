package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// attributes puts the child into a process group of its own, so that a ^C on
// the terminal reaches the driver alone, and has the kernel end it should the
// driver be killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Stop sends SIGSTOP and returns when the process has stopped.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		if stopped, err := p.Stopped(); stopped || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop %s: %w", p.Name, context.Cause(ctx))
		case <-p.done:
			return fmt.Errorf("stop %s: %w", p.Name, os.ErrProcessDone)
		case <-poll.C:
		}
	}
}

// Stopped says whether the process is stopped, by whomever.
func (p *Process) Stopped() (bool, error) {
	stat, err := p.stat()
	if err != nil {
		return false, err
	}
	return string(stat[0]) == "T", nil
}

// Continue sends SIGCONT.
func (p *Process) Continue() error { return p.Signal(syscall.SIGCONT) }

// CPU is the processor time, user and system, that the process has used. The
// kernel counts it in hundredths of a second.
func (p *Process) CPU() (time.Duration, error) {
	stat, err := p.stat()
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, field := range stat[11:13] { // utime, stime
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse processor time of %s: %w", p.Name, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100), nil
}

// stat returns the fields of /proc/PID/stat from the state on: the name
// before it may contain anything.
func (p *Process) stat() ([][]byte, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(p.Pid()) + "/stat")
	if err != nil {
		return nil, fmt.Errorf("read state of %s: %w", p.Name, err)
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 13 {
		return nil, fmt.Errorf("parse state of %s: %d fields", p.Name, len(fields))
	}
	return fields, nil
}
