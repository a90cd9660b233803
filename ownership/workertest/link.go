package workertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// link is what one worker process has of the world: its clock, and a network
// that can be cut. While the process is stopped the clock stands still and
// nothing moves on the network.
type link struct {
	listener *listener
	worker   string
	name     string // as an address
	base     bootclock.Clock

	mu     sync.Mutex // guards the rest
	lost   bool
	gate   chan struct{} // closed when the process runs
	paused bool
	boot   time.Duration // while paused: the readings of both clocks
	wall   time.Time
	conns  map[*conn]struct{} // both ends
}

var errUnreachable = errors.New("network is unreachable")

func newLink(l *listener, worker string, number int) *link {
	open := make(chan struct{})
	close(open)
	return &link{
		listener: l, worker: worker, name: fmt.Sprintf("%s-%d.workertest", worker, number),
		base: bootclock.Monotonic(), gate: open, conns: map[*conn]struct{}{},
	}
}

// Now implements bootclock.Clock.
func (l *link) Now() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused {
		return l.boot
	}
	return l.base.Now()
}

// Wall is the process's wall clock, see worker.Config.Clock.
func (l *link) Wall() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused {
		return l.wall
	}
	return time.Now()
}

func (l *link) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.paused {
		l.boot, l.wall = l.base.Now(), time.Now()
		l.paused, l.gate = true, make(chan struct{})
	}
}

func (l *link) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused {
		l.paused = false
		close(l.gate)
	}
}

// lose cuts every connection and refuses new ones.
func (l *link) lose() {
	l.mu.Lock()
	l.lost = true
	conns := l.conns
	l.conns = map[*conn]struct{}{}
	l.mu.Unlock()
	for c := range conns {
		_ = c.Close() // a connection in memory closes without an error
	}
}

func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = false
}

func (l *link) state() (paused, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.paused, l.lost
}

func (l *link) running() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate
}

// dial is worker.Config.Dialer.
func (l *link) dial(ctx context.Context, _ string) (net.Conn, error) {
	select {
	case <-l.running():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	a, b := net.Pipe()
	near := &conn{Conn: a, link: l, closed: make(chan struct{}), peer: serverID}
	far := &conn{Conn: b, link: l, closed: make(chan struct{}), peer: l.name}
	l.mu.Lock()
	lost := l.lost
	if !lost {
		l.conns[near], l.conns[far] = struct{}{}, struct{}{}
	}
	l.mu.Unlock()
	if lost {
		return nil, errUnreachable
	}
	select {
	case l.listener.accept <- far:
		return near, nil
	case <-l.listener.closed:
	case <-ctx.Done():
	}
	_ = near.Close()
	_ = far.Close()
	return nil, errUnreachable
}

// conn is one end of a connection. It passes nothing on while the process is
// stopped.
type conn struct {
	net.Conn
	link   *link
	peer   string
	once   sync.Once
	closed chan struct{}
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// What was on the way when the process was stopped arrives when it goes on.
	select {
	case <-c.link.running():
	case <-c.closed:
	}
	return n, err
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

func (c *conn) RemoteAddr() net.Addr { return addr(c.peer) }
func (c *conn) LocalAddr() net.Addr  { return addr("workertest") }

type addr string

func (addr) Network() string  { return "mem" }
func (a addr) String() string { return string(a) }

// listener is the server's end of all links.
type listener struct {
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newListener() *listener {
	return &listener{accept: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return addr(address) }
