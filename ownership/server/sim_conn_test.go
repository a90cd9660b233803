package server

import (
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// simListener is a port that is listened on.
type simListener struct {
	host   *simHost
	addr   string
	accept chan net.Conn
	closed chan struct{}
	shut   bool
}

func (l *simListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *simListener) shutLocked() {
	if l.shut {
		return
	}
	l.shut = true
	close(l.closed)
	delete(l.host.listeners, l.addr)
	for {
		select {
		case c := <-l.accept:
			c.(*simConn).closeLocked()
		default:
			return
		}
	}
}

func (l *simListener) Close() error {
	l.host.net.mu.Lock()
	defer l.host.net.mu.Unlock()
	l.shutLocked()
	return nil
}

func (l *simListener) Addr() net.Addr { return simAddr(l.addr) }

type simAddr string

func (simAddr) Network() string  { return "tcp" }
func (a simAddr) String() string { return string(a) }

// simConn is one end of a connection.
type simConn struct {
	net         *simNet
	here, there string
	in, out     *simWay
	closed      bool
}

func (c *simConn) closeLocked() {
	if c.closed {
		return
	}
	c.closed = true
	delete(c.net.conns, c)
	c.in.gone = true
	c.in.wakeLocked()
	c.out.sendLocked(nil)
	c.out.wakeLocked()
}

func (c *simConn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.closeLocked()
	return nil
}

// Write to an end that has been closed is answered with a reset, which both this
// end's writers and its reader meet. gRPC relies on the latter: it lets go of a
// connection when reading fails, and until then tries anew on it without a pause.
func (c *simConn) Write(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.in.reset:
		return 0, syscall.ECONNRESET
	case c.out.gone:
		if !c.net.stalledLocked(c.here, c.there) && !c.net.stalledLocked(c.there, c.here) {
			c.in.reset = true
			c.in.wakeLocked()
		}
		return len(p), nil // nobody can know yet
	}
	c.out.sendLocked(slices.Clone(p))
	return len(p), nil
}

func (c *simConn) Read(p []byte) (int, error)         { return c.in.read(p) }
func (c *simConn) LocalAddr() net.Addr                { return simAddr(c.here + ":1") }
func (c *simConn) RemoteAddr() net.Addr               { return simAddr(c.there + ":1") }
func (c *simConn) SetWriteDeadline(t time.Time) error { return nil } // a write never waits
func (c *simConn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }

func (c *simConn) SetReadDeadline(t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.in.deadline = t
	c.in.wakeLocked()
	return nil
}

// simWay is one direction of a connection. Its end arrives in order, like FIN;
// a reset overtakes everything.
type simWay struct {
	net      *simNet
	from, to string
	queue    []simChunk
	deadline time.Time
	reset    bool
	gone     bool // the reading end was closed
	wake     chan struct{}
}

type simChunk struct {
	b  []byte // nil: the end
	at time.Time
}

func (w *simWay) wakeLocked() {
	select {
	case <-w.wake:
	default:
		close(w.wake)
	}
}

func (w *simWay) sendLocked(b []byte) {
	at := time.Now().Add(w.net.latencyLocked(w.from, w.to))
	if n := len(w.queue); n > 0 && at.Before(w.queue[n-1].at) {
		at = w.queue[n-1].at
	}
	w.queue = append(w.queue, simChunk{b, at})
	w.wakeLocked()
}

// takeLocked returns what a reader gets now, or until when it waits (zero: no
// time is known).
func (w *simWay) takeLocked(p []byte, now time.Time) (n int, ready bool, until time.Time, err error) {
	switch {
	case w.gone:
		return 0, true, until, net.ErrClosed
	case w.reset:
		return 0, true, until, syscall.ECONNRESET
	case !w.deadline.IsZero() && !now.Before(w.deadline):
		return 0, true, until, os.ErrDeadlineExceeded
	}
	until = w.deadline
	if len(w.queue) == 0 {
		return 0, false, until, nil
	}
	if w.net.stalledLocked(w.from, w.to) {
		w.net.held++
		return 0, false, until, nil
	}
	first := &w.queue[0]
	if first.at.After(now) {
		if until.IsZero() || first.at.Before(until) {
			until = first.at
		}
		return 0, false, until, nil
	}
	if first.b == nil {
		return 0, true, until, io.EOF
	}
	for n < len(p) && len(w.queue) > 0 && w.queue[0].b != nil && !w.queue[0].at.After(now) {
		k := copy(p[n:], w.queue[0].b)
		n += k
		if w.queue[0].b = w.queue[0].b[k:]; len(w.queue[0].b) == 0 {
			w.queue = w.queue[1:]
		}
	}
	return n, true, until, nil
}

func (w *simWay) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		w.net.mu.Lock()
		now := time.Now()
		n, ready, until, err := w.takeLocked(p, now)
		if ready {
			w.net.mu.Unlock()
			return n, err
		}
		wake := make(chan struct{})
		w.wake = wake
		w.net.mu.Unlock()
		if until.IsZero() {
			<-wake
			continue
		}
		t := time.NewTimer(until.Sub(now))
		select {
		case <-wake:
		case <-t.C:
		}
		t.Stop()
	}
}
