package client

import (
	"context"
	"slices"
	"sync"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc"
)

// Client is a connection to a cluster. It is safe for concurrent use. It
// implements grpc.ClientConnInterface, so any generated client runs over it.
type Client struct {
	cfg     Config
	servers []string      // configured, in order, never changed
	picking chan struct{} // capacity 1: who holds it asks the servers

	mu      sync.Mutex // guards what follows
	conns   map[string]*grpc.ClientConn
	learned []string // leaders heard of that are not configured, newest last
	best    string   // "" when a server has to be chosen
	closed  bool
}

// maxLearned bounds the addresses remembered beyond the configured ones.
const maxLearned = 8

var _ grpc.ClientConnInterface = (*Client)(nil)

// New makes a Client without contacting anybody: the first call does. The
// caller must Close it.
func New(cfg Config) (*Client, error) {
	cfg, servers, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	return &Client{
		cfg:     cfg,
		servers: servers,
		picking: make(chan struct{}, 1),
		conns:   make(map[string]*grpc.ClientConn),
	}, nil
}

// Dial makes a Client and waits until one of the servers answers. It tries all
// of them until ctx ends, or for Config.Timeout when ctx has no deadline, and
// then returns an *UnreachableError. Servers that do not let the caller in end
// the wait: their refusal is returned.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var b pause
	left := patience{limit: c.cfg.Patience}
	for {
		_, try := c.pick(ctx)
		if try == nil {
			return c, nil
		}
		if err == nil || !timeUp(ctx) { // what ctx cut short knows less than the try before
			err = try
		}
		if left.over(err) || isRefusal(err) || b.wait(ctx) != nil {
			c.Close()
			return nil, err
		}
	}
}

// Close closes the connections that the Client made for itself. Those made by
// Open are their callers'. It may be called twice.
func (c *Client) Close() error {
	c.mu.Lock()
	conns := c.conns
	c.conns = nil
	c.closed = true
	c.mu.Unlock()
	for _, cc := range conns {
		_ = cc.Close() // only says that it was closed before
	}
	return nil
}

// Cluster is the generated client of ClusterService, with retries as the
// package says; the same goes for those that follow.
func (c *Client) Cluster() leaseholdv1.ClusterServiceClient {
	return leaseholdv1.NewClusterServiceClient(c)
}

// Keyspaces is the client of KeyspaceService.
func (c *Client) Keyspaces() leaseholdv1.KeyspaceServiceClient {
	return leaseholdv1.NewKeyspaceServiceClient(c)
}

// Partitions is the client of PartitionService.
func (c *Client) Partitions() leaseholdv1.PartitionServiceClient {
	return leaseholdv1.NewPartitionServiceClient(c)
}

// Workers is the client of WorkerService.
func (c *Client) Workers() leaseholdv1.WorkerServiceClient {
	return leaseholdv1.NewWorkerServiceClient(c)
}

// Events is the client of EventService. A watch that breaks is the caller's to
// resume, from the last revision it saw; the next one goes to another server.
func (c *Client) Events() leaseholdv1.EventServiceClient {
	return leaseholdv1.NewEventServiceClient(c)
}

// Sessions is the client of SessionService. The stream of a worker belongs on
// a connection of its own, to the leader: see Open and Servers.
func (c *Client) Sessions() leaseholdv1.SessionServiceClient {
	return leaseholdv1.NewSessionServiceClient(c)
}

// Ring is the client of RingService.
func (c *Client) Ring() leaseholdv1.RingServiceClient { return leaseholdv1.NewRingServiceClient(c) }

// Credentials is the client of CredentialService.
func (c *Client) Credentials() leaseholdv1.CredentialServiceClient {
	return leaseholdv1.NewCredentialServiceClient(c)
}

// Gossip is the client of GossipService.
func (c *Client) Gossip() leaseholdv1.GossipServiceClient {
	return leaseholdv1.NewGossipServiceClient(c)
}

// Coordination is the client of CoordinationService. Acquire waits for its turn
// as long as its context lets it, whatever Config.Timeout says, and goes to
// another server when its own has gone: the place in the queue is kept.
func (c *Client) Coordination() leaseholdv1.CoordinationServiceClient {
	return leaseholdv1.NewCoordinationServiceClient(c)
}

// conn returns the shared connection to an address.
func (c *Client) conn(addr string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if cc := c.conns[addr]; cc != nil {
		return cc, nil
	}
	cc, err := c.open(addr) // allocates only
	if err != nil {
		return nil, err
	}
	c.conns[addr] = cc
	return cc, nil
}

// candidates are all addresses worth asking, configured ones first.
func (c *Client) candidates() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.servers, c.learned)
}

// learn remembers where a leader said to be.
func (c *Client) learn(addr string) {
	addr, err := parseServer(addr)
	if err != nil || slices.Contains(c.servers, addr) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.learned, addr); i >= 0 {
		c.learned = slices.Delete(c.learned, i, i+1)
	}
	c.learned = append(c.learned, addr)
	if len(c.learned) > maxLearned {
		c.learned = slices.Delete(c.learned, 0, 1)
	}
}

// forget gives up a server as the best one, if it still is.
func (c *Client) forget(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.best == addr {
		c.best = ""
	}
}
