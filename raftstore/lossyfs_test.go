package raftstore

import (
	"io"
	"os"
	"sync"

	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

// lossyFS is a file layer that keeps what was written since the last sync in
// memory, and can lose it: power loss. Its syncs can be made to fail or hang.
type lossyFS struct {
	inner types.VFS

	mu      sync.Mutex
	lost    bool          // the power is off: nothing more reaches the disk
	syncErr error         // what Sync returns
	hang    chan struct{} // Sync waits for it
	syncs   int
	skip    bool // Sync claims success and does nothing: a mutant
}

func newLossyFS() *lossyFS { return &lossyFS{inner: fs.New()} }

// powerOff loses what has not been synced.
func (l *lossyFS) powerOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
}

func (l *lossyFS) failSyncs(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncErr = err
}

func (l *lossyFS) hangSyncs() (resume func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := make(chan struct{})
	l.hang = ch
	return sync.OnceFunc(func() {
		l.mu.Lock()
		l.hang = nil
		l.mu.Unlock()
		close(ch)
	})
}

func (l *lossyFS) ListDir(dir string) ([]string, error) { return l.inner.ListDir(dir) }
func (l *lossyFS) Delete(dir, name string) error        { return l.inner.Delete(dir, name) }

func (l *lossyFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := l.inner.Create(dir, name, size)
	if err != nil {
		return nil, err
	}
	return &lossyFile{WritableFile: f, l: l}, nil
}

func (l *lossyFS) OpenReader(dir, name string) (types.ReadableFile, error) {
	return l.inner.OpenReader(dir, name)
}

func (l *lossyFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := l.inner.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return &lossyFile{WritableFile: f, l: l}, nil
}

// lossyFile holds back writes until Sync.
type lossyFile struct {
	types.WritableFile
	l       *lossyFS
	mu      sync.Mutex
	pending []pendingWrite
}

type pendingWrite struct {
	off int64
	b   []byte
}

func (f *lossyFile) WriteAt(b []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = append(f.pending, pendingWrite{off, append([]byte(nil), b...)})
	return len(b), nil
}

// ReadAt sees what the page cache would: the file with the pending writes.
func (f *lossyFile) ReadAt(b []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.WritableFile.ReadAt(b, off)
	if err != nil && err != io.EOF {
		return n, err
	}
	for _, w := range f.pending {
		from, to := max(off, w.off), min(off+int64(len(b)), w.off+int64(len(w.b)))
		if from < to {
			copy(b[from-off:to-off], w.b[from-w.off:to-w.off])
			n = max(n, int(to-off))
		}
	}
	if n == len(b) {
		err = nil
	}
	return n, err
}

func (f *lossyFile) Sync() error {
	f.l.mu.Lock()
	f.l.syncs++
	hang, failure, lost, skip := f.l.hang, f.l.syncErr, f.l.lost, f.l.skip
	f.l.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if failure != nil {
		return failure
	}
	if skip {
		return nil
	}
	if lost {
		return os.ErrClosed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.pending {
		if _, err := f.WritableFile.WriteAt(w.b, w.off); err != nil {
			return err
		}
	}
	f.pending = nil
	return f.WritableFile.Sync()
}
