package gossip

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
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
	noUDP func(from, to string) bool // packets are lost, streams are not
	loss  float64                    // of packets, and of what streams are made of
	lag   func(from, to string) time.Duration
	bytes int // of packets and streams, as sent
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

// blockPackets drops the packets, not the streams, for which block is true; nil
// for none.
func (n *memnet) blockPackets(block func(from, to string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noUDP = block
}

func (n *memnet) packetLost(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.noUDP != nil && n.noUDP(from, to) || n.loss > 0 && rand.Float64() < n.loss
}

func (n *memnet) lose(loss float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss = loss
}

func (n *memnet) slow(lag func(from, to string) time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lag = lag
}

// oneWay is the time from one address to another.
func (n *memnet) oneWay(from, to string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lag != nil {
		return n.delay + n.lag(from, to)
	}
	return n.delay
}

// segment is how long a stream needs to bring something over: what is lost is
// sent again, each time after twice as long.
func (n *memnet) segment(from, to string, again time.Duration) time.Duration {
	wait := n.oneWay(from, to)
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.loss > 0 && rand.Float64() < n.loss {
		wait, again = wait+again, 2*again
	}
	return wait
}

func (n *memnet) count(bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bytes += bytes
}

// sent returns what has been sent since the last call.
func (n *memnet) sent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.bytes = 0 }()
	return n.bytes
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
	return n.listenOn(net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).To4())
}

func (n *memnet) listenOn(ip net.IP) *memport {
	p := &memport{
		net:     n,
		ip:      ip,
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

func (p *memport) addr() string { return net.JoinHostPort(p.ip.String(), strconv.Itoa(memnetPort)) }

func (p *memport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return p.ip, memnetPort, nil
}

func (p *memport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	packet := &memberlist.Packet{Buf: append([]byte(nil), b...), From: address(p.addr())}
	p.net.count(len(b))
	time.AfterFunc(p.net.oneWay(p.addr(), addr), func() {
		to, cut := p.net.reach(p.addr(), addr)
		if cut || to == nil || p.isFrozen() || p.net.packetLost(p.addr(), addr) {
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
	// Both hands of the handshake; a second is what TCP waits for each.
	shake := p.net.segment(p.addr(), addr, time.Second) + p.net.segment(addr, p.addr(), time.Second) - 2*p.net.delay
	if shake > 0 {
		select {
		case <-time.After(min(shake, timeout)):
		case <-p.closed:
			return nil, net.ErrClosed
		}
	}
	if shake >= timeout {
		return nil, errors.New("dial: i/o timeout")
	}
	here, there := net.Pipe()
	select {
	case to.streams <- &wire{there, p.net, addr, p.addr()}:
		return &wire{here, p.net, p.addr(), addr}, nil
	case <-to.closed:
		return nil, errors.New("dial: connection refused")
	}
}

// wire is one end of a stream: what is written needs its time.
type wire struct {
	net.Conn
	net      *memnet
	from, to string
}

func (w *wire) Write(b []byte) (int, error) {
	w.net.count(len(b))
	if d := w.net.segment(w.from, w.to, 200*time.Millisecond) - w.net.delay; d > 0 {
		<-time.After(d)
	}
	return w.Conn.Write(b)
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
