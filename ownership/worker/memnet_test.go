package worker

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// memnet is a network of in-memory connections that can delay, swallow and cut.
type memnet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	conns     []*memConn
	blackhole map[string]bool          // swallow everything to and from an address
	delay     map[string]time.Duration // on what a server sends
}

func newMemnet() *memnet {
	return &memnet{listeners: map[string]*memListener{}, blackhole: map[string]bool{}, delay: map[string]time.Duration{}}
}

type memListener struct {
	net    *memnet
	addr   string
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (n *memnet) listen(addr string) *memListener {
	l := &memListener{net: n, addr: addr, accept: make(chan net.Conn, 16), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[addr] = l
	return l
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}
func (l *memListener) Addr() net.Addr { return memAddr(l.addr) }

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }

func (n *memnet) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l, hole := n.listeners[addr], n.blackhole[addr]
	n.mu.Unlock()
	if hole {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	refused := errors.New("connection refused")
	if l == nil {
		return nil, refused
	}
	up, down := newHalf(), newHalf()
	client := &memConn{addr: addr, r: down, w: up}
	server := &memConn{addr: addr, r: up, w: down}
	n.mu.Lock()
	down.delay = n.delay[addr]
	n.conns = append(n.conns, client)
	n.mu.Unlock()
	select {
	case l.accept <- server:
		return client, nil
	case <-l.closed:
		return nil, refused
	}
}

// swallow makes an address vanish without a word; heal brings it back for new
// connections.
func (n *memnet) swallow(addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addrs {
		n.blackhole[a] = true
		for _, c := range n.conns {
			if c.addr == a {
				c.r.swallow()
				c.w.swallow()
			}
		}
	}
}

func (n *memnet) heal(addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addrs {
		delete(n.blackhole, a)
	}
}

// lag delays what a server sends from now on.
func (n *memnet) lag(addr string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay[addr] = d
	for _, c := range n.conns {
		if c.addr == addr {
			c.r.mu.Lock()
			c.r.delay = d
			c.r.mu.Unlock()
		}
	}
}

type memConn struct {
	addr string
	r, w *half
}

func (c *memConn) Read(p []byte) (int, error)  { return c.r.read(p) }
func (c *memConn) Write(p []byte) (int, error) { return c.w.write(p) }
func (c *memConn) Close() error {
	c.r.close()
	c.w.close()
	return nil
}
func (c *memConn) LocalAddr() net.Addr                { return memAddr("local") }
func (c *memConn) RemoteAddr() net.Addr               { return memAddr(c.addr) }
func (c *memConn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *memConn) SetWriteDeadline(t time.Time) error { return nil }
func (c *memConn) SetReadDeadline(t time.Time) error {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.deadline = t
	c.r.wakeLocked()
	return nil
}

// half is one direction of a connection.
type half struct {
	mu       sync.Mutex
	wake     chan struct{}
	chunks   []chunk
	delay    time.Duration
	deadline time.Time
	closed   bool
	lost     bool
}

type chunk struct {
	b  []byte
	at time.Time
}

func newHalf() *half { return &half{wake: make(chan struct{})} }

func (h *half) wakeLocked() {
	close(h.wake)
	h.wake = make(chan struct{})
}

func (h *half) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		h.wakeLocked()
	}
}

func (h *half) swallow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost, h.chunks = true, nil
}

func (h *half) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0, io.ErrClosedPipe
	}
	if !h.lost {
		h.chunks = append(h.chunks, chunk{append([]byte(nil), p...), time.Now().Add(h.delay)})
		h.wakeLocked()
	}
	return len(p), nil
}

func (h *half) read(p []byte) (int, error) {
	for {
		h.mu.Lock()
		now := time.Now()
		if !h.deadline.IsZero() && !now.Before(h.deadline) {
			h.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		if len(h.chunks) > 0 && !h.chunks[0].at.After(now) {
			n := copy(p, h.chunks[0].b)
			if h.chunks[0].b = h.chunks[0].b[n:]; len(h.chunks[0].b) == 0 {
				h.chunks = h.chunks[1:]
			}
			h.mu.Unlock()
			return n, nil
		}
		if h.closed {
			h.mu.Unlock()
			return 0, io.EOF
		}
		wait := time.Hour
		if len(h.chunks) > 0 {
			wait = h.chunks[0].at.Sub(now)
		}
		if !h.deadline.IsZero() {
			wait = min(wait, h.deadline.Sub(now))
		}
		wake := h.wake
		h.mu.Unlock()
		t := time.NewTimer(wait)
		select {
		case <-wake:
		case <-t.C:
		}
		t.Stop()
	}
}
