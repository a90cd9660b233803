package dbtest

import "syscall"

// attr puts the server into a process group of its own and ends it with the
// test binary.
func attr(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
