package raftstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// files are what a Store keeps on disk, or in memory.
type files struct {
	dir   string // "" in memory
	lock  *dirLock
	id    string
	store string // id of this directory, or of this process's memory
	log   *checkedLog
	// inspect is shown every entry when the log is opened.
	inspect func(*raft.Log) error
	// snaps holds the snapshots; snapIndex is the log index of the newest.
	snaps     *snapshotStore
	snapIndex uint64
}

// path names a file for messages.
func (f *files) path(name string) string {
	if f.dir == "" {
		return "memory:" + name
	}
	return filepath.Join(f.dir, name)
}

// openFiles opens the data directory and verifies everything in it that a later
// step would take on trust.
func openFiles(c *Config, logger hclog.Logger, s *Store) (*files, error) {
	f := &files{dir: c.Dir, id: c.ServerID, inspect: s.inspect}
	d := newDisk(c, f.path("log"), func(e *StorageError) { s.fail(e) })
	s.disk = d
	if c.Dir == "" {
		f.store = newStoreID()
		f.log = &checkedLog{logStore: c.wrap(memoryLog{raft.NewInmemStore()}), disk: d, retain: s.retain}
		f.snaps = &snapshotStore{SnapshotStore: raft.NewInmemSnapshotStore(), retain: s.retain, failed: c.Metrics.SnapshotFailed, log: logger}
		return f, nil
	}
	if err := f.open(c, logger, s); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *files) open(c *Config, logger hclog.Logger, s *Store) (err error) {
	if err := privateDirs(f.dir, logger); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if f.lock, err = lockDir(f.dir); err != nil {
		return err
	}
	if err := checkFinished(f.dir); err != nil {
		return err
	}
	if f.id, err = identify(f.dir, c.ServerID); err != nil {
		return err
	}
	if f.store, err = storeID(f.dir); err != nil {
		return err
	}
	if err := checkFree(f.dir); err != nil {
		return err
	}
	w, err := openWAL(f.path("log"), c, logger)
	if err != nil {
		return err
	}
	f.log = &checkedLog{logStore: c.wrap(w), disk: s.disk, retain: s.retain}
	first, last, err := f.bounds()
	if err != nil {
		return err
	}
	if err := f.openSnapshots(c, logger, s, first, last); err != nil {
		return err
	}
	return f.verify(first, last)
}

// privateDirs makes the directories of log and snapshots for their owner alone.
// What Raft's libraries write there everybody may read, and the data directory may
// be somebody's who left it open: keys of gossip and users' values are in both.
func privateDirs(dir string, logger hclog.Logger) error {
	for _, name := range []string{"log", "snapshots"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, privateMode); err != nil {
			return err
		}
		if err := makePrivate(path); err != nil { // file systems without modes are no reason to stop
			logger.Warn("others on this machine may be able to read the data", "path", path, "error", err)
		}
	}
	return nil
}

const privateMode os.FileMode = 0o700

// makePrivate takes a directory away from everybody but its owner.
func makePrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	return os.Chmod(path, privateMode)
}

// bounds returns the first and last entry of the log; 0, 0 if it is empty.
func (f *files) bounds() (first, last uint64, err error) {
	if first, err = f.log.FirstIndex(); err == nil {
		last, err = f.log.LastIndex()
	}
	if err != nil {
		return 0, 0, &StorageError{Op: "read log", Path: f.path("log"), Err: err}
	}
	return first, last, nil
}

// verify reads the whole log: Raft would panic over an entry that cannot be
// read when it comes to it, or do without one that is missing.
func (f *files) verify(first, last uint64) error {
	if last > 0 && last < f.snapIndex {
		// A crash between the arrival of a snapshot from the leader and the end of
		// the log that it replaces; nothing could be appended to it.
		return f.log.DeleteRange(first, last)
	}
	if last > 0 && first > f.snapIndex+1 {
		return &StorageError{Op: "read log", Path: f.path("log"), Err: fmt.Errorf(
			"%w: it starts at entry %d, but the newest snapshot ends at %d", ErrCorrupt, first, f.snapIndex)}
	}
	for i := first; last > 0 && i <= last; i++ {
		var l raft.Log
		if err := f.log.GetLog(i, &l); err != nil {
			if errors.Is(err, raft.ErrLogNotFound) {
				err = &StorageError{Op: "read log", Path: f.path("log"), Err: fmt.Errorf("%w: entry %d is missing", ErrCorrupt, i)}
			}
			return err
		}
		if err := f.inspect(&l); err != nil {
			return err
		}
		f.log.retain.appended(&l)
	}
	return nil
}

// hasState reports whether the server has ever been part of a group.
func (f *files) hasState() (bool, error) {
	has, err := raft.HasExistingState(f.log, f.log, f.snaps)
	if err != nil {
		return false, fmt.Errorf("look for a log: %w", err)
	}
	return has, nil
}

func (f *files) close() error {
	var errs []error
	if f.log != nil {
		if err := f.log.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close log: %w", err))
		}
	}
	if f.lock != nil {
		errs = append(errs, f.lock.release())
	}
	return errors.Join(errs...)
}

func (c *Config) wrap(l logStore) logStore {
	if c.WrapLog != nil {
		l = c.WrapLog(l)
	}
	if c.hooks.wrapLog != nil {
		return c.hooks.wrapLog(l)
	}
	return l
}

// openWAL opens the log after checking what raft-wal would mend by dropping it.
func openWAL(dir string, c *Config, logger hclog.Logger) (l logStore, err error) {
	defer func() {
		// bbolt panics over some of what it finds in a broken file.
		if p := recover(); p != nil {
			l, err = nil, &StorageError{Op: "open log", Path: dir, Err: fmt.Errorf("%w: %v", ErrCorrupt, p)}
		}
	}()
	if err := checkTail(dir, logger); err != nil {
		return nil, err
	}
	files, err := newSegmentFS(dir, c.hooks.vfs)
	if err != nil {
		return nil, err
	}
	rotation := &rotation{Logger: logger}
	w, err := wal.Open(dir, wal.WithLogger(rotation), wal.WithSegmentSize(c.segmentSize()), wal.WithSegmentFiler(segment.NewFiler(dir, files)))
	if err != nil {
		if errors.Is(err, types.ErrCorrupt) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return nil, &StorageError{Op: "open log", Path: dir, Err: err}
	}
	return rotatingLog{w, rotation}, nil
}

func (c *Config) segmentSize() int {
	if c.hooks.segmentSize != 0 {
		return c.hooks.segmentSize
	}
	return segmentSize
}
