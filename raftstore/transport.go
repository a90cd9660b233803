package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
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
	greeter *greeter
	resolve func(Peer) (string, bool) // may be nil
	ended   atomic.Pointer[failover]  // told of connections that have ended; or nil

	mu     sync.Mutex
	closed bool
	conns  map[*inbound]struct{}
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

// Dial connects to the server that addr names, where Config.Resolve says that
// it is now, or else where the configuration says; whoever is there must be that
// server.
func (s *streams) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	to := splitAddress(addr)
	if s.resolve != nil {
		if now, ok := s.resolve(to); ok && now != to.RaftAddr {
			conn, err := s.dial(to.raftID(), now, timeout/2)
			if err == nil {
				return conn, nil
			}
			if conn, again := s.dial(to.raftID(), to.RaftAddr, timeout/2); again == nil {
				return conn, nil
			}
			return nil, err
		}
	}
	return s.dial(to.raftID(), to.RaftAddr, timeout)
}

func (s *streams) dial(to raft.ServerID, addr string, timeout time.Duration) (net.Conn, error) {
	start := time.Now()
	conn, err := s.network.Dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	if err := s.greeter.call(conn, to, timeout-time.Since(start)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &outbound{Conn: conn}, nil
}

// outbound is a connection that this server has dialled, used by one goroutine
// at a time. Raft gives each request the same time, whatever its size; one that
// is larger than maxAppendBytes gets as much again for each further of them.
type outbound struct {
	net.Conn
	deadline time.Time // as Raft set it
	sent     int       // bytes since then
}

// SetDeadline begins a request.
func (c *outbound) SetDeadline(t time.Time) error {
	c.deadline, c.sent = t, 0
	return c.Conn.SetDeadline(t)
}

// Write sends a part of it.
func (c *outbound) Write(b []byte) (int, error) {
	c.sent += len(b)
	if c.sent > maxAppendBytes && !c.deadline.IsZero() {
		more := rpcTimeout * time.Duration(c.sent-maxAppendBytes) / maxAppendBytes
		if err := c.Conn.SetDeadline(c.deadline.Add(more)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
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

// rpcTimeout bounds dialling, the hello, and each request.
const rpcTimeout = 2 * time.Second

// newTransport listens and returns Raft's transport behind the gate.
func newTransport(c *Config, d *disk, g *greeter, logger hclog.Logger) (*transport, error) {
	t := &transport{rpcs: make(chan raft.RPC), disk: d, greeter: g, sending: c.hooks.sending, telling: c.hooks.telling, contacts: make(map[raft.ServerID]contact), asked: make(map[raft.ServerID]time.Time)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.news.send, t.news.followers = t.tell, make(map[raft.ServerID]*listener)
	if c.RaftAddr == "" {
		addr := c.Advertise
		if addr == "" {
			addr = "local"
		}
		_, t.inner = raft.NewInmemTransport(raft.ServerAddress(addr))
		t.forwarding.Go(t.forward)
		return t, nil
	}
	l, err := c.Network.Listen(c.RaftAddr)
	if err != nil {
		t.cancel()
		return nil, err
	}
	addr := c.Advertise
	if addr == "" {
		addr = l.Addr().String()
	}
	t.streams = &streams{
		Listener: l, network: c.Network, addr: advertised(addr), greeter: g, resolve: c.Resolve,
		conns: map[*inbound]struct{}{},
	}
	t.net = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: t.streams,
		Logger: logger,
		// Heartbeats, appends, reads' heartbeats and news of commits to one peer
		// have one each; one more is for votes.
		MaxPool: 5,
		// With more, an append that fails on a follower can leave the leader's
		// replication to it stuck for ever.
		MaxRPCsInFlight:         1,
		Timeout:                 rpcTimeout,
		MsgpackUseNewTimeFormat: true,
	})
	t.inner = t.net
	t.forwarding.Go(t.forward)
	return t, nil
}

// inner is what both of Raft's transports can do.
type inner interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// transport passes everything through but for two things. While this server's
// disk hangs or has failed, it sends nothing that keeps it in office: Raft would
// go on sending heartbeats, and the group would wait for the disk for ever. And
// a server that was removed asks nobody for votes.
type transport struct {
	inner
	net     *raft.NetworkTransport // and streams nil: alone
	streams *streams
	disk    *disk
	retain  *retention
	greeter *greeter
	news    news
	rpcs    chan raft.RPC // what inner has received, and what this server tells itself

	ctx        context.Context // ends with the transport
	cancel     context.CancelFunc
	forwarding sync.WaitGroup

	sending func(raft.ServerID, *raft.AppendEntriesRequest) // or nil
	telling func(raft.ServerID, *raft.AppendEntriesRequest) // or nil

	mu       sync.Mutex
	contacts map[raft.ServerID]contact
	asked    map[raft.ServerID]time.Time // when ask last called
}

// contact is the last answer of a peer.
type contact struct {
	at    time.Time
	index uint64 // up to which its log is known to be the same as ours
}

func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.disk.gate(); err != nil {
		return err
	}
	shorten(req)
	if t.sending != nil {
		t.sending(id, req)
	}
	if isHeartbeat(req) {
		err := t.inner.AppendEntries(id, target, req, resp)
		if err == nil {
			t.answered(id, req, resp)
		}
		return err
	}
	t.news.begins(id, target, req.Term)
	err := t.inner.AppendEntries(id, target, req, resp)
	if err == nil {
		t.answered(id, req, resp)
	}
	t.news.ended(id, appended(req, resp, err))
	return err
}

// isHeartbeat reports whether Raft takes a request for a heartbeat.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}

func (t *transport) answered(id raft.ServerID, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := contact{at: time.Now(), index: t.contacts[id].index}
	switch {
	case isHeartbeat(req):
	case resp.Success:
		c.index = req.PrevLogEntry + uint64(len(req.Entries))
	default:
		c.index = min(c.index, resp.LastLog, max(req.PrevLogEntry, 1)-1)
	}
	t.contacts[id] = c
	t.retain.answered(splitID(id), c.index)
}

// forget begins a term as leader: what was known of the others in an earlier one
// may be wrong by now.
func (t *transport) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.contacts)
}

