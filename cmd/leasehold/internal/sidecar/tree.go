package sidecar

import "syscall"

// descendants are all processes below one, itself not included. Ended ones that
// nobody has reaped are left out.
func descendants(all []process, root int) []int {
	below := map[int]bool{root: true}
	var found []int
	for grown := true; grown; { // the table is in no order
		grown = false
		for _, p := range all {
			if below[p.parent] && !below[p.pid] {
				below[p.pid] = true
				grown = true
				if !p.zombie {
					found = append(found, p.pid)
				}
			}
		}
	}
	return found
}

// killGroup kills a process group that this process has made. The error says no
// more than that it is empty already.
func killGroup(group int) {
	if group > 1 {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}

func killAll(pids []int) {
	for _, pid := range pids {
		if pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
