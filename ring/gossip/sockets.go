package gossip

import (
	"context"
	"log"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// sockets is memberlist's transport with dials and connections that end when it
// is shut down. Otherwise a member that looks for a machine which is switched
// off would take seconds to stop.
type sockets struct {
	*memberlist.NetTransport
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	conns map[*conn]struct{} // those that we opened
}

var _ memberlist.NodeAwareTransport = (*sockets)(nil)

func newSockets(ip net.IP, port int, logger *log.Logger) (*sockets, error) {
	t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{ip.String()}, BindPort: port, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	s := &sockets{NetTransport: t, conns: make(map[*conn]struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// DialTimeout implements memberlist.Transport.
func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(s.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	out := &conn{Conn: c, s: s}
	s.mu.Lock()
	s.conns[out] = struct{}{}
	s.mu.Unlock()
	if err := s.ctx.Err(); err != nil {
		_ = out.Close() // Shutdown has passed here without seeing it
		return nil, err
	}
	return out, nil
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (s *sockets) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return s.DialTimeout(a.Addr, timeout)
}

// Shutdown implements memberlist.Transport.
func (s *sockets) Shutdown() error {
	s.cancel()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Conn.Close() // who uses it sees the error
	}
	s.mu.Unlock()
	return s.NetTransport.Shutdown()
}

// conn is a connection that s must know of until it is closed.
type conn struct {
	net.Conn
	s *sockets
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.s.mu.Lock()
	delete(c.s.conns, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}
