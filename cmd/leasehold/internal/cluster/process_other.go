//go:build unix && !linux

package cluster

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// attributes puts the child into a process group of its own. Where the kernel
// cannot end it with the driver, workers notice the end of their input.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Stop sends SIGSTOP and gives the process a moment to stop: only Linux tells
// without side effects when it has.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

// Stopped is only known on Linux.
func (p *Process) Stopped() (bool, error) { return false, nil }

// Continue sends SIGCONT.
func (p *Process) Continue() error { return p.Signal(syscall.SIGCONT) }

// CPU is only known on Linux.
func (p *Process) CPU() (time.Duration, error) {
	return 0, errors.New("read processor time: only on linux")
}
