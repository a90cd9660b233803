package raftstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// LogStore is the Raft log with term and vote, as it lies on the disk:
// raft-wal, or memory.
type LogStore interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

type logStore = LogStore

// disk watches the operations on the log's files.
//
//	healthy ── an operation takes longer than bound ──▶ gated: no heartbeats go out
//	gated ── it returns ──▶ healthy
//	gated ── it takes longer than exit ──▶ failed
//	any ── a write or sync fails, or bytes are not what was written ──▶ failed, for good
//
// After a failed sync nobody knows what is on the disk, and the kernel may call
// the next sync a success: the only safe thing is to end the process and read
// the log again.
type disk struct {
	path        string
	bound, exit time.Duration
	metrics     Observer
	fail        func(*StorageError)

	failed atomic.Pointer[StorageError]

	times fsyncTimes // of the log

	mu  sync.Mutex
	ops map[*diskOp]struct{} // in progress: rarely more than two
}

// diskOp is an operation in progress.
type diskOp struct {
	name  string
	start time.Time
}

func newDisk(c *Config, path string, fail func(*StorageError)) *disk {
	return &disk{path: path, bound: c.HangBound, exit: c.HangExit, metrics: c.Metrics, fail: fail, ops: make(map[*diskOp]struct{})}
}

func (d *disk) begin(name string) *diskOp {
	op := &diskOp{name: name, start: time.Now()}
	d.mu.Lock()
	d.ops[op] = struct{}{}
	d.mu.Unlock()
	return op
}

func (d *disk) end(op *diskOp) (took time.Duration) {
	d.mu.Lock()
	delete(d.ops, op)
	d.mu.Unlock()
	return time.Since(op.start)
}

// poison fails the disk for good and returns the first error there was.
func (d *disk) poison(op string, err error) error {
	d.failed.CompareAndSwap(nil, &StorageError{Op: op, Path: d.path, Err: err})
	first := d.failed.Load()
	d.fail(first)
	return first
}

// oldest returns the operation that has been in progress for longest.
func (d *disk) oldest() (name string, age time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for op := range d.ops {
		if a := time.Since(op.start); a >= age {
			name, age = op.name, a
		}
	}
	return name, age
}

// gate refuses while the disk hangs or has failed.
func (d *disk) gate() error {
	if err := d.failed.Load(); err != nil {
		return err
	}
	if name, age := d.oldest(); age > d.bound {
		return fmt.Errorf("%s %s: %w for %v", name, d.path, ErrDiskHangs, age.Round(time.Millisecond))
	}
	return nil
}

// watch reports hanging operations, and fails the disk after the exit bound.
func (d *disk) watch(ctx context.Context, warn func(op string, age time.Duration)) {
	t := time.NewTicker(d.bound / 4)
	defer t.Stop()
	hanging := false
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		name, age := d.oldest()
		if age <= d.bound {
			hanging = false
			continue
		}
		if !hanging {
			hanging = true
			d.metrics.DiskHangs()
			warn(name, age)
		}
		if age > d.exit {
			_ = d.poison(name, fmt.Errorf("%w for %v", ErrDiskHangs, age.Round(time.Millisecond)))
			return
		}
	}
}

// checkedLog stands between Raft and its log. It times what touches the disk,
// latches the first failure, and puts a checksum beside every entry: the WAL's
// own covers only the last write.
type checkedLog struct {
	logStore
	disk   *disk
	retain *retention
	// raftRuns is set once Raft's goroutines call. Where Raft would panic over a
	// read or a term that cannot be stored, the goroutine ends instead, and Run
	// says why.
	raftRuns atomic.Bool
}

var _ raft.MonotonicLogStore = (*checkedLog)(nil)

// IsMonotonic tells Raft to drop the log when it installs a snapshot: raft-wal
// takes no gaps.
func (c *checkedLog) IsMonotonic() bool { return true }

