package pki

import (
	"bytes"
	"io"
	"net"
	"sync"
	"time"
)

// wire is a connection with room in both directions, as a socket has: an end that
// refuses the other says so while the other is still talking. It works under
// synctest.
type wire struct{ in, out *stream }

type stream struct {
	mu     sync.Mutex
	more   sync.Cond
	buf    bytes.Buffer
	closed bool
}

func newWire() (net.Conn, net.Conn) {
	a, b := &stream{}, &stream{}
	a.more.L, b.more.L = &a.mu, &b.mu
	return &wire{a, b}, &wire{b, a}
}

func (w *wire) Read(p []byte) (int, error) {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	for w.in.buf.Len() == 0 {
		if w.in.closed {
			return 0, io.EOF
		}
		w.in.more.Wait()
	}
	return w.in.buf.Read(p)
}

func (w *wire) Write(p []byte) (int, error) {
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	if w.out.closed {
		return 0, io.ErrClosedPipe
	}
	defer w.out.more.Broadcast()
	return w.out.buf.Write(p)
}

// Close ends both directions; what was written is still read.
func (w *wire) Close() error {
	for _, s := range []*stream{w.in, w.out} {
		s.mu.Lock()
		s.closed = true
		s.more.Broadcast()
		s.mu.Unlock()
	}
	return nil
}

func (*wire) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (*wire) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (*wire) SetDeadline(time.Time) error      { return nil }
func (*wire) SetReadDeadline(time.Time) error  { return nil }
func (*wire) SetWriteDeadline(time.Time) error { return nil }
