package api

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// retryAfter is told to callers that meet an election.
const retryAfter = 100 * time.Millisecond

// leader returns who leads and where it is reached.
func (a *API) leader() (id, addr string, ok bool) {
	id, ok = a.cfg.Store.LeaderID()
	if !ok || id == "" {
		return "", "", false
	}
	addr = a.grpcAddr(id)
	return id, addr, addr != ""
}

// grpcAddr is where a server is reached, or "". Gossip knows it before the log
// does when the server has come back at another address.
func (a *API) grpcAddr(id string) (addr string) {
	m, ok := a.member(gossip.RoleServer, id)
	if ok && m.Up() && m.Meta.GRPCAddr != "" {
		return m.Meta.GRPCAddr
	}
	a.cfg.Store.View(func(s *state.State) {
		for _, srv := range s.Servers() {
			if srv.ID == id {
				addr = srv.GRPCAddr
			}
		}
	})
	if addr == "" && ok {
		addr = m.Meta.GRPCAddr
	}
	return addr
}

// ServerAddr is where the API of another server is reached, or "".
func (a *API) ServerAddr(id string) string { return a.grpcAddr(id) }

// conns keeps the connection to the leader, and for a while those to former
// ones: a forwarded call that is still on its way must not lose it.
type conns struct {
	dial []grpc.DialOption

	mu     sync.Mutex
	byAddr map[string]*grpc.ClientConn
	closed bool
}

// maxConns is more than there are servers in any sensible cluster.
const maxConns = 16

// get returns the connection to addr, made lazily: it dials with the first
// call and reconnects by itself.
func (c *conns) get(addr string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn, ok := c.byAddr[addr]; ok {
		return conn, nil
	}
	if c.closed {
		return nil, context.Canceled
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, append(connOptions(), c.dial...)...)
	if err != nil {
		return nil, err
	}
	if len(c.byAddr) >= maxConns {
		for old, stale := range c.byAddr {
			_ = stale.Close() // its calls end with Unavailable and are tried again
			delete(c.byAddr, old)
			break
		}
	}
	c.byAddr[addr] = conn
	return conn, nil
}

// connOptions notice a leader that stopped answering, and one that is back.
func connOptions() []grpc.DialOption {
	b := backoff.DefaultConfig
	b.BaseDelay, b.MaxDelay = 50*time.Millisecond, time.Second
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: b, MinConnectTimeout: 2 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
	}
}

// maxAnswerBytes holds the full list of a worker that has a million leases.
const maxAnswerBytes = 64 << 20

func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for addr, conn := range c.byAddr {
		_ = conn.Close()
		delete(c.byAddr, addr)
	}
}
