//go:build !linux

package dbtest

import "syscall"

// attr puts the server into a process group of its own. Nothing ends it here
// when the test binary is killed.
func attr(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true}
}
