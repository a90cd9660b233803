package server

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore"
)

// simDisk is how one server's disk takes writes of the log. It outlives the
// server's processes, as the trouble with it does.
type simDisk struct {
	mu     sync.Mutex
	until  time.Time // hangs
	delay  time.Duration
	healed chan struct{} // closed and replaced by heal
}

func newSimDisk() *simDisk { return &simDisk{healed: make(chan struct{})} }

// hang makes writes wait for d. It ends by itself: a server that is stopped
// meanwhile, and who waits for it, wait with the disk. A disk that hangs already
// hangs no longer than it did: two in a row would pass HangExit.
func (d *simDisk) hang(lasts time.Duration) (undo func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.After(d.until) {
		d.until = now.Add(lasts)
	}
	return nil
}

func (d *simDisk) slow(delay time.Duration) (undo func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = delay
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.delay = 0
	}
}

func (d *simDisk) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until, d.delay = time.Time{}, 0
	close(d.healed)
	d.healed = make(chan struct{})
}

// wait is the part of a write in which the disk does nothing.
func (d *simDisk) wait() {
	d.mu.Lock()
	wait, healed := max(d.delay, time.Until(d.until)), d.healed
	d.mu.Unlock()
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-healed:
	}
}

func (d *simDisk) wrap(l raftstore.LogStore) raftstore.LogStore { return &simLog{l, d} }

// simLog is a log on a simDisk. Reads are as fast as ever.
type simLog struct {
	raftstore.LogStore
	disk *simDisk
}

func (l *simLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

func (l *simLog) StoreLogs(entries []*raft.Log) error {
	l.disk.wait()
	return l.LogStore.StoreLogs(entries)
}

func (l *simLog) DeleteRange(from, to uint64) error {
	l.disk.wait()
	return l.LogStore.DeleteRange(from, to)
}

func (l *simLog) Set(key, val []byte) error {
	l.disk.wait()
	return l.LogStore.Set(key, val)
}

func (l *simLog) SetUint64(key []byte, val uint64) error {
	l.disk.wait()
	return l.LogStore.SetUint64(key, val)
}
