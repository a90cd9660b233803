//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package raftstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dirLock holds a data directory for this process; the kernel lets go of it
// when the process ends, however it ends.
type dirLock struct{ f *os.File }

func lockDir(dir string) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			pid, _ := io.ReadAll(io.LimitReader(f, 32))
			return nil, &InUseError{Dir: dir, Holder: strings.TrimSpace(string(pid))}
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	// Only for the message of whoever comes second.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(fmt.Sprintln(os.Getpid())), 0)
	return &dirLock{f}, nil
}

// lockDirForReading keeps everybody from opening a data directory that is being
// read. It writes nothing; a directory without a lock file has never been open,
// or is a copy.
func lockDirForReading(dir string) (*dirLock, error) {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return &dirLock{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			pid, _ := io.ReadAll(io.LimitReader(f, 32))
			return nil, &InUseError{Dir: dir, Holder: strings.TrimSpace(string(pid))}
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return &dirLock{f}, nil
}

func (l *dirLock) release() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}
