package raftstore

import (
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"
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
	makeErr error         // what Create returns
	hang    chan struct{} // Sync waits for it
	syncs   int
	skip    bool // Sync claims success and does nothing: a mutant
	files   []*lossyFile
	onTear  func()
	takes   time.Duration // each Sync
}

// slowSyncs makes each Sync take a while.
func slowSyncs(s *server, c *Config, takes time.Duration) {
	s.vfs.takes = takes
	c.hooks.wrapLog = func(l logStore) logStore { return &queuedLog{l, make(chan struct{}, 1)} }
}

// queuedLog keeps raft-wal from waiting for its mutex while a Sync sleeps: fake
// time stands still then.
type queuedLog struct {
	logStore
	turn chan struct{}
}

func (q *queuedLog) StoreLogs(logs []*raft.Log) error {
	q.turn <- struct{}{}
	defer func() { <-q.turn }()
	return q.logStore.StoreLogs(logs)
}

func (q *queuedLog) DeleteRange(from, to uint64) error {
	q.turn <- struct{}{}
	defer func() { <-q.turn }()
	return q.logStore.DeleteRange(from, to)
}

func newLossyFS() *lossyFS { return &lossyFS{inner: fs.New()} }

// tear turns the power off: of what has not been synced, each sector reaches
// the disk or not, as chance has it. A disk orders as it likes.
func (l *lossyFS) tear(rng *rand.Rand) {
	l.mu.Lock()
	l.lost = true
	files, onTear := l.files, l.onTear
	l.mu.Unlock()
	for _, f := range files {
		if f.tear(rng) {
			onTear()
		}
	}
}

const sector = 512

// tear writes some sectors of what is pending, none without rng, and reports
// whether there was something.
func (f *lossyFile) tear(rng *rand.Rand) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rng == nil {
		f.pending = nil
		return true
	}
	most := []float64{0, 0.1, 0.5, 0.9, 1}[rng.IntN(5)]
	prefix := rng.IntN(3) == 0 // as a disk that writes in order
	n := len(f.pending)
	for _, w := range f.pending {
		for at := 0; at < len(w.b); {
			end := min(len(w.b), at+sector-int((w.off+int64(at))%sector))
			reached := rng.Float64() < most
			if prefix && !reached {
				break
			}
			if reached {
				if _, err := f.WritableFile.WriteAt(w.b[at:end], w.off+int64(at)); err != nil {
					panic(err)
				}
			}
			at = end
		}
	}
	f.pending = nil
	return n > 0
}

// opened remembers a file.
func (l *lossyFS) opened(w types.WritableFile) types.WritableFile {
	f := &lossyFile{WritableFile: w, l: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files = append(l.files, f)
	return f
}

func (l *lossyFS) failSyncs(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncErr = err
}

func (l *lossyFS) failCreates(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.makeErr = err
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
	l.mu.Lock()
	err := l.makeErr
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f, err := l.inner.Create(dir, name, size)
	if err != nil {
		return nil, err
	}
	return l.opened(f), nil
}

func (l *lossyFS) OpenReader(dir, name string) (types.ReadableFile, error) {
	return l.inner.OpenReader(dir, name)
}

func (l *lossyFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := l.inner.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return l.opened(f), nil
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
	hang, failure, lost, skip, takes := f.l.hang, f.l.syncErr, f.l.lost, f.l.skip, f.l.takes
	f.l.mu.Unlock()
	time.Sleep(takes)
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
	f.l.mu.Lock()
	lost = f.l.lost
	f.l.mu.Unlock()
	if lost { // meanwhile
		return os.ErrClosed
	}
	for _, w := range f.pending {
		if _, err := f.WritableFile.WriteAt(w.b, w.off); err != nil {
			return err
		}
	}
	f.pending = nil
	return f.WritableFile.Sync()
}
