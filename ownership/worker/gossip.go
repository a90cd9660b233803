package worker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// gossiper makes the worker a member. Whatever goes wrong with it is logged and
// tried again; nothing waits for it.
type gossiper struct {
	boot   uint64
	now    atomic.Pointer[spoken]
	member atomic.Pointer[gossip.Gossip]
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
		e.gossip = &gossiper{boot: m.GetIncarnation()}
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

// runGossip takes part until the engine ends.
func (e *engine) runGossip(g *gossiper, server string) {
	for pause := minGossipPause; e.ctx.Err() == nil; pause = min(2*pause, maxGossipPause) {
		if err := e.gossipOnce(g, server); err != nil && e.ctx.Err() == nil {
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

func (e *engine) gossipOnce(g *gossiper, server string) error {
	cfg, err := e.gossipConfig(e.ctx, server)
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
	// A session opened since the meta was made is told now.
	if err := member.UpdateMeta(g.write); err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	return member.Run(e.ctx)
}

// gossipConfig asks the servers where and under which label they gossip.
func (e *engine) gossipConfig(ctx context.Context, server string) (gossip.Config, error) {
	cl, err := e.servers.open()
	if err != nil {
		return gossip.Config{}, err
	}
	defer cl.Close()
	peers, err := cl.Cluster().ListPeers(ctx, &leaseholdv1.ListPeersRequest{})
	if err != nil {
		return gossip.Config{}, fmt.Errorf("ask servers for their gossip addresses: %w", err)
	}
	cfg := gossip.Config{
		Label:     peers.GetGossipLabel(),
		BindAddr:  e.cfg.Gossip,
		Advertise: e.cfg.GossipAdvertise,
		Logger:    e.cfg.Logger,
	}
	if len(e.cfg.GossipKey) > 0 {
		cfg.Keys = [][]byte{e.cfg.GossipKey}
	}
	for _, p := range peers.GetItems() {
		if a := p.GetGossipAddr(); a != "" {
			cfg.Seeds = append(cfg.Seeds, a)
		}
	}
	if cfg.Label == "" || len(cfg.Seeds) == 0 {
		return cfg, fmt.Errorf("ask servers for their gossip addresses: none is known yet")
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
