package server

import "golang.org/x/sys/unix"

// roomy tells whether a file system has room for what a simulation writes.
func roomy(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Bavail*uint64(fs.Bsize) > 4<<30
}
