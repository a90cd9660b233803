package server

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// processFigures reads /proc. What cannot be read is 0.
func processFigures() (resident uint64, open, most int64) {
	if raw, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := bytes.Fields(raw); len(f) > 1 {
			pages, _ := strconv.ParseUint(string(f[1]), 10, 64) // 0 when it is no number
			resident = pages * uint64(os.Getpagesize())
		}
	}
	if dir, err := os.Open("/proc/self/fd"); err == nil {
		names, _ := dir.Readdirnames(-1)
		_ = dir.Close()
		open = max(int64(len(names))-1, 0) // less the one just opened
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		most = int64(min(limit.Cur, 1<<62))
	}
	return resident, open, most
}
