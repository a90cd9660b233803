package auditlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// segmentSuffix sorts by number and by name alike.
func segmentSuffix(first uint64) string { return fmt.Sprintf("%020d", first) }

var isSegment = regexp.MustCompile(`\.[0-9]{20}$`)

// segments are the older segments of a log, oldest first.
func segments(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var names []string
	base := filepath.Base(path)
	for _, e := range entries {
		if name := e.Name(); len(name) == len(base)+21 && name[:len(base)] == base && isSegment.MatchString(name) {
			names = append(names, filepath.Join(filepath.Dir(path), name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// newestSegment is the newest of them, or "".
func newestSegment(path string) (string, error) {
	names, err := segments(path)
	if err != nil || len(names) == 0 {
		return "", err
	}
	return names[len(names)-1], nil
}

// firstSeq is the number of a segment's first line.
func firstSeq(path string) (uint64, error) {
	r, err := firstRecord(path)
	return r.Seq, err
}

// end is where a segment ends.
type end struct {
	record record // the last whole line
	hash   string // its hash, or where it is bad that of all of it
	bad    error  // why it cannot be read; the record is empty then
	size   int64  // up to and with it
	torn   int64  // bytes after it
}

// readEnd reads the end of a segment.
func readEnd(path string) (end, error) {
	f, err := os.Open(path)
	if err != nil {
		return end{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return end{}, err
	}
	if !info.Mode().IsRegular() {
		return end{}, errors.New("is not a file")
	}
	// Enough for an unfinished line behind a whole one. What is torn may be more:
	// a batch of lines whose pages did not all reach the disk.
	for window := int64(2 * maxLine); ; window *= 8 {
		from := max(0, info.Size()-window)
		b := make([]byte, info.Size()-from)
		if _, err := f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
			return end{}, err
		}
		e, found := endOf(b, from == 0)
		if !found {
			continue
		}
		e.size += from
		if e.size == 0 && e.torn > 0 && !bytes.HasPrefix(b, []byte(lineStart)) {
			return end{}, errors.New("the file is there and is not an audit log")
		}
		return e, nil
	}
}

// endOf looks for the last whole line in the end of a file, or in all of it.
func endOf(b []byte, all bool) (end, bool) {
	last := bytes.LastIndexByte(b, '\n')
	if last < 0 {
		return end{torn: int64(len(b))}, all
	}
	begin := bytes.LastIndexByte(b[:last], '\n') + 1
	if begin == 0 && !all {
		return end{}, false
	}
	e := end{size: int64(last + 1), torn: int64(len(b) - last - 1)}
	e.record, e.hash, e.bad = parseLine(b[begin:last])
	if e.bad != nil {
		e.hash = hashOf(b[begin:last])
	}
	return e, true
}
