package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft-wal/segment"
)

// raft-wal takes the first frame that makes no sense in the newest segment for
// the end of a write that power loss cut short, and goes on from the commit
// before it. That is right for the last write, and silently drops everything
// after a flipped bit further up. A segment is
//
//	header (32 bytes) · batch · batch · …
//	batch  = frame… commit
//	frame  = type, 0, 0, 0, length (LE uint32), payload, padding to 8 bytes
//	commit = 3, 0, 0, 0, CRC-32C (LE) of the batch before it
//
// (the first batch's sum includes the header). Each batch is synced before the
// next begins, so a whole batch behind the last one that can be reached proves
// that the one in between was whole once. The rest of a segment is zeros, and
// no frame begins with a zero: a word of zeros behind the last commit proves
// that nothing after it was ever acknowledged.
const (
	walHeader = 32
	walWord   = 8
	walEntry  = 1
	walIndex  = 2
	walCommit = 3
)

// checkTail refuses a newest segment in which something that was acknowledged
// is missing or unreadable, and mends what was torn or cut behind that.
func checkTail(dir string, logger hclog.Logger) error {
	newest, err := newestSegment(dir)
	if err != nil || newest == nil {
		return err
	}
	acked, err := readAcked(dir)
	if err != nil {
		return err
	}
	name, size := segment.FileName(*newest), int(newest.SizeLimit)
	path := filepath.Join(dir, name)
	refuse := func(format string, args ...any) error {
		return &StorageError{Op: "read log", Path: path, Err: fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)}
	}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && acked != name:
		return nil // a crash before it was made
	case errors.Is(err, fs.ErrNotExist):
		return refuse("it is missing, with entries that were acknowledged")
	case err != nil:
		return &StorageError{Op: "read log", Path: path, Err: err}
	}
	end := walEnd(b)
	if at, found := batchAfter(b, end); found {
		return refuse("unreadable between bytes %d and %d, but whole after that", end, at)
	}
	if acked == name && end == walHeader {
		return refuse("no entry can be read, and some were acknowledged")
	}
	if len(b) >= size || acked == "" && len(b) == 0 {
		return clearTornIndex(path, b, end)
	}
	// Segments get their whole size when they are made. One that has been begun,
	// but never synced, may have any other.
	if unused := acked != "" && acked != name; !unused && !walUnwritten(b, end) {
		return refuse("cut at byte %d, entries that were acknowledged may be missing", len(b))
	}
	logger.Warn("log file had been cut behind its last entry, giving it back its size", "path", path, "bytes", len(b), "entries-end", end)
	if err := os.Truncate(path, int64(size)); err != nil {
		return &StorageError{Op: "mend log", Path: path, Err: err}
	}
	return nil
}

// clearTornIndex overwrites a torn last batch that would have filled the
// segment. raft-wal drops it too, but remembers its index, and would refuse
// every append to the segment for ever.
func clearTornIndex(path string, b []byte, end int) error {
	all, rest := walBatches(b)
	torn := rest.index
	if n := len(all); n > 0 && all[n-1].commit >= end {
		torn = max(torn, all[n-1].index)
	}
	if torn < end {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, len(b)-end), int64(end))
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return &StorageError{Op: "mend log", Path: path, Err: err}
	}
	return nil
}

// walUnwritten reports whether at least one whole word follows end, and
// nothing but zeros.
func walUnwritten(b []byte, end int) bool {
	if len(b) < end+walWord {
		return false
	}
	for _, c := range b[end:] {
		if c != 0 {
			return false
		}
	}
	return true
}

// walBatch is a commit and what it closes.
type walBatch struct {
	start, commit int // offsets
	entries       int // up to the commit, of the whole segment
	index         int // where the index's payload begins; 0: none
}

// walBatches lists the batches that can be reached from the start, as raft-wal
// reaches them, and what follows without a commit. Their sums are not checked.
func walBatches(b []byte) (all []walBatch, next walBatch) {
	for at := walHeader; at+walWord <= len(b); {
		size := 0
		switch b[at] {
		case walEntry, walIndex:
			n := uint64(binary.LittleEndian.Uint32(b[at+4:]))
			size = int((n + walWord - 1) / walWord * walWord)
			if b[at] == walEntry {
				next.entries++
			} else {
				next.index = at + walWord
			}
		case walCommit:
			next.commit = at
			all = append(all, next)
			next = walBatch{start: at + walWord, entries: next.entries}
		default:
			return all, next
		}
		at += walWord + size
	}
	return all, next
}

// walGood returns the last batch that raft-wal will find good.
func walGood(b []byte) (walBatch, bool) {
	all, _ := walBatches(b)
	if n := len(all); n > 0 && !batchWhole(b, all[n-1].start, all[n-1].commit) {
		all = all[:n-1]
	}
	if len(all) == 0 {
		return walBatch{}, false
	}
	return all[len(all)-1], true
}

// walEnd returns the offset behind the last commit that raft-wal will find good.
func walEnd(b []byte) int {
	if last, ok := walGood(b); ok {
		return last.commit + walWord
	}
	return walHeader
}

// walSealed returns where the index of a full segment begins, and how many
// entries it has; 0 for one that is not full.
func walSealed(b []byte) (entries, index int) {
	last, ok := walGood(b)
	if !ok || last.index == 0 {
		return 0, 0
	}
	return last.entries, last.index
}

func batchWhole(b []byte, start, commit int) bool {
	return crc32.Checksum(b[start:commit], castagnoli) == binary.LittleEndian.Uint32(b[commit+4:])
}

// batchAfter looks for a whole batch that starts behind offset end, after a
// commit that may itself have the flipped bit.
func batchAfter(b []byte, end int) (start int, found bool) {
	const tries = 64
	var starts []int
	for at := end; at+walWord <= len(b); at += walWord {
		head := binary.LittleEndian.Uint32(b[at:])
		if head == walCommit {
			for i := len(starts) - 1; i >= 0 && i >= len(starts)-tries; i-- {
				if starts[i] < at && batchWhole(b, starts[i], at) {
					return starts[i], true
				}
			}
		}
		if bits.OnesCount32(head^walCommit) <= 1 {
			starts = append(starts, at+walWord)
		}
	}
	return 0, false
}
