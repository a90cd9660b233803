package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/leasehold-dev/leasehold/ownership/client"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	// MaxUnowned is how many partitions without an owner are looked at in one
	// keyspace.
	MaxUnowned = 1000
	// samples is how often a clock is read: the quickest answer counts.
	samples = 4
	// maxHolders is how many workers are asked for what they hold.
	maxHolders = 50
)

// Clock is a boot clock.
type Clock interface{ Now() time.Duration }

// Config of Collect.
type Config struct {
	// Servers are gRPC addresses, separated by commas: some of the cluster.
	Servers string
	// Client opens the connections.
	Client *client.Client
	// Duration between the two looks.
	Duration time.Duration
	// Timeout of each answer.
	Timeout time.Duration
	// Clock of this machine.
	Clock Clock
	// Lists says whether to ask for keyspaces, workers and partitions, too.
	Lists bool
	// Progress may be nil.
	Progress func(what string)
}

// collector asks.
type collector struct {
	Config
	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

// Collect asks every server that is named, and every one that those name, in
// two rounds. It returns an error only for a wrong address or when ctx ends.
func Collect(ctx context.Context, cfg Config) (*Facts, error) {
	c := &collector{Config: cfg, conns: map[string]*grpc.ClientConn{}}
	defer c.close()
	named, err := client.ParseServers(cfg.Servers)
	if err != nil {
		return nil, err
	}
	c.say("asking %d servers", len(named))
	began := cfg.Clock.Now()
	first := c.round(ctx, named)
	if cfg.Duration > 0 {
		c.say("waiting %v to look again", cfg.Duration)
		timer := time.NewTimer(cfg.Duration)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	again := cfg.Clock.Now()
	var addrs []string
	for addr := range first {
		addrs = append(addrs, addr)
	}
	slices.Sort(addrs)
	c.say("asking %d servers again", len(addrs))
	second := c.round(ctx, addrs)
	f := &Facts{Servers: assemble(first, second), Apart: again - began}
	if cfg.Lists && ctx.Err() == nil {
		c.say("looking at keyspaces and workers")
		c.lists(ctx, f)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return f, nil
}

func (c *collector) say(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

func (c *collector) close() {
	for _, conn := range c.conns {
		_ = conn.Close() // nothing is on it any more
	}
}

func (c *collector) conn(addr string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.conns[addr]; conn != nil {
		return conn, nil
	}
	conn, err := c.Client.Open(addr)
	if err == nil {
		c.conns[addr] = conn
	}
	return conn, err
}

// round asks servers until nobody names one that has not been asked.
func (c *collector) round(ctx context.Context, addrs []string) map[string]Look {
	got := map[string]Look{}
	for len(addrs) > 0 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, addr := range addrs {
			wg.Go(func() {
				look := c.look(ctx, addr)
				mu.Lock()
				defer mu.Unlock()
				got[addr] = look
			})
		}
		wg.Wait()
		addrs = nil
		ids := map[string]bool{}
		for _, look := range got {
			ids[look.Status.GetServerId()] = true
		}
		for _, look := range got {
			for _, p := range look.Peers.GetItems() {
				// A server that has answered under another name of its address
				// is not asked again.
				addr := p.GetGrpcAddr()
				if _, asked := got[addr]; addr != "" && !asked && !ids[p.GetServerId()] && !slices.Contains(addrs, addr) {
					addrs = append(addrs, addr)
				}
			}
		}
	}
	return got
}

// look asks one server.
func (c *collector) look(ctx context.Context, addr string) (look Look) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	conn, err := c.conn(addr)
	if err != nil {
		look.Err = err
		return look
	}
	cl := pb.NewClusterServiceClient(conn)
	if look.Status, look.Err = cl.GetStatus(ctx, &pb.GetStatusRequest{}); look.Err != nil {
		if !refused(look.Err) { // what a connection says needs its meaning
			look.Err = c.Client.Explain(look.Err)
		}
		return look
	}
	if look.Peers, look.PeersErr = cl.ListPeers(ctx, &pb.ListPeersRequest{}); look.PeersErr != nil {
		look.Peers = nil // the status is worth having
	}
	for range samples {
		b := Bracket{Sent: c.Clock.Now(), SentAt: time.Now()}
		h, err := cl.GetHealth(ctx, &pb.GetHealthRequest{})
		b.Received = c.Clock.Now()
		if err != nil {
			look.HealthErr = err
			break
		}
		if look.Health == nil || b.Received-b.Sent < look.Clock.Received-look.Clock.Sent {
			look.Health, look.Clock = h, b
		}
	}
	return look
}

// assemble makes one server of what is the same process under two addresses,
// and gives silent ones the names that others have for them.
func assemble(first, second map[string]Look) []Server {
	ids := map[string]string{} // by address, as others call it
	for _, round := range []map[string]Look{first, second} {
		for _, look := range round {
			for _, p := range look.Peers.GetItems() {
				ids[p.GetGrpcAddr()] = p.GetServerId()
			}
		}
	}
	var out []Server
	for addr, look := range second {
		s := Server{Addr: addr, First: first[addr], Second: look}
		if _, asked := first[addr]; !asked {
			s.First.Err = errors.New("was not known in the first round")
		}
		if before := s.First.Status; before != nil && look.Status != nil && before.GetServerId() != look.Status.GetServerId() {
			s.First = Look{Err: errors.New("another server answered in the first round")} // an address of several
		}
		switch {
		case look.Status != nil:
			s.ID = look.Status.GetServerId()
		case s.First.Status != nil:
			s.ID = s.First.Status.GetServerId()
		default:
			s.ID = ids[addr]
		}
		out = append(out, s)
	}
	sortServers(out)
	return slices.CompactFunc(out, func(a, b Server) bool { return a.ID != "" && a.ID == b.ID && sameProcess(a, b) })
}

// sameProcess tells whether two answers came from one process. Two live servers
// under one id are no pair to be made one of.
func sameProcess(a, b Server) bool {
	if !a.Up() || !b.Up() {
		return true
	}
	return a.Second.Health.GetBoot() == b.Second.Health.GetBoot()
}
