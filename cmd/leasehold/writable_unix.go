//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import "golang.org/x/sys/unix"

// writable asks the kernel, which also knows of read-only file systems.
func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
