//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package raftstore

// dirLock leaves it to bbolt, which locks its file on every system, to keep a
// second process out: that one waits instead of being told.
type dirLock struct{}

func lockDir(string) (*dirLock, error) { return &dirLock{}, nil }

func lockDirForReading(string) (*dirLock, error) { return &dirLock{}, nil }

func (*dirLock) release() error { return nil }
