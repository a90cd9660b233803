package raftstore

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
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
	delay     map[string]time.Duration // by server address: of each write to it
	cut       map[string]bool          // by server address: cut off from all others
	stalled   map[string]chan struct{} // by server address; closed on resume
	dead      map[string]bool          // by server address: its process has ended
	rates     map[string]int           // by server address: bytes a second on each of its connections
}

func newMemNet() *memNet {
	return &memNet{
		latency:   100 * time.Microsecond,
		listeners: map[string]*memListener{},
		conns:     map[*memConn]struct{}{},
		delay:     map[string]time.Duration{},
		cut:       map[string]bool{},
		stalled:   map[string]chan struct{}{},
		dead:      map[string]bool{},
		rates:     map[string]int{},
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

// kill does what a kernel does with a process that ends: its connections end,
// and its port refuses. Nothing that it does from then on is seen. revive undoes
// it.
func (n *memNet) kill(addr string) {
	n.mu.Lock()
	n.dead[addr] = true
	l := n.listeners[addr]
	var broken []*memConn
	for c := range n.conns {
		if c.from == addr || c.to == addr {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	if l != nil {
		l.Close()
	}
	for _, c := range broken {
		c.Close()
	}
}

func (n *memNet) revive(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.dead, addr)
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

// throttle slows a server's connections down; 0 ends it.
func (n *memNet) throttle(addr string, bytesPerSecond int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rates[addr] = bytesPerSecond
}

// rate is what a connection carries in a second; 0: no limit.
func (n *memNet) rate(from, to string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.rates[from], n.rates[to])
}

func (n *memNet) resume(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ch := n.stalled[addr]; ch != nil {
		close(ch)
		delete(n.stalled, addr)
	}
}

// slow makes everything that a server is sent take longer.
func (n *memNet) slow(addr string, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay[addr] = delay
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
	if h.n.brokenLocked(h.addr, addr) || h.n.dead[h.addr] {
		h.n.mu.Unlock()
		return nil, errors.New("no route: " + addr)
	}
	if l == nil {
		h.n.mu.Unlock()
		return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
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

func (c *memConn) Write(b []byte) (written int, err error) {
	rate := c.n.rate(c.from, c.to)
	if rate == 0 {
		return c.write(b)
	}
	for len(b) > 0 && err == nil {
		var n int
		n, err = c.write(b[:min(len(b), 16<<10)])
		written, b = written+n, b[n:]
		select {
		case <-time.After(time.Duration(n) * time.Second / time.Duration(rate)):
		case <-c.done:
			err = net.ErrClosed
		}
	}
	return written, err
}

func (c *memConn) write(b []byte) (int, error) {
	c.n.mu.Lock()
	delay := c.n.delay[c.to]
	c.n.mu.Unlock()
	time.Sleep(c.n.latency + delay)
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
