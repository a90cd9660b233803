package router

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// memnet is a network of in-memory connections, which synctest can wait for.
type memnet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	conns     []*memConn
	holes     map[string]bool
}

func newMemnet() *memnet {
	return &memnet{listeners: map[string]*memListener{}, holes: map[string]bool{}}
}

type memListener struct {
	addr   string
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (n *memnet) listen(addr string) *memListener {
	l := &memListener{addr: addr, accept: make(chan net.Conn, 16), closed: make(chan struct{})}
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
	l, hole := n.listeners[addr], n.holes[addr]
	n.mu.Unlock()
	if hole {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	refused := errors.New("connection refused")
	if l == nil {
		return nil, refused
	}
	up, down := net.Pipe()
	c := &memConn{Conn: up, addr: addr}
	select {
	case l.accept <- down:
	case <-l.closed:
		return nil, refused
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, c)
	return c, nil
}

// swallow makes an address vanish without a word: a stopped process, a cable
// that was pulled.
func (n *memnet) swallow(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holes[addr] = true
	for _, c := range n.conns {
		if c.addr == addr {
			c.lost.Store(true)
		}
	}
}

type memConn struct {
	net.Conn
	addr string
	lost atomic.Bool
}

func (c *memConn) Write(p []byte) (int, error) {
	if c.lost.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *memConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.lost.Load() {
			return n, err
		}
	}
}
