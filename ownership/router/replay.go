package router

import (
	"errors"
	"io"
	"sync"
)

// errGivenUp ends the reads of a first try that has been answered.
var errGivenUp = errors.New("the request was answered before its body was read")

// recording remembers the beginning of a request's body while a first try
// reads it, so that a second one can begin anew and go on where the first
// stopped. It buffers nothing ahead: what the caller streams is sent on at
// once.
type recording struct {
	mu    sync.Mutex // held while reading, so that two tries never do at once
	src   io.Reader
	limit int
	read  []byte
	over  bool // more than limit was read: it cannot begin anew
	now   *try
}

// try is one try's reader.
type try struct {
	rec *recording
	pos int
}

func newRecording(src io.Reader, limit int) *recording {
	return &recording{src: src, limit: limit}
}

// begin returns a reader of the whole body and ends the one before; false if
// the body cannot be had again.
func (rec *recording) begin() (io.ReadCloser, bool) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.over {
		return nil, false
	}
	rec.now = &try{rec: rec}
	return rec.now, true
}

// Read implements io.Reader.
func (t *try) Read(p []byte) (int, error) {
	rec := t.rec
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.now != t {
		return 0, errGivenUp
	}
	if t.pos < len(rec.read) {
		n := copy(p, rec.read[t.pos:])
		t.pos += n
		return n, nil
	}
	n, err := rec.src.Read(p)
	if !rec.over && len(rec.read)+n <= rec.limit {
		rec.read = append(rec.read, p[:n]...)
		t.pos = len(rec.read)
	} else if n > 0 {
		rec.over, rec.read, t.pos = true, nil, 0
	}
	return n, err
}

// Close leaves the body open for another try; the server closes it.
func (t *try) Close() error { return nil }
