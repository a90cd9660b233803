package server

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// simNet is the network of the simulation. It behaves like TCP and UDP between
// machines: on a blocked or stalled way streams are held back and packets
// lost, connection attempts wait; a process that has died resets its
// connections and refuses new ones. Ways are one-directional.
type simNet struct {
	mu      sync.Mutex
	rng     *rand.Rand
	hosts   map[string]*simHost
	conns   map[*simConn]struct{}
	blocked map[[2]string]bool          // from, to
	slow    map[[2]string]time.Duration // more latency
	changed chan struct{}               // closed and replaced when the above change
	lost    int                         // packets
	held    int                         // reads that found data they may not have yet
}

// simHost is one process on a machine of its own.
type simHost struct {
	net       *simNet
	ip        string
	frozen    bool // stopped: takes and sends nothing, breaks nothing
	dead      bool
	listeners map[string]*simListener
	gossip    *simPort
}

func newSimNet(rng *rand.Rand) *simNet {
	return &simNet{
		rng: rng, hosts: map[string]*simHost{}, conns: map[*simConn]struct{}{},
		blocked: map[[2]string]bool{}, slow: map[[2]string]time.Duration{}, changed: make(chan struct{}),
	}
}

// host returns a living host at ip, new or back from the dead.
func (n *simNet) host(ip string) *simHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &simHost{net: n, ip: ip, listeners: map[string]*simListener{}}
	n.hosts[ip] = h
	n.stirLocked()
	return h
}

// stirLocked lets everybody who waits for the network look again.
func (n *simNet) stirLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
	for c := range n.conns {
		c.in.wakeLocked()
	}
}

func (n *simNet) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	n.stirLocked()
}

// block stops what from sends to to, in that direction only.
func (n *simNet) block(from, to string, on bool) {
	n.change(func() {
		if on {
			n.blocked[[2]string{from, to}] = true
		} else {
			delete(n.blocked, [2]string{from, to})
		}
	})
}

// delay adds latency in both directions.
func (n *simNet) delay(a, b string, d time.Duration) {
	n.change(func() { n.slow[[2]string{a, b}], n.slow[[2]string{b, a}] = d, d })
}

// reset breaks all connections between two hosts.
func (n *simNet) reset(a, b string) {
	n.change(func() {
		for c := range n.conns {
			if c.here == a && c.there == b || c.here == b && c.there == a {
				c.in.reset = true
			}
		}
	})
}

func (n *simNet) healAll() {
	n.change(func() { clear(n.blocked); clear(n.slow) })
}

// ips are all hosts there ever were.
func (n *simNet) ips() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.hosts))
}

// forget takes a dead host's machine off the network: nobody answers there any
// more, not even with a refusal.
func (n *simNet) forget(ip string) { n.change(func() { delete(n.hosts, ip) }) }

// freeze is what SIGSTOP does to a process's part in the network.
func (h *simHost) freeze(on bool) { h.net.change(func() { h.frozen = on }) }

// kill ends the process: its kernel resets what it had open.
func (h *simHost) kill() {
	h.net.change(func() {
		h.dead, h.frozen = true, false
		for _, l := range h.listeners {
			l.shutLocked()
		}
		for c := range h.net.conns {
			if c.here == h.ip || c.there == h.ip {
				c.in.reset = true
			}
		}
	})
}

// stalledLocked says whether nothing passes from one host to the other now.
func (n *simNet) stalledLocked(from, to string) bool {
	for _, ip := range []string{from, to} {
		if h := n.hosts[ip]; h == nil || h.frozen {
			return true
		}
	}
	return n.blocked[[2]string{from, to}]
}

func (n *simNet) latencyLocked(from, to string) time.Duration {
	return 200*time.Microsecond + time.Duration(n.rng.IntN(8))*100*time.Microsecond + n.slow[[2]string{from, to}]
}

var errRefused = fmt.Errorf("dial: %w", syscall.ECONNREFUSED)

func (h *simHost) listen(addr string) (net.Listener, error) {
	l := &simListener{host: h, addr: addr, accept: make(chan net.Conn, 256), closed: make(chan struct{})}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.dead || h.listeners[addr] != nil {
		return nil, fmt.Errorf("listen on %s: address in use or host dead", addr)
	}
	h.listeners[addr] = l
	return l, nil
}

// dial waits while the way to or back from the other host is stalled.
func (h *simHost) dial(ctx context.Context, addr string) (net.Conn, error) {
	ip, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n := h.net
	for {
		n.mu.Lock()
		if h.dead {
			n.mu.Unlock()
			return nil, errRefused
		}
		changed, wait := n.changed, n.latencyLocked(h.ip, ip)+n.latencyLocked(ip, h.ip)
		stalled := n.stalledLocked(h.ip, ip) || n.stalledLocked(ip, h.ip)
		n.mu.Unlock()
		if !stalled {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return h.connect(ip, addr)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (h *simHost) connect(ip, addr string) (net.Conn, error) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.hosts[ip]
	if h.dead || to == nil || to.dead || to.listeners[addr] == nil {
		return nil, errRefused
	}
	up := &simWay{net: n, from: h.ip, to: ip, wake: make(chan struct{})}
	down := &simWay{net: n, from: ip, to: h.ip, wake: make(chan struct{})}
	out := &simConn{net: n, here: h.ip, there: ip, in: down, out: up}
	in := &simConn{net: n, here: ip, there: h.ip, in: up, out: down}
	select {
	case to.listeners[addr].accept <- in:
	default:
		return nil, errRefused // its backlog is full
	}
	n.conns[out], n.conns[in] = struct{}{}, struct{}{}
	return out, nil
}
