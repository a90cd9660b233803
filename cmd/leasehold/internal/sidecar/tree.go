package sidecar

import (
	"sync"
	"syscall"
)

// scans reads the process table for many at once: with hundreds of commands
// that end together, each one's own reading would take seconds.
type scans struct {
	running sync.Mutex

	mu   sync.Mutex
	next *scan // not begun yet
}

type scan struct {
	done  chan struct{}
	table []process
}

// fresh returns a table whose reading began after the call.
func (s *scans) fresh() []process {
	s.mu.Lock()
	sc := s.next
	if sc == nil {
		sc = &scan{done: make(chan struct{})}
		s.next = sc
		go func() {
			s.running.Lock()
			defer s.running.Unlock()
			s.mu.Lock()
			s.next = nil
			s.mu.Unlock()
			sc.table = processes()
			close(sc.done)
		}()
	}
	s.mu.Unlock()
	<-sc.done
	return sc.table
}

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
