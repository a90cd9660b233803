package attack

import (
	"context"
	"math/rand/v2"
	"slices"
)

// PacketsPerSecond is how much garbage each gossip port gets.
const PacketsPerSecond = 1000

// garbage is what means nothing.
func garbage(cfg Config) []trouble {
	// Of packets, one in two has what gossip looks for before it decrypts.
	packets := func(ctx context.Context, c *conn) {
		begin := append(append([]byte{labelByte, byte(len(cfg.Label))}, cfg.Label...), encryptionVersion)
		c.again(ctx, PacketsPerSecond, func() error {
			b := noise(1 + rand.IntN(1400))
			if rand.IntN(2) == 0 {
				b = slices.Concat(begin, b)
			}
			_, err := c.Write(b)
			return err
		})
	}
	bytes := func(ctx context.Context, c *conn) {
		c.again(ctx, 50, func() error { _, err := c.Write(noise(1 + rand.IntN(4096))); return err })
	}
	return []trouble{
		{name: "packets", network: "udp", at: gossiping, keep: len(cfg.Targets), perSecond: 10, do: packets},
		{name: "bytes", at: everyTCP, keep: 24, perSecond: 100, do: bytes},
		{name: "bytes over TLS", at: overHTTP2, tls: client("h2"), keep: 6, perSecond: 20, do: bytes},
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}
