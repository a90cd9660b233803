package attack

import (
	"context"
	"crypto/tls"
	"net"
	"strings"

	"golang.org/x/net/http2"
)

func everyTCP(t Target) []string  { return []string{t.GRPC, t.HTTP, t.Raft, t.Gossip} }
func everyTLS(t Target) []string  { return []string{t.GRPC, t.HTTP, t.Raft} }
func overHTTP2(t Target) []string { return []string{t.GRPC, t.HTTP} }
func overGRPC(t Target) []string  { return []string{t.GRPC} }
func overHTTP(t Target) []string  { return []string{t.HTTP} }
func overRaft(t Target) []string  { return []string{t.Raft} }
func gossiping(t Target) []string { return []string{t.Gossip} }

// silence are connections that keep a server waiting.
func silence(cfg Config) []trouble {
	hello := clientHello()
	slowly := func(text string) func(context.Context, *conn) {
		return func(ctx context.Context, c *conn) {
			next := 0
			c.again(ctx, 1, func() error {
				b := byte('a')
				if next < len(text) {
					b = text[next]
				}
				next++
				_, err := c.Write([]byte{b})
				return err
			})
		}
	}
	return []trouble{
		{name: "half-open", at: everyTCP, keep: cfg.HalfOpen, perSecond: 1000, do: func(_ context.Context, c *conn) { c.listen() }},
		{name: "handshakes left off", at: everyTLS, keep: 500, perSecond: 150, do: func(_ context.Context, c *conn) {
			if _, err := c.Write(hello); err == nil {
				c.sent.Add(1)
				c.listen()
			}
		}},
		{name: "slow headers", at: overHTTP, tls: client("http/1.1"), keep: 500, perSecond: 60, do: slowly("GET /livez HTTP/1.1\r\nHost: x\r\nX: ")},
		{name: "slow prefaces", at: overHTTP2, tls: client("h2"), keep: 100, perSecond: 20, do: slowly(http2.ClientPreface)},
		{name: "nobody's connections", at: overHTTP2, tls: client("h2"), keep: 300, perSecond: 30, do: func(ctx context.Context, c *conn) {
			if h := newH2(c); h != nil {
				c.again(ctx, 1, func() error { return nil })
			}
		}},
	}
}

// clientHello is the first thing that a TLS client says.
func clientHello() []byte {
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_ = tls.Client(near, client("h2")).Handshake() // ends with the pipe
		_ = near.Close()
	}()
	hello := make([]byte, 16<<10)
	n, err := far.Read(hello)
	if err != nil || n == 0 || !strings.HasPrefix(string(hello), "\x16\x03") {
		panic("attack: package tls begins with something else than a hello")
	}
	return hello[:n]
}
