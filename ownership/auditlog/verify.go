package auditlog

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Report is what Verify has found in files that are in order.
type Report struct {
	Files, Lines int
	Servers      []Chain // one for each server, by id
	Has          bool    // the line that was asked for is there
}

// Chain is the part of one server.
type Chain struct {
	Server      string
	First, Last uint64 // numbers of lines
	From, To    string // their times
	Hash        string // of the last line: kept elsewhere, it shows later that nothing up to it was changed
}

// Problem is the first line that is not as it was written.
type Problem struct {
	File string
	Line int // from 1; 0: the file as a whole
	What string
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s %s", p.File, p.What)
	}
	return fmt.Sprintf("%s: line %d %s", p.File, p.Line, p.What)
}

// Verify checks the segments of one log or several, in any order. hash, where it is
// not empty, is that of a line to look for. What is not as it was written is a
// *Problem.
func Verify(hash string, files ...string) (*Report, error) {
	type segment struct {
		file string
		record
	}
	var all []segment
	for _, name := range files {
		first, err := firstRecord(name)
		if err != nil {
			return nil, err
		}
		all = append(all, segment{name, first})
	}
	slices.SortStableFunc(all, func(a, b segment) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Seq, b.Seq))
	})
	report := &Report{Files: len(all)}
	for _, s := range all {
		last := len(report.Servers) - 1
		if last < 0 || report.Servers[last].Server != s.Server {
			report.Servers = append(report.Servers, Chain{Server: s.Server, First: s.Seq, From: s.Time})
			last++
		}
		if err := report.segment(&report.Servers[last], s.file, hash); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// firstRecord tells whose segment a file is and where it belongs.
func firstRecord(name string) (record, error) {
	f, err := os.Open(name)
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	line, err := readLine(bufio.NewReaderSize(f, maxLine))
	if errors.Is(err, io.EOF) {
		return record{}, &Problem{name, 0, "is empty: a segment begins with a line that says so"}
	}
	if err != nil {
		return record{}, &Problem{name, 1, err.Error()}
	}
	r, _, err := parseLine(line)
	switch {
	case err != nil:
		return record{}, &Problem{name, 1, err.Error()}
	case r.Method != methodSegment:
		return record{}, &Problem{name, 1, "is not the first of a segment: lines before it are missing"}
	}
	return r, nil
}

// readLine returns the next line without its newline, or io.EOF.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case err == nil:
		return line[:len(line)-1], nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("is longer than the %d bytes that a line may have", maxLine)
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("cannot be read: %w", err)
	case len(line) > 0:
		return nil, errors.New("is not finished: a server is writing it, or stopped in the middle and cuts it off at its next start")
	}
	return nil, io.EOF
}

// segment checks that a file goes on with a chain.
func (rep *Report) segment(c *Chain, name, wanted string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, maxLine)
	for n := 1; ; n++ {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &Problem{name, n, err.Error()}
		}
		r, hash, err := parseLine(line)
		if err == nil {
			err = c.follows(&r, n == 1)
		}
		if err != nil {
			return &Problem{name, n, err.Error()}
		}
		c.Last, c.To, c.Hash = r.Seq, r.Time, hash
		rep.Lines++
		rep.Has = rep.Has || hash == wanted
	}
}

// follows says why a record cannot be the next of a chain. The very first of the
// files may be any: those before it may have been removed.
func (c *Chain) follows(r *record, begins bool) error {
	switch {
	case c.Last == 0 && r.Seq > 1 && r.Prev == "", r.Seq == 1 && r.Prev != "":
		return fmt.Errorf("has number %d and the hash %s of a line before", r.Seq, short(r.Prev))
	case begins != (r.Method == methodSegment):
		return fmt.Errorf("is a call to %s where a segment should begin, or the other way round", r.Method)
	case r.Server != c.Server:
		return fmt.Errorf("is of server %q among those of %q", r.Server, c.Server)
	case c.Last == 0:
		return nil
	case r.Seq != c.Last+1:
		return fmt.Errorf("has number %d where %d is due: lines are missing or moved", r.Seq, c.Last+1)
	case r.Prev != c.Hash:
		return fmt.Errorf("does not follow the line before: it names %s, whose hash is %s", short(r.Prev), short(c.Hash))
	}
	return nil
}
