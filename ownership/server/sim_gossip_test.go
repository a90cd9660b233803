package server

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// simGossipPort is where every member of the simulation gossips.
const simGossipPort = 7402

// simPort is one host's gossip transport. memberlist's own mock blocks for
// ever once a peer has stopped reading.
type simPort struct {
	host    *simHost
	ln      net.Listener
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
	once    sync.Once
}

var _ memberlist.NodeAwareTransport = (*simPort)(nil)

// gossipPort opens the host's port.
func (h *simHost) gossipPort() (*simPort, error) {
	p := &simPort{
		host: h, packets: make(chan *memberlist.Packet, 4096), streams: make(chan net.Conn, 64), done: make(chan struct{}),
	}
	ln, err := h.listen(p.addr())
	if err != nil {
		return nil, err
	}
	p.ln = ln
	h.net.change(func() { h.gossip = p })
	go p.accept()
	return p, nil
}

func (p *simPort) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		select {
		case p.streams <- c:
		case <-p.done:
			_ = c.Close() // nobody listens any more
			return
		}
	}
}

func (p *simPort) addr() string { return net.JoinHostPort(p.host.ip, "7402") }

func (p *simPort) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.ParseIP(p.host.ip).To4(), simGossipPort, nil
}

func (p *simPort) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	ip, _, err := net.SplitHostPort(addr)
	if err != nil {
		return now, err
	}
	n := p.host.net
	packet := &memberlist.Packet{Buf: append([]byte(nil), b...), From: simAddr(p.addr())}
	n.mu.Lock()
	wait := n.latencyLocked(p.host.ip, ip)
	n.mu.Unlock()
	time.AfterFunc(wait, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		to := n.hosts[ip]
		if p.host.dead || to == nil || to.dead || to.gossip == nil || n.stalledLocked(p.host.ip, ip) {
			n.lost++
			return
		}
		packet.Timestamp = time.Now()
		select {
		case to.gossip.packets <- packet:
		default:
			n.lost++
		}
	})
	return now, nil
}

func (p *simPort) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return p.WriteTo(b, a.Addr)
}

func (p *simPort) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return p.host.dial(ctx, addr)
}

func (p *simPort) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return p.DialTimeout(a.Addr, timeout)
}

func (p *simPort) PacketCh() <-chan *memberlist.Packet { return p.packets }
func (p *simPort) StreamCh() <-chan net.Conn           { return p.streams }

func (p *simPort) Shutdown() error {
	p.once.Do(func() {
		_ = p.ln.Close() // in memory
		close(p.done)
		p.host.net.change(func() {
			if p.host.gossip == p {
				p.host.gossip = nil
			}
		})
		for {
			select {
			case c := <-p.streams:
				_ = c.Close() // nobody listens any more
			default:
				return
			}
		}
	})
	return nil
}
