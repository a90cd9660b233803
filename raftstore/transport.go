package raftstore

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// tcp is the plain Network.
type tcp struct{}

func (tcp) Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for servers: %w", err)
	}
	return l, nil
}

func (tcp) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr, timeout)
}

// advertised is an address as the other servers know it.
type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

// streams is Raft's StreamLayer over a Network. It remembers incoming
// connections, which Raft does not, and ends them on Close.
type streams struct {
	net.Listener
	network Network
	addr    advertised

	mu     sync.Mutex
	closed bool
	conns  map[*inbound]struct{}
}

// inbound is an accepted connection.
type inbound struct {
	net.Conn
	s *streams
}

func (c *inbound) Close() error {
	c.s.mu.Lock()
	delete(c.s.conns, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

func (s *streams) Addr() net.Addr { return s.addr }

func (s *streams) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &inbound{Conn: conn, s: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	s.conns[c] = struct{}{}
	return c, nil
}

func (s *streams) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.network.Dial(string(addr), timeout)
}

func (s *streams) Close() error {
	s.mu.Lock()
	s.closed = true
	conns := s.conns
	s.conns = map[*inbound]struct{}{}
	s.mu.Unlock()
	err := s.Listener.Close()
	for c := range conns {
		_ = c.Conn.Close()
	}
	return err
}

// newTransport listens and returns Raft's transport behind the gate.
func newTransport(c *Config, d *disk, logger hclog.Logger) (*transport, error) {
	t := &transport{disk: d, contacts: make(map[raft.ServerID]contact)}
	if c.RaftAddr == "" {
		addr := c.Advertise
		if addr == "" {
			addr = "local"
		}
		_, t.inner = raft.NewInmemTransport(raft.ServerAddress(addr))
		return t, nil
	}
	l, err := c.Network.Listen(c.RaftAddr)
	if err != nil {
		return nil, err
	}
	addr := c.Advertise
	if addr == "" {
		addr = l.Addr().String()
	}
	t.net = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: &streams{Listener: l, network: c.Network, addr: advertised(addr), conns: map[*inbound]struct{}{}},
		Logger: logger,
		// Two are enough for heartbeats and appends to one peer; one more is for
		// votes.
		MaxPool: 3,
		// With more, an append that fails on a follower can leave the leader's
		// replication to it stuck for ever.
		MaxRPCsInFlight:         1,
		Timeout:                 2 * time.Second,
		MsgpackUseNewTimeFormat: true,
	})
	t.inner = t.net
	return t, nil
}

// inner is what both of Raft's transports can do.
type inner interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// transport passes everything through but for one thing: while this server's
// disk hangs or has failed, it sends nothing that keeps it in office. Raft would
// go on sending heartbeats, and the group would wait for the disk for ever.
type transport struct {
	inner
	net  *raft.NetworkTransport // nil: alone
	disk *disk

	mu       sync.Mutex
	contacts map[raft.ServerID]contact
}

// contact is the last answer of a peer.
type contact struct {
	at    time.Time
	index uint64
}

func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.disk.gate(); err != nil {
		return err
	}
	err := t.inner.AppendEntries(id, target, req, resp)
	if err == nil {
		t.mu.Lock()
		c := contact{at: time.Now(), index: resp.LastLog}
		if c.index == 0 { // a heartbeat's answer
			c.index = t.contacts[id].index
		}
		t.contacts[id] = c
		t.mu.Unlock()
	}
	return err
}

// AppendEntriesPipeline refuses, as a transport with one request in flight does.
func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := t.disk.gate(); err != nil {
		return err
	}
	return t.inner.InstallSnapshot(id, target, req, resp, data)
}

// Close also ends the pooled connections.
func (t *transport) Close() error {
	if t.net != nil {
		t.net.CloseStreams()
	}
	return t.inner.Close()
}

// contact tells when a peer last answered, and the end of its log; -1, 0 if it
// has not.
func (t *transport) contact(id raft.ServerID) (age time.Duration, index uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.contacts[id]
	if !ok {
		return -1, 0
	}
	return time.Since(c.at), c.index
}
