package faults

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore"
)

// Log is a Raft log on a disk that is slow, or hangs, when the settings say so.
// Reads are as fast as ever.
func (s *Source) Log(l raftstore.LogStore) raftstore.LogStore {
	return &slowLog{LogStore: l, source: s}
}

type slowLog struct {
	raftstore.LogStore
	source *Source
}

// wait is the part of a write in which the disk does nothing.
func (l *slowLog) wait() {
	now := l.source.Now()
	time.Sleep(now.DiskDelay)
	for now.DiskHangs {
		time.Sleep(lookEvery)
		now = l.source.Now()
	}
}

func (l *slowLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

func (l *slowLog) StoreLogs(entries []*raft.Log) error {
	l.wait()
	return l.LogStore.StoreLogs(entries)
}

func (l *slowLog) DeleteRange(from, to uint64) error {
	l.wait()
	return l.LogStore.DeleteRange(from, to)
}

func (l *slowLog) Set(key, val []byte) error {
	l.wait()
	return l.LogStore.Set(key, val)
}

func (l *slowLog) SetUint64(key []byte, val uint64) error {
	l.wait()
	return l.LogStore.SetUint64(key, val)
}