// RequestPreVote does not bother the others when this server has been removed.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.greeter.removed() {
		resp.Term = req.Term
		return nil // not granted
	}
	err := t.inner.RequestPreVote(id, target, req, resp)
	if err == nil && !resp.Granted {
		t.ask(id, target)
	}
	return err
}

// askEvery is how often one server is asked why it refuses its vote.
const askEvery = 5 * time.Second

// ask says hello to a server that did not grant a vote: Raft's answer does not
// tell whether this server has been removed, and the connection that it came on
// may be older than the removal.
func (t *transport) ask(id raft.ServerID, target raft.ServerAddress) {
	if t.streams == nil {
		return
	}
	t.mu.Lock()
	last, asked := t.asked[id]
	if asked && time.Since(last) < askEvery {
		t.mu.Unlock()
		return
	}
	t.asked[id] = time.Now()
	t.mu.Unlock()
	if conn, err := t.streams.Dial(target, rpcTimeout); err == nil {
		_ = conn.Close()
	}
}

// AppendEntriesPipeline refuses, as a transport with one request in flight does.
func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := t.disk.gate(); err != nil {
		return err
	}
	t.news.begins(id, target, req.Term)
	data, done := t.retain.sending(Transfer{To: splitID(id), Index: req.LastLogIndex, Total: req.Size, Started: time.Now()}, data)
	err := t.inner.InstallSnapshot(id, target, req, resp, data)
	done(err)
	t.news.ended(id, installed(req, resp, err))
	return err
}

// EncodePeer puts a server's id in the place of its address in Raft's messages.
// There, the address serves only to tell servers apart; and Raft keeps the one
// that it voted for. Two servers that exchange their addresses between two votes
// of one term must not pass for each other.
func (t *transport) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// meet says hello to a server that is to be added, and returns its refusal. One
// that does not answer may be added all the same: it counts for nothing until it
// does.
func (t *transport) meet(p Peer) error {
	if t.streams == nil {
		return nil
	}
	conn, err := t.streams.Dial(p.raftAddress(), rpcTimeout)
	if err == nil {
		_ = conn.Close()
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused
	}
	return nil
}

// Consumer is where Raft receives requests.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// forward hands on what arrives, until the transport is closed.
func (t *transport) forward() {
	for {
		select {
		case rpc := <-t.inner.Consumer():
			if req, ok := rpc.Command.(*raft.RequestVoteRequest); ok && t.streams != nil {
				if f := t.streams.ended.Load(); f != nil {
					f.candidate(req.LastLogIndex)
				}
			}
			select {
			case t.rpcs <- rpc:
			case <-t.ctx.Done():
			}
		case <-t.ctx.Done():
			return
		}
	}
}

// Close also ends the pooled connections.
func (t *transport) Close() error {
	t.cancel()
	t.forwarding.Wait()
	if t.streams != nil {
		if f := t.streams.ended.Load(); f != nil {
			f.wait()
		}
	}
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
