package raftstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// ackedFile names the newest segment in which an append has been completed. It
// is written between the first sync of a segment and the first answer to an
// append in it. So a segment that it does not name holds nothing that anybody
// relies on, whatever it looks like; and one that it names cannot be empty.
const ackedFile = "acked"

// segmentFS is the file layer under raft-wal. It keeps ackedFile, and takes a
// file without room reserved when the disk has too little for a whole segment:
// what comes next may still fit, and may be the truncation that frees some.
type segmentFS struct {
	types.VFS

	mu    sync.Mutex
	acked string // content of ackedFile
}

func newSegmentFS(dir string, vfs any) (*segmentFS, error) {
	acked, err := readAcked(dir)
	if err != nil {
		return nil, err
	}
	inner, ok := vfs.(types.VFS)
	if !ok {
		inner = walfs.New()
	}
	return &segmentFS{VFS: inner, acked: acked}, nil
}

// readAcked returns the name in ackedFile; "" if there is none yet.
func readAcked(dir string) (string, error) {
	path := filepath.Join(dir, ackedFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", &StorageError{Op: "read log", Path: path, Err: err}
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

// Create makes a segment.
func (s *segmentFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := s.VFS.Create(dir, name, size)
	if errors.Is(err, syscall.ENOSPC) {
		// What had been reserved goes back first: others need it too.
		path := filepath.Join(dir, name)
		if errors.Join(os.Truncate(path, 0), os.Truncate(path, int64(size))) == nil {
			f, err = s.VFS.OpenWriter(dir, name)
		}
	}
	if err != nil {
		return nil, err
	}
	return &segmentFile{WritableFile: f, s: s, dir: dir, name: name}, nil
}

// OpenWriter opens the newest segment.
func (s *segmentFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := s.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return &segmentFile{WritableFile: f, s: s, dir: dir, name: name}, nil
}

// segmentFile is a segment that is written.
type segmentFile struct {
	types.WritableFile
	s         *segmentFS
	dir, name string
}

// Sync returns when what was written is on disk, and the segment's name too.
func (f *segmentFile) Sync() error {
	if err := f.WritableFile.Sync(); err != nil {
		return err
	}
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.acked == f.name {
		return nil
	}
	if err := writeSynced(filepath.Join(f.dir, ackedFile), f.name+"\n"); err != nil {
		return err
	}
	f.s.acked = f.name
	return nil
}

// newestSegment returns the segment that raft-wal will append to, nil for a new
// log, after mending what raft-wal does not: a crash between the last write to
// a full segment and the note that it is full. raft-wal would refuse every
// append for ever.
func newestSegment(dir string) (*types.SegmentInfo, error) {
	meta := filepath.Join(dir, metadb.FileName)
	if _, err := os.Stat(meta); errors.Is(err, fs.ErrNotExist) {
		return nil, nothingWritten(dir, meta)
	}
	var db metadb.BoltMetaDB
	st, err := db.Load(dir)
	if err != nil {
		return nil, errors.Join(&StorageError{Op: "open log", Path: meta, Err: fmt.Errorf("%w: %w", ErrCorrupt, err)}, db.Close())
	}
	newest, err := sealNewest(dir, &db, st)
	return newest, errors.Join(err, db.Close())
}

// nothingWritten refuses a log that has lost its list of segments: raft-wal
// would take it for new, and delete the segments.
func nothingWritten(dir, meta string) error {
	acked, err := readAcked(dir)
	if err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || acked == "" && len(names) == 0 {
		return err
	}
	return &StorageError{Op: "open log", Path: meta, Err: fmt.Errorf("%w: it is missing", ErrCorrupt)}
}

// sealNewest returns the newest segment of st. If that is full, it notes so, as
// raft-wal's rotation would have done, and begins the next.
func sealNewest(dir string, db *metadb.BoltMetaDB, st types.PersistentState) (*types.SegmentInfo, error) {
	if len(st.Segments) == 0 {
		return nil, nil
	}
	last := &st.Segments[len(st.Segments)-1]
	if !last.SealTime.IsZero() {
		return nil, nil
	}
	path := filepath.Join(dir, segment.FileName(*last))
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	if err != nil {
		return nil, &StorageError{Op: "read log", Path: path, Err: err}
	}
	entries, index := walSealed(b)
	if index == 0 {
		return last, nil
	}
	last.SealTime, last.IndexStart, last.MaxIndex = time.Now(), uint64(index), last.BaseIndex+uint64(entries)-1
	next := types.SegmentInfo{
		ID: st.NextSegmentID, BaseIndex: last.MaxIndex + 1, MinIndex: last.MaxIndex + 1,
		SizeLimit: last.SizeLimit, Codec: last.Codec, CreateTime: time.Now(),
	}
	st.NextSegmentID++
	st.Segments = append(st.Segments, next)
	if err := db.CommitState(st); err != nil {
		return nil, &StorageError{Op: "write log", Path: filepath.Join(dir, metadb.FileName), Err: err}
	}
	return &next, nil
}

// rotation remembers why raft-wal could not begin the next segment: it only
// logs that, and then says of the next append that the segment is full.
type rotation struct {
	hclog.Logger
	err atomic.Pointer[error]
}

// Error is called by raft-wal.
func (r *rotation) Error(msg string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok {
			r.err.Store(&err)
		}
	}
	r.Logger.Error(msg, args...)
}

// rotatingLog is raft-wal with errors that say why.
type rotatingLog struct {
	*wal.WAL
	rotation *rotation
}

// StoreLogs returns when the entries are on disk and synced.
func (l rotatingLog) StoreLogs(logs []*raft.Log) error {
	err := l.WAL.StoreLogs(logs)
	if cause := l.rotation.err.Load(); cause != nil && errors.Is(err, types.ErrSealed) {
		return fmt.Errorf("begin the next file: %w", *cause)
	}
	return err
}
