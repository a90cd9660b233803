package raftstore

import "syscall"

// volume tells the size of the file system that holds dir and what this
// process may still fill of it; zeros when it cannot be told.
func volume(dir string) (size, free int64) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize
}
