package gossip

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// memnet is a network in memory for a synctest bubble. memberlist's own mock
// blocks for ever once a peer has stopped reading; here packets are dropped
// like UDP's, connections are refused or hang like TCP's, and everything takes
// the link delay.
type memnet struct {
	delay time.Duration

	mu    sync.Mutex
	ports map[string]*memport
	cut   func(from, to string) bool // nil: no cut; called with mu held
	noUDP bool                       // packets are lost, streams are not
}

func newMemnet() *memnet {
	return &memnet{delay: 500 * time.Microsecond, ports: make(map[string]*memport)}
}

// split cuts all links between addresses for which side differs.
func (n *memnet) split(side func(addr string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = func(from, to string) bool { return side(from) != side(to) }
}

func (n *memnet) cutLinks(cut func(from, to string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *memnet) blockPackets(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noUDP = on
}

func (n *memnet) packetsBlocked() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.noUDP
}

func (n *memnet) heal() { n.cutLinks(nil) }

// reach returns the port at to, unless it is gone or the link is cut.
func (n *memnet) reach(from, to string) (p *memport, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut != nil && n.cut(from, to) {
		return nil, true
	}
	return n.ports[to], false
}

// listen opens 10.x.y.z:7402 for the number i.
func (n *memnet) listen(i int) *memport {
	p := &memport{
		net:     n,
		ip:      net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).To4(),
		packets: make(chan *memberlist.Packet, 4096),
		streams: make(chan net.Conn, 256),
		closed:  make(chan struct{}),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[p.addr()] = p
	return p
}

// memport is one member's transport.
type memport struct {
	net     *memnet
	ip      net.IP
	packets chan *memberlist.Packet
	streams chan net.Conn
	closed  chan struct{}
	once    sync.Once
	frozen  bool // guarded by net.mu: a stopped process takes and says nothing
}

var _ memberlist.NodeAwareTransport = (*memport)(nil)

const memnetPort = 7402

func (p *memport) addr() string { return fmt.Sprintf("%s:%d", p.ip, memnetPort) }

func (p *memport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return p.ip, memnetPort, nil
}

func (p *memport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	packet := &memberlist.Packet{Buf: append([]byte(nil), b...), From: address(p.addr())}
	time.AfterFunc(p.net.delay, func() {
		to, cut := p.net.reach(p.addr(), addr)
		if cut || to == nil || p.isFrozen() || p.net.packetsBlocked() {
			return
		}
		to.push(packet)
	})
	return now, nil
}

// push hands a packet in, or drops it when nobody takes them any more.
func (p *memport) push(packet *memberlist.Packet) {
	if p.isFrozen() {
		return
	}
	packet.Timestamp = time.Now()
	select {
	case <-p.closed:
	case p.packets <- packet:
	default:
	}
}

func (p *memport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return p.WriteTo(b, a.Addr)
}

func (p *memport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, cut := p.net.reach(p.addr(), addr)
	if cut || (to != nil && to.isFrozen()) {
		select {
		case <-time.After(timeout):
			return nil, errors.New("dial: i/o timeout")
		case <-p.closed:
			return nil, net.ErrClosed
		}
	}
	if to == nil {
		return nil, errors.New("dial: connection refused")
	}
	here, there := net.Pipe()
	select {
	case to.streams <- there:
		return here, nil
	case <-to.closed:
		return nil, errors.New("dial: connection refused")
	}
}

func (p *memport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return p.DialTimeout(a.Addr, timeout)
}

func (p *memport) PacketCh() <-chan *memberlist.Packet { return p.packets }
func (p *memport) StreamCh() <-chan net.Conn           { return p.streams }

func (p *memport) Shutdown() error {
	p.once.Do(func() {
		p.net.mu.Lock()
		if p.net.ports[p.addr()] == p {
			delete(p.net.ports, p.addr())
		}
		p.net.mu.Unlock()
		close(p.closed)
		for {
			select {
			case c := <-p.streams:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (p *memport) freeze(on bool) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.frozen = on
}

func (p *memport) isFrozen() bool {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return p.frozen
}
