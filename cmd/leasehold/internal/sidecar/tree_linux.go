package sidecar

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of descendants whose own has died.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// groupOfItsOwn puts a command into a process group that outlives neither it nor
// its parent. The death signal follows the thread that forked: it must live as
// long as the process.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// hasExited reports whether a child of this process has ended. It is not reaped
// yet, so that its number and its group's cannot become somebody else's.
func hasExited(pid int) (exited, reaped bool, status syscall.WaitStatus) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err != nil || info.Signo != 0, false, 0
	}
}

// process is a line of the process table.
type process struct {
	pid, parent, group int
	zombie             bool
}

// processes reads the process table.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		raw, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name before may contain anything, also blanks and parentheses.
		f := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
		if len(f) < 3 {
			continue
		}
		parent, err1 := strconv.Atoi(string(f[1]))
		group, err2 := strconv.Atoi(string(f[2]))
		if err1 != nil || err2 != nil {
			continue
		}
		all = append(all, process{pid, parent, group, f[0][0] == 'Z' || f[0][0] == 'X'})
	}
	return all
}

// startedWith returns the value of a variable that a process was started with, ""
// if it has none or its environment cannot be read.
func startedWith(pid int, name string) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for v := range bytes.SplitSeq(raw, []byte{0}) {
		if value, ok := bytes.CutPrefix(v, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}
