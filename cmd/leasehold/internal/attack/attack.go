// Package attack makes trouble for secured servers, as somebody would who can reach
// their ports: connections that say nothing or too slowly, floods, requests of
// impossible sizes, garbage. Some of it comes with the certificate of a reader or a
// worker, who may use the cluster and mean no good.
//
// It is for tests on loopback. What it promises:
//   - It says nothing to any address but those of its targets.
//   - Each kind of trouble is bounded, in connections and in things sent a second.
//   - When Run has returned, its goroutines have ended and its sockets are closed.
//
// Goroutines: one for each connection that is kept, and one for each stream of
// packets.
package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Target has the addresses of one server.
type Target struct{ GRPC, HTTP, Raft, Gossip string }

// Config of an attack.
type Config struct {
	Targets []Target
	// Reader and Worker are certificates that the servers believe.
	Reader, Worker tls.Certificate
	// Label of the cluster's gossip.
	Label string
	// HalfOpen is how many connections without a word there are at a time.
	HalfOpen int
	// Sources are the addresses that connections come from, in turn.
	Sources []net.IP
	// Kinds of trouble, by their names in the report. None: all.
	Kinds []string
}

// Count is what became of one kind of trouble.
type Count struct {
	Connections int64 // that were made
	Failed      int64 // that could not even be made
	Sent        int64 // things: streams, frames, packets, …
}

// Report has the counts by name.
type Report map[string]Count

// Names in order.
func (r Report) Names() []string { return slices.Sorted(maps.Keys(r)) }

// trouble is one kind of it: connections that are made again whenever they end.
type trouble struct {
	name      string
	network   string // "tcp" if empty
	at        func(Target) []string
	tls       *tls.Config // nil: the connection stays bare
	keep      int         // connections at a time, over all targets
	perSecond int         // connections made, at most
	do        func(ctx context.Context, c *conn)
}

// conn is a connection in the hands of one trouble.
type conn struct {
	net.Conn
	sent *atomic.Int64
}

// Run makes trouble until ctx ends, and says what was done.
func Run(ctx context.Context, cfg Config) Report {
	var wg sync.WaitGroup
	a := &attacker{cfg: cfg}
	report := make(Report)
	var mu sync.Mutex
	for _, t := range slices.Concat(silence(cfg), floods(cfg), sizes(cfg), garbage(cfg)) {
		if len(cfg.Kinds) > 0 && !slices.Contains(cfg.Kinds, t.name) {
			continue
		}
		wg.Go(func() {
			count := a.make(ctx, t)
			mu.Lock()
			defer mu.Unlock()
			report[t.name] = count
		})
	}
	wg.Wait()
	return report
}

type attacker struct {
	cfg    Config
	source atomic.Uint64
}

// make makes one kind of trouble until ctx ends.
func (a *attacker) make(ctx context.Context, t trouble) Count {
	var made, failed, sent atomic.Int64
	var addrs []string
	for _, target := range a.cfg.Targets {
		addrs = append(addrs, t.at(target)...)
	}
	pace := rate.NewLimiter(rate.Limit(t.perSecond), max(t.perSecond/20, 1))
	var wg sync.WaitGroup
	for i := range t.keep {
		wg.Go(func() {
			for turn := i; pace.Wait(ctx) == nil; turn++ {
				c, err := a.dial(ctx, t, addrs[turn%len(addrs)])
				if err != nil {
					failed.Add(1)
					continue
				}
				made.Add(1)
				end := context.AfterFunc(ctx, func() { _ = c.Close() })
				t.do(ctx, &conn{Conn: c, sent: &sent})
				end()
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	return Count{Connections: made.Load(), Failed: failed.Load(), Sent: sent.Load()}
}

// dialTimeout is as long as an attacker waits for a server to let it in.
const dialTimeout = 5 * time.Second

func (a *attacker) dial(ctx context.Context, t trouble, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	from := a.cfg.Sources[a.source.Add(1)%uint64(len(a.cfg.Sources))]
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	network := "tcp"
	if t.network == "udp" {
		network, d.LocalAddr = "udp", &net.UDPAddr{IP: from}
	}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil || t.tls == nil {
		return c, err
	}
	secured := tls.Client(c, t.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("%w, %w", err, c.Close())
	}
	return secured, nil
}

// client is how an attacker speaks TLS: it does not care whom it speaks to.
func client(protocol string, own ...tls.Certificate) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, Certificates: own}
	if protocol != "" {
		cfg.NextProtos = []string{protocol}
	}
	return cfg
}

// listen reads until the server ends the connection, or ctx ends.
func (c *conn) listen() { _, _ = io.Copy(io.Discard, c.Conn) }

// again does something so many times a second until it fails or ctx ends. What the
// server answers is read and thrown away.
func (c *conn) again(ctx context.Context, perSecond int, do func() error) {
	var wg sync.WaitGroup
	if _, packets := c.Conn.(*net.UDPConn); !packets {
		wg.Go(c.listen)
	}
	pace := rate.NewLimiter(rate.Limit(perSecond), max(perSecond/50, 1))
	for pace.Wait(ctx) == nil {
		if err := do(); err != nil {
			if _, packets := c.Conn.(*net.UDPConn); packets {
				continue // the port was closed for a moment
			}
			break
		}
		c.sent.Add(1)
	}
	_ = c.Close()
	wg.Wait()
}