// StoreLog stores one entry.
func (c *checkedLog) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs returns when the entries are on disk and synced.
func (c *checkedLog) StoreLogs(logs []*raft.Log) error {
	summed := make([]raft.Log, len(logs))
	to := make([]*raft.Log, len(logs))
	for i, l := range logs {
		summed[i] = *l
		summed[i].Extensions = appendSum(nil, l)
		to[i] = &summed[i]
	}
	if err := c.do("write log", "log", func() error { return c.logStore.StoreLogs(to) }); err != nil {
		return err
	}
	c.retain.appended(logs...)
	return nil
}

// DeleteRange drops the head or the tail of the log. Raft asks to drop the head
// up to the snapshot that it has just taken; what else must stay is not its
// business.
func (c *checkedLog) DeleteRange(from, to uint64) error {
	last, err := c.logStore.LastIndex()
	if err == nil && to < last {
		if to = min(to, c.retain.keepFrom(last)-1); to < from {
			return nil
		}
	}
	if err := c.do("truncate log", "", func() error { return c.logStore.DeleteRange(from, to) }); err != nil {
		return err
	}
	c.retain.removed(from, to, last)
	return nil
}

// Set stores Raft's vote.
func (c *checkedLog) Set(key, val []byte) error {
	return c.do("write vote", "stable", func() error { return c.logStore.Set(key, val) })
}

// SetUint64 stores Raft's term.
func (c *checkedLog) SetUint64(key []byte, val uint64) error {
	err := c.do("write term", "stable", func() error { return c.logStore.SetUint64(key, val) })
	if err != nil && string(key) == "CurrentTerm" && c.raftRuns.Load() {
		runtime.Goexit() // Raft would panic
	}
	return err
}

func (c *checkedLog) do(name, store string, f func() error) error {
	if err := c.disk.failed.Load(); err != nil {
		return err
	}
	op := c.disk.begin(name)
	err := f()
	took := c.disk.end(op)
	if err != nil {
		return c.disk.poison(name, err)
	}
	if err := c.disk.failed.Load(); err != nil {
		return err // it hung, and came back after it was given up
	}
	if store == "log" {
		c.disk.times.add(took)
	}
	if store != "" {
		c.disk.metrics.FsyncSeconds(store, took.Seconds())
	}
	return nil
}

// GetLog reads an entry and checks it.
func (c *checkedLog) GetLog(index uint64, l *raft.Log) error {
	op := c.disk.begin("read log")
	err := c.logStore.GetLog(index, l)
	c.disk.end(op)
	var failed *fs.PathError
	switch {
	case err == nil:
		err = checkSum(index, l)
	case errors.Is(err, raft.ErrLogNotFound):
		return raft.ErrLogNotFound // Raft compares
	case errors.Is(err, wal.ErrClosed):
		return err // Raft's metrics may ask when all is over
	case !errors.As(err, &failed):
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		err = c.disk.poison("read log", fmt.Errorf("entry %d: %w", index, err))
		if c.raftRuns.Load() {
			runtime.Goexit() // Raft would panic, or ask for ever
		}
	}
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendSum appends the checksum of everything in l.
func appendSum(dst []byte, l *raft.Log) []byte {
	var head [25]byte
	binary.LittleEndian.PutUint64(head[0:], l.Index)
	binary.LittleEndian.PutUint64(head[8:], l.Term)
	binary.LittleEndian.PutUint64(head[16:], uint64(l.AppendedAt.UnixNano()))
	head[24] = byte(l.Type)
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, l.Data)
	return binary.LittleEndian.AppendUint32(dst, sum)
}

func checkSum(index uint64, l *raft.Log) error {
	if l.Index != index {
		return fmt.Errorf("%w: found entry %d", ErrCorrupt, l.Index)
	}
	if string(l.Extensions) != string(appendSum(nil, l)) {
		return fmt.Errorf("%w: wrong checksum", ErrCorrupt)
	}
	l.Extensions = nil
	return nil
}

// memoryLog is a logStore that is gone with the process.
type memoryLog struct{ *raft.InmemStore }

func (memoryLog) Close() error { return nil }
