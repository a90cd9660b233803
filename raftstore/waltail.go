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
// that the one in between was whole once.
const (
	walHeader = 32
	walWord   = 8
	walEntry  = 1
	walIndex  = 2
	walCommit = 3
)

// checkTail refuses a newest segment that has been cut short, or has a readable
// batch behind an unreadable one. Segments get their whole size when they are
// made, so that no crash makes one shorter; an empty one is a crash between its
// making and that.
func checkTail(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(names) == 0 {
		return err
	}
	path := names[len(names)-1] // base index first, zero-padded: sorted
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &StorageError{Op: "read log", Path: path, Err: err}
	}
	if len(b) > 0 && len(b) < segmentSize {
		return &StorageError{Op: "read log", Path: path, Err: fmt.Errorf(
			"%w: it has %d bytes of %d, entries that were acknowledged may be missing", ErrCorrupt, len(b), segmentSize)}
	}
	end := walEnd(b)
	if at, found := batchAfter(b, end); found {
		return &StorageError{Op: "read log", Path: path, Err: fmt.Errorf(
			"%w: unreadable between bytes %d and %d, but whole after that", ErrCorrupt, end, at)}
	}
	return nil
}

// walEnd returns the offset behind the last commit that raft-wal will find good.
func walEnd(b []byte) int {
	commits := []int{}
	for at := walHeader; at+walWord <= len(b); {
		size := 0
		switch b[at] {
		case walEntry, walIndex:
			n := uint64(binary.LittleEndian.Uint32(b[at+4:]))
			size = int((n + walWord - 1) / walWord * walWord)
		case walCommit:
			commits = append(commits, at)
		default:
			size = -1
		}
		if size < 0 {
			break
		}
		at += walWord + size
	}
	if len(commits) == 0 {
		return walHeader
	}
	last, start := commits[len(commits)-1], 0
	if len(commits) > 1 {
		start = commits[len(commits)-2] + walWord
	}
	if batchWhole(b, start, last) {
		return last + walWord
	}
	return max(start, walHeader)
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
