package raftstore

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// StorageStatus is what a server keeps, and what is left of its disk. Sizes are
// bytes on disk; in memory, and where the system does not tell, they are 0.
type StorageStatus struct {
	FirstIndex, LastIndex uint64 // of the log; 0: it is empty
	// OldestEntry is when the oldest entry of the log was made, by the clock of
	// the leader of that time; the zero time: the log is empty.
	OldestEntry   time.Time
	SnapshotIndex uint64 // where the newest snapshot ends; 0: there is none
	SnapshotTime  time.Time
	SnapshotBytes int64 // its size, also in memory
	LogBytes      int64 // of the log's files
	DataBytes     int64 // of everything in the data directory
	// FreeBytes is what this process may still fill of the file system that
	// holds the data directory, SizeBytes how large that is.
	FreeBytes, SizeBytes int64
	// Poisoned: a write failed, nothing more is written and Run ends.
	Poisoned bool
	// Sending are the snapshots on their way to followers.
	Sending []Transfer
}

// Transfer is a snapshot on its way to a follower.
type Transfer struct {
	To           Peer   // without its address
	Index        uint64 // where the snapshot ends
	Bytes, Total int64
	Started      time.Time
}

// Storage looks at the disk. It lists the data directory: call it every few
// seconds, not more.
func (s *Store) Storage() StorageStatus {
	st := StorageStatus{Poisoned: s.disk.failed.Load() != nil, Sending: s.retain.transfers()}
	newest := s.files.snaps.newest()
	st.SnapshotIndex, st.SnapshotTime, st.SnapshotBytes = newest.index, newest.at, newest.size
	if !st.Poisoned {
		s.files.log.bounds(&st)
	}
	if s.files.dir == "" {
		return st
	}
	logDir := s.files.path("log")
	// Files come and go meanwhile; what cannot be looked at counts nothing.
	_ = filepath.WalkDir(s.files.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		st.DataBytes += info.Size()
		if strings.HasPrefix(path, logDir) {
			st.LogBytes += info.Size()
		}
		return nil
	})
	st.SizeBytes, st.FreeBytes = volume(s.files.dir)
	return st
}

// FsyncWindow tells how long synced writes to the log took of late.
func (s *Store) FsyncWindow() FsyncWindow { return s.disk.times.window() }

// bounds fills in what the log itself tells. It may be closed, or shortened
// meanwhile.
func (c *checkedLog) bounds(st *StorageStatus) {
	first, err := c.logStore.FirstIndex()
	if err != nil || first == 0 {
		return
	}
	if st.LastIndex, err = c.logStore.LastIndex(); err != nil {
		return
	}
	st.FirstIndex = first
	var l raft.Log
	if c.logStore.GetLog(first, &l) == nil {
		st.OldestEntry = l.AppendedAt
	}
}

const (
	// leastFree is what must be free for a server to start: room to write a term,
	// a vote and what the others have to say. With less it would end at once, and
	// disturb them with each attempt.
	leastFree = 8 << 20
	// lowFree, or a twentieth of the disk if that is less, makes it warn.
	lowFree = 1 << 30
)

// FullError refuses to start on a disk with too little room.
type FullError struct {
	Dir         string
	Free, Least int64 // bytes
}

// Error names the directory, what is free and what is needed.
func (e *FullError) Error() string {
	return fmt.Sprintf("data directory %s: %d MiB are free on its disk, at least %d MiB must be; free some space and start this server again",
		e.Dir, e.Free>>20, e.Least>>20)
}

func checkFree(dir string) error {
	if size, free := volume(dir); size > 0 && free < leastFree {
		return &FullError{Dir: dir, Free: free, Least: leastFree}
	}
	return nil
}

// isLow reports whether somebody should look after the disk.
func isLow(size, free int64) bool { return size > 0 && free < min(lowFree, size/20) }
