package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/hashicorp/memberlist"
)

// Timing. With these a member that stops hard is known to be dead by all after
// 0.5 s (median) to 0.7 s with up to 20 members, and packet loss of 25 % makes
// no false death. Leases never rest on it.
const (
	// News is repeated far more often than memberlist would by default: on links
	// that lose packets, the news that somebody is not dead must not be lost.
	retransmitMult      = 12
	indirectChecks      = 5
	gossipNodes         = 4
	probeInterval       = 100 * time.Millisecond
	probeTimeout        = 50 * time.Millisecond
	suspicionMult       = 3
	suspicionMaxMult    = 4
	gossipInterval      = 50 * time.Millisecond
	streamTimeout       = 2 * time.Second
	deadNodeReclaimTime = 300 * time.Millisecond // then a name may have another address

	// A goodbye takes a few gossip rounds; these only bound it.
	announceLeaveTimeout = 300 * time.Millisecond
	leaveTimeout         = 500 * time.Millisecond
)

// Run takes part in gossip until ctx ends or Leave or Shutdown is called. Then
// it says goodbye (not after Shutdown), closes the sockets and returns nil. It
// can be called once. memberlist's own goroutines may need up to 2 s more for
// connections that were open.
func (g *Gossip) Run(ctx context.Context) error {
	if !g.begin() {
		return errors.New("run gossip: already run or shut down")
	}
	defer close(g.done)
	in, err := g.join()
	if err != nil {
		g.end()
		g.releaseTransport()
		return fmt.Errorf("start gossip on %s: %w", g.local, err)
	}

	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for _, loop := range []func(context.Context){g.guard.loop, g.notifyLoop, g.publishLoop, g.seeker.loop, g.answerLoop, g.saveLoop, g.confirmLoop} {
		g.spawn(func() { loop(work) })
	}
	in, err = g.partake(ctx, in)
	cancel()
	g.end()
	if in != nil {
		err = in.ml.Shutdown()
	}
	g.releaseTransport()
	g.tasks.Wait()
	if err != nil {
		return fmt.Errorf("stop gossip: %w", err)
	}
	return nil
}

// partake waits for the end and says goodbye. It returns no instance when
// gossip could not start over.
func (g *Gossip) partake(ctx context.Context, in *instance) (*instance, error) {
	for {
		select {
		case <-g.again:
			var err error
			if in, err = g.startOver(in); err != nil {
				return nil, err
			}
			continue
		case <-ctx.Done():
		case <-g.leaving:
		case <-g.killed:
		}
		g.goodbye(in.ml)
		return in, nil
	}
}

// instance is one memberlist. There is a second one after startOver.
type instance struct {
	ml       *memberlist.Memberlist
	delegate *delegate
}

func (g *Gossip) join() (*instance, error) {
	d := &delegate{g: g}
	ml, err := memberlist.Create(g.memberlistConfig(d))
	if err != nil {
		return nil, err
	}
	g.ml.Store(ml)
	return &instance{ml, d}, nil
}

// goodbye announces the departure. The flag in the meta is what others go by:
// memberlist does not show them whether a member left or died.
func (g *Gossip) goodbye(ml *memberlist.Memberlist) {
	select {
	case <-g.killed:
		return
	default:
	}
	if _, err := g.changeMeta(func(m *Meta) { m.Leaving = true }); err != nil {
		g.log.Warn("announce leave", "error", err)
	}
	g.updateNode(announceLeaveTimeout)
	// No UpdateNode may come after Leave, or the others see a member return.
	g.updating <- struct{}{}
	defer func() { <-g.updating }()
	g.ml.Store(nil)
	if err := ml.Leave(leaveTimeout); err != nil {
		g.log.Debug("gossip leave is not confirmed", "error", err)
	}
}

// Leave makes Run say goodbye and waits until it has returned, or ctx ends.
func (g *Gossip) Leave(ctx context.Context) error { return g.stop(ctx, g.leaving) }

// Shutdown makes Run return without saying goodbye, as a crash would, and waits
// until it has, or ctx ends. Without a Run it only closes the sockets.
func (g *Gossip) Shutdown(ctx context.Context) error { return g.stop(ctx, g.killed) }

func (g *Gossip) stop(ctx context.Context, how chan struct{}) error {
	g.lifeMu.Lock()
	select {
	case <-how:
	default:
		close(how)
	}
	never := g.life == idle
	if never {
		g.life = stopped
	}
	g.lifeMu.Unlock()
	if never {
		g.releaseTransport()
		close(g.done)
	}
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for gossip to stop: %w", context.Cause(ctx))
	}
}

// releaseTransport closes the sockets when no memberlist reads from them:
// their readers may be waiting for somebody to take a packet.
func (g *Gossip) releaseTransport() {
	closed := make(chan struct{})
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for {
			select {
			case <-g.transport.PacketCh():
			case c := <-g.transport.StreamCh():
				_ = c.Close() // nobody has asked anything yet
			case <-closed:
				return
			}
		}
	}()
	if err := g.transport.Shutdown(); err != nil {
		g.log.Warn("close gossip sockets", "error", err)
	}
	close(closed)
	<-drained
}

func (g *Gossip) begin() bool {
	g.lifeMu.Lock()
	defer g.lifeMu.Unlock()
	if g.life != idle {
		return false
	}
	g.life = running
	return true
}

func (g *Gossip) end() {
	g.lifeMu.Lock()
	defer g.lifeMu.Unlock()
	g.life = stopped
	g.ml.Store(nil)
}

// spawn starts f unless Run is ending; Run waits for it.
func (g *Gossip) spawn(f func()) bool {
	g.lifeMu.Lock()
	defer g.lifeMu.Unlock()
	if g.life != running {
		return false
	}
	g.tasks.Go(f)
	return true
}

func (g *Gossip) memberlistConfig(d *delegate) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = g.cfg.Name
	c.Label = g.cfg.Label
	c.Keyring = g.keys.ring
	c.Transport = g.guard
	c.BindPort = g.bindPort
	c.AdvertiseAddr, c.AdvertisePort = g.advertise.ip, g.advertise.port
	pace := time.Duration(max(g.cfg.Pace, 1))
	c.ProbeInterval, c.ProbeTimeout = pace*probeInterval, pace*probeTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = suspicionMult, suspicionMaxMult
	c.GossipInterval = pace * gossipInterval
	c.RetransmitMult, c.IndirectChecks, c.GossipNodes = retransmitMult, indirectChecks, gossipNodes
	c.TCPTimeout = streamTimeout
	c.DeadNodeReclaimTime = deadNodeReclaimTime
	c.EnableCompression = false // saves no bytes worth its time on small metas
	c.HandoffQueueDepth = 4096
	c.Delegate, c.Events, c.Alive, c.Conflict, c.Merge, c.Ping = d, d, d, d, d, d
	c.Logger = log.New(newLogWriter(g), "", 0)
	return c
}
