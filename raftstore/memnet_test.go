package raftstore

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// memNet is a network of pipes between servers, in which links can be cut
// (connections break and cannot be made) or stalled (nothing arrives, nothing
// breaks until a deadline passes).
type memNet struct {
	latency time.Duration

	mu        sync.Mutex
	listeners map[string]*memListener
	conns     map[*memConn]struct{}
	cut       map[string]bool          // by server address: cut off from all others
	stalled   map[string]chan struct{} // by server address; closed on resume
}

func newMemNet() *memNet {
	return &memNet{
		latency:   100 * time.Microsecond,
		listeners: map[string]*memListener{},
		conns:     map[*memConn]struct{}{},
		cut:       map[string]bool{},
		stalled:   map[string]chan struct{}{},
	}
}

// at is the network as one server sees it.
func (n *memNet) at(addr string) Network { return &memHost{n, addr} }

func (n *memNet) brokenLocked(a, b string) bool { return n.cut[a] || n.cut[b] }

// isolate cuts a server off, or joins it again.
func (n *memNet) isolate(addr string, off bool) {
	n.mu.Lock()
	n.cut[addr] = off
	n.mu.Unlock()
	n.sweep()
}

func (n *memNet) sweep() {
	n.mu.Lock()
	var broken []*memConn
	for c := range n.conns {
		if n.brokenLocked(c.from, c.to) {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.Close()
	}
}

// stall holds everything that a server sends or is sent, until resume.
func (n *memNet) stall(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stalled[addr] == nil {
		n.stalled[addr] = make(chan struct{})
	}
}

func (n *memNet) resume(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ch := n.stalled[addr]; ch != nil {
		close(ch)
		delete(n.stalled, addr)
	}
}

func (n *memNet) open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

type memHost struct {
	n    *memNet
	addr string
}

func (h *memHost) Listen(addr string) (net.Listener, error) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	if h.n.listeners[addr] != nil {
		return nil, errors.New("address in use: " + addr)
	}
	l := &memListener{n: h.n, addr: addr, ch: make(chan net.Conn), done: make(chan struct{})}
	h.n.listeners[addr] = l
	return l, nil
}

func (h *memHost) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	h.n.mu.Lock()
	l := h.n.listeners[addr]
	if l == nil || h.n.brokenLocked(h.addr, addr) {
		h.n.mu.Unlock()
		return nil, errors.New("connection refused: " + addr)
	}
	a, b := net.Pipe()
	out := &memConn{Conn: a, n: h.n, from: h.addr, to: addr, done: make(chan struct{})}
	in := &memConn{Conn: b, n: h.n, from: addr, to: h.addr, done: make(chan struct{})}
	h.n.conns[out], h.n.conns[in] = struct{}{}, struct{}{}
	h.n.mu.Unlock()
	select {
	case l.ch <- in:
		return out, nil
	case <-l.done:
	case <-time.After(timeout):
	}
	out.Close()
	in.Close()
	return nil, errors.New("connection refused: " + addr)
}

type memListener struct {
	n    *memNet
	addr string
	ch   chan net.Conn
	once sync.Once
	done chan struct{}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.n.mu.Lock()
		delete(l.n.listeners, l.addr)
		l.n.mu.Unlock()
	})
	return nil
}

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }

func (l *memListener) Addr() net.Addr { return memAddr(l.addr) }

// memConn is one end of a connection.
type memConn struct {
	net.Conn
	n        *memNet
	from, to string
	once     sync.Once
	done     chan struct{}

	mu       sync.Mutex
	deadline time.Time
}

func (c *memConn) Close() error {
	c.once.Do(func() {
		close(c.done)
		c.n.mu.Lock()
		delete(c.n.conns, c)
		c.n.mu.Unlock()
	})
	return c.Conn.Close()
}

func (c *memConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

func (c *memConn) Write(b []byte) (int, error) {
	time.Sleep(c.n.latency)
	for {
		c.n.mu.Lock()
		hold := c.n.stalled[c.from]
		if hold == nil {
			hold = c.n.stalled[c.to]
		}
		c.n.mu.Unlock()
		if hold == nil {
			return c.Conn.Write(b)
		}
		c.mu.Lock()
		deadline := c.deadline
		c.mu.Unlock()
		var late <-chan time.Time
		if !deadline.IsZero() {
			late = time.After(time.Until(deadline))
		}
		select {
		case <-hold:
		case <-c.done:
			return 0, net.ErrClosed
		case <-late:
			return 0, os.ErrDeadlineExceeded
		}
	}
}
