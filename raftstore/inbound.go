package raftstore

import (
	"io"
	"net"
)

// inbound is an accepted connection. One goroutine reads a request, answers it, and
// reads on.
type inbound struct {
	net.Conn
	s     *streams
	known bool   // the caller has said hello; for Read alone
	from  caller // who that is; set before known
	flow  inflow // of its requests
}

// Read begins with the hello: so it is each connection's own goroutine that
// waits for it, not the one that accepts. A caller that is not welcome, or not any
// more, finds the connection closed.
func (c *inbound) Read(b []byte) (int, error) {
	g := c.s.greeter
	if !c.known {
		from, err := g.welcome(c.Conn)
		if err != nil {
			return 0, io.EOF // all that is worth saying has been logged
		}
		c.from, c.known = from, true
	}
	begins := c.flow.stage == inflowKind
	n, err := c.Conn.Read(b)
	if begins && n > 0 && !g.stays(&c.from) {
		return 0, io.EOF
	}
	if odd := c.flow.scan(b[:n]); odd != nil {
		g.tooMuch(c.from.id, odd)
		return 0, io.EOF
	}
	return n, err
}

// Write answers a request.
func (c *inbound) Write(b []byte) (int, error) {
	c.flow.answered()
	return c.Conn.Write(b)
}

// Close is called when nothing more can be read.
func (c *inbound) Close() error {
	c.s.mu.Lock()
	delete(c.s.conns, c)
	closed := c.s.closed
	c.s.mu.Unlock()
	if f := c.s.ended.Load(); f != nil && c.known && !closed {
		f.lost(c.from.id)
	}
	return c.Conn.Close()
}
