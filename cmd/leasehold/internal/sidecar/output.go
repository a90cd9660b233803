package sidecar

import (
	"bufio"
	"errors"
	"io"
	"sync"
)

// maxLine is how much of a line is kept together. A longer one is split.
const maxLine = 64 << 10

// lines is an output that many commands share: each write to it is one line.
type lines struct {
	w io.Writer

	mu  sync.Mutex
	buf []byte
}

// copy passes on a command's output until its end, with a prefix before each
// line. What the output refuses is lost: it must not stop the command.
func (l *lines) copy(prefix string, from io.Reader) {
	in := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			l.put(prefix, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *lines) put(prefix string, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(append(l.buf[:0], prefix...), line...)
	if l.buf[len(l.buf)-1] != '\n' {
		l.buf = append(l.buf, '\n')
	}
	_, _ = l.w.Write(l.buf)
}
