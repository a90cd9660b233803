package auditlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// file is what a writer needs of an *os.File.
type file interface {
	Write(b []byte) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// writer appends lines to the newest segment. What is in the chain is on the file:
// a batch is written as a whole or cut off again.
type writer struct {
	path, server string
	segmentBytes int64
	segments     int
	log          *slog.Logger
	open         func(name string, flag int) (file, error)

	f     file
	size  int64  // of whole lines
	torn  bool   // there may be more in the file, to be cut off
	first uint64 // number of the segment's first line
	seq   uint64 // number of the last line
	hash  string // of the last line
	stuck bool   // no new segment could be begun the last time
}

func openWriter(c *Config) (*writer, error) {
	w := &writer{path: c.Path, server: c.Server, segmentBytes: c.SegmentBytes, segments: c.Segments, log: c.Logger.With("audit_log", c.Path), open: c.open}
	if w.segmentBytes == 0 {
		w.segmentBytes = DefaultSegmentBytes
	}
	if w.segments == 0 {
		w.segments = DefaultSegments
	}
	if w.segmentBytes < MinSegmentBytes || w.segments < MinSegments {
		return nil, fmt.Errorf("%d segments of %d bytes: at least %d of %d", w.segments, w.segmentBytes, MinSegments, MinSegmentBytes)
	}
	if w.open == nil {
		w.open = func(name string, flag int) (file, error) { return os.OpenFile(name, flag, 0o600) }
	}
	lines, err := w.resume()
	if err != nil {
		return nil, err
	}
	if err := w.append(append(lines, w.own(time.Now(), methodStart, "ok"))); err != nil {
		_ = w.f.Close()
		return nil, err
	}
	return w, nil
}

// own is a line that the log says of itself.
func (w *writer) own(at time.Time, method, outcome string) record {
	return record{Time: at.UTC().Format(timeFormat), Who: "server/" + clip(w.server), Method: method, Outcome: outcome}
}

// resume finds the end of the chain and opens the newest segment.
func (w *writer) resume() (lines []record, err error) {
	end, err := readEnd(w.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	w.size, w.torn = end.size, end.torn > 0
	if end.torn > 0 {
		w.log.Warn("the last line of the audit log was not finished and is cut off", "bytes", end.torn)
		lines = append(lines, w.own(time.Now(), methodTorn, fmt.Sprintf("%d bytes of an unfinished line were cut off", end.torn)))
	}
	if end.size > 0 {
		if w.first, err = firstSeq(w.path); err != nil {
			return nil, fmt.Errorf("%w: move it away if it was one", err)
		}
	} else { // the very beginning, or a crash between two segments
		before, err := newestSegment(w.path)
		if err != nil {
			return nil, err
		}
		if before != "" {
			if end, err = readEnd(before); err != nil {
				return nil, err
			}
		}
	}
	w.seq, w.hash = end.record.Seq, end.hash
	if end.bad != nil {
		// No reason to let nobody in: what is wrong stays to be found. Numbers go on
		// from the milliseconds since 1970, which are more than there can be lines.
		w.log.Error("the last line of the audit log is not as it was written: see leasehold audit verify", "err", end.bad)
		w.seq = uint64(time.Now().UnixMilli())
		lines = append(lines, w.own(time.Now(), methodDamaged, "the line before is not as it was written"))
	}
	if other := end.record.Server; other != "" && other != w.server {
		return nil, fmt.Errorf("the file is that of server %q, and this one is %q: give each server a file of its own", other, w.server)
	}
	if w.f, err = w.open(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE); err != nil {
		return nil, err
	}
	if err := os.Chmod(w.path, 0o600); err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	return lines, nil
}

// append writes lines, and begins a new segment where it is due.
func (w *writer) append(lines []record) error {
	if w.torn {
		if err := w.f.Truncate(w.size); err != nil {
			return fmt.Errorf("cut off an unfinished line: %w", err)
		}
		w.torn = false
	}
	if w.size >= w.segmentBytes {
		w.next()
	}
	seq, hash, text := w.seq, w.hash, []byte(nil)
	if w.size == 0 {
		w.first = seq + 1
		lines = append([]record{w.own(time.Now(), methodSegment, "ok")}, lines...)
	}
	for i := range lines {
		seq++
		lines[i].Server, lines[i].Seq, lines[i].Prev = w.server, seq, hash
		text, hash = lines[i].appendLine(text)
	}
	if _, err := w.f.Write(text); err != nil {
		w.torn = true
		return err
	}
	w.size, w.seq, w.hash = w.size+int64(len(text)), seq, hash
	return nil
}

// next begins a new segment, or goes on with this one where that fails.
func (w *writer) next() {
	err := w.rotate()
	if err != nil && !w.stuck {
		w.log.Error("the audit log grows beyond its size: no new segment can be begun", "err", err)
	}
	w.stuck = err != nil
	if err != nil {
		return
	}
	if err := errors.Join(syncDir(filepath.Dir(w.path)), w.prune()); err != nil {
		w.log.Error("old segments of the audit log may stay", "err", err)
	}
}

// rotate renames the newest segment and begins one.
func (w *writer) rotate() error {
	if err := w.f.Sync(); err != nil {
		return err
	}
	name := w.path + "." + segmentSuffix(w.first)
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is in the way", name)
	}
	if err := os.Rename(w.path, name); err != nil {
		return err
	}
	f, err := w.open(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL)
	if err != nil {
		// The open file is the old segment: it gets its name back.
		return errors.Join(err, os.Rename(name, w.path))
	}
	_ = w.f.Close() // synced
	w.f, w.size = f, 0
	return nil
}

func (w *writer) prune() error {
	names, err := segments(w.path)
	if err != nil {
		return err
	}
	for len(names) > w.segments-1 {
		err = errors.Join(err, os.Remove(names[0]))
		names = names[1:]
	}
	return err
}

func (w *writer) sync() error { return w.f.Sync() }

func (w *writer) close() { _ = w.f.Close() }

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
