package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// gossiper makes the worker a member. Whatever goes wrong with it is logged and
// tried again; nothing waits for it.
//
// Label, keys and servers come over the session, and again whenever the keys
// change. A server of an older release says nothing of them: then the worker asks
// for label and servers, and gossips without a key.
type gossiper struct {
	boot   uint64
	now    atomic.Pointer[spoken]
	member atomic.Pointer[gossip.Gossip]
	// setup is the newest that a server has sent; nil: none has.
	setup atomic.Pointer[leaseholdv1.GossipSetup]
	// told is closed when a server has sent a setup, or has gone on without.
	told     chan struct{}
	toldOnce sync.Once
	// anew has a token when the member must be started again.
	anew chan struct{}
	// applying is held while a setup is: whoever comes last takes the newest.
	applying sync.Mutex
}

// spoken is what changes of that which the worker says of itself.
type spoken struct {
	session uint64
	cluster string
}

// write is what changes the meta: it reads the newest when it is run, so that
// whoever comes last does not bring back what was before.
func (g *gossiper) write(m *gossip.Meta) {
	now := g.now.Load()
	m.Session, m.ClusterID = now.session, now.cluster
}

// Pauses between tries to take part in gossip.
const (
	minGossipPause = time.Second
	maxGossipPause = 30 * time.Second
)

// startGossip begins with the first session, and tells of each later one.
func (e *engine) startGossip(m *leaseholdv1.SessionOpened) {
	if e.cfg.Gossip == GossipOff {
		return
	}
	now := &spoken{session: m.GetSessionId(), cluster: m.GetClusterId()}
	if e.gossip == nil {
		// Incarnations of a worker id rise with every process that opens it,
		// which is what a boot generation has to do.
		e.gossip = &gossiper{boot: m.GetIncarnation(), told: make(chan struct{}), anew: make(chan struct{}, 1)}
		e.gossip.now.Store(now)
		g := e.gossip
		addr := e.stream.addr
		e.tasks.Go(func() { e.runGossip(g, addr) })
		return
	}
	e.gossip.now.Store(now)
	if member := e.gossip.member.Load(); member != nil {
		if err := member.UpdateMeta(e.gossip.write); err != nil {
			e.gossipTrouble(err)
		}
	}
}

// gossipSetup takes what a server says of gossip; nil: it goes on without a word.
func (e *engine) gossipSetup(m *leaseholdv1.GossipSetup) {
	g := e.gossip
	if g == nil {
		return
	}
	if m != nil {
		g.setup.Store(m)
		if member := g.member.Load(); member != nil {
			e.applySetup(g, member)
		}
	}
	g.toldOnce.Do(func() { close(g.told) })
}

// applySetup brings a running member to the newest keys and servers. What cannot
// change while it runs starts it again.
func (e *engine) applySetup(g *gossiper, member *gossip.Gossip) {
	g.applying.Lock()
	defer g.applying.Unlock()
	m := g.setup.Load()
	if m == nil {
		return
	}
	if _, keys := member.Keys(); m.GetLabel() != member.Label() || (len(keys) > 0) != (len(m.GetKeys()) > 0) {
		select {
		case g.anew <- struct{}{}:
		default:
		}
		return
	}
	err := member.SetKeys(m.GetVersion(), m.GetKeys())
	if err == nil {
		err = member.SetSeeds(m.GetSeeds())
	}
	if err != nil {
		e.gossipTrouble(err)
	}
}

// runGossip takes part until the engine ends.
func (e *engine) runGossip(g *gossiper, server string) {
	select {
	case <-g.told:
	case <-e.ctx.Done():
		return
	}
	for pause := minGossipPause; e.ctx.Err() == nil; pause = min(2*pause, maxGossipPause) {
		ctx, cancel := context.WithCancel(e.ctx)
		ended := make(chan error, 1)
		e.tasks.Go(func() { ended <- e.gossipOnce(ctx, g, server) })
		var err error
		again := false
		select {
		case err = <-ended:
		case <-g.anew:
			again = true
			cancel()
			err = <-ended
		}
		cancel()
		if again {
			pause = minGossipPause / 2
			continue
		}
		if err != nil && e.ctx.Err() == nil {
			e.gossipTrouble(err)
		}
		if !sleep(e.ctx, pause) {
			return
		}
	}
}

func (e *engine) gossipTrouble(err error) {
	e.notes.say(logLine{slog.LevelWarn, "gossip does not work: fenced takeover waits for the TTL", []any{"worker", e.id, "cause", err}})
}

func (e *engine) gossipOnce(ctx context.Context, g *gossiper, server string) error {
	cfg, err := e.gossipConfig(ctx, g, server)
	if err != nil {
		return err
	}
	cfg.Meta = gossip.Meta{
		Role: gossip.RoleWorker, ID: e.id, Boot: g.boot, GRPCAddr: e.cfg.Endpoint, Version: e.cfg.Version,
	}
	g.write(&cfg.Meta)
	member, err := gossip.New(cfg)
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	g.member.Store(member)
	defer g.member.Store(nil)
	e.servers.members.Store(member)
	defer e.servers.members.Store(nil)
	// A session opened since the meta was made is told now, and keys that came since
	// are taken.
	if err := member.UpdateMeta(g.write); err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	e.applySetup(g, member)
	return member.Run(ctx)
}

// gossipConfig is what the servers said of gossip, with what is this worker's own.
func (e *engine) gossipConfig(ctx context.Context, g *gossiper, server string) (cfg gossip.Config, err error) {
	setup := g.setup.Load()
	if setup == nil {
		if setup, err = e.askForSetup(ctx); err != nil {
			return cfg, err
		}
	}
	if setup.GetLabel() == "" || len(setup.GetSeeds()) == 0 {
		return cfg, errors.New("no gossip address of a server is known yet")
	}
	cfg = gossip.Config{
		Label: setup.GetLabel(), Keys: setup.GetKeys(), KeyringVersion: setup.GetVersion(), Seeds: setup.GetSeeds(),
		BindAddr: e.cfg.Gossip, Advertise: e.cfg.GossipAdvertise, Logger: e.cfg.Logger,
	}
	switch {
	case e.cfg.GossipTransport != nil:
		if cfg.Transport, err = e.cfg.GossipTransport(); err != nil {
			return cfg, fmt.Errorf("open the transport of gossip: %w", err)
		}
	case cfg.BindAddr == GossipAuto:
		if cfg.BindAddr, err = localAddr(server); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// askForSetup is for servers that do not send one. Keys are told to nobody who asks.
func (e *engine) askForSetup(ctx context.Context) (*leaseholdv1.GossipSetup, error) {
	cl, err := e.servers.open()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	peers, err := cl.Cluster().ListPeers(ctx, &leaseholdv1.ListPeersRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask servers for their gossip addresses: %w", err)
	}
	setup := &leaseholdv1.GossipSetup{Label: peers.GetGossipLabel()}
	for _, p := range peers.GetItems() {
		if a := p.GetGossipAddr(); a != "" {
			setup.Seeds = append(setup.Seeds, a)
		}
	}
	return setup, nil
}

// localAddr is the address of this machine that reaches a server, with port 0.
// Nothing is sent: connecting UDP only chooses a route.
func localAddr(server string) (string, error) {
	c, err := net.Dial("udp", server)
	if err != nil {
		return "", fmt.Errorf("find own address: %w", err)
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return "", fmt.Errorf("find own address: %w", err)
	}
	return net.JoinHostPort(host, "0"), nil
}
