package listen

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"time"
)

// Limits bound what a listener lets in. 0 is no bound for the first two.
type Limits struct {
	// Connections at a time, those whose handshake is not done included.
	Connections int
	// PerAddress is how many of them one address may have, whatever its ports.
	// Loopback is an address like any other.
	PerAddress int
	// Handshakes that are made at a time. 0: DefaultHandshakes.
	Handshakes int
	// HandshakeTimeout ends one that is not done. 0: DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration
	// StrangerTime ends the connection of a client of TLS who has shown no
	// certificate and of whom Proven was not told. 0: DefaultStrangerTime.
	StrangerTime time.Duration
}

// Defaults of a server. A worker, a sidecar and a router have one or two
// connections each: an address is a machine, or the gateway of many.
const (
	DefaultConnections      = 10_000
	DefaultPerAddress       = 256
	DefaultHandshakes       = 256
	DefaultHandshakeTimeout = 5 * time.Second
)

// patience is how long a handshake may take before it gives way to a new one when
// there is no room for both. On a busy machine an honest one takes that long.
const patience = time.Second

// Observer counts. *metrics.Server is one.
type Observer interface {
	Connected(listener string, n int)
	LimitHit(limit string)
	AuthFailed(reason string)
}

// Config of a Listener.
type Config struct {
	// Name in metrics and logs: grpc, http or raft.
	Name string
	// TLS makes the handshakes; nil: connections are plain.
	TLS *tls.Config
	// Verify looks once more at the certificates of a peer, when Cut and Recheck find
	// the connection: they may have been revoked during the handshake. May be nil.
	Verify func([]*x509.Certificate) error
	// EndExpired ends a connection when the certificate that its peer has shown runs
	// out: who has a newer one shows it on the next.
	EndExpired bool
	// Reason is the metric's word for why a handshake failed. nil: always "bad".
	Reason func(error) string
	Limits Limits
	// Metrics may be nil.
	Metrics Observer
	// Logger; nil: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Limits.Handshakes <= 0 {
		c.Limits.Handshakes = DefaultHandshakes
	}
	if c.Limits.HandshakeTimeout <= 0 {
		c.Limits.HandshakeTimeout = DefaultHandshakeTimeout
	}
	if c.Limits.StrangerTime <= 0 {
		c.Limits.StrangerTime = DefaultStrangerTime
	}
	if c.Reason == nil {
		c.Reason = func(error) string { return "bad" }
	}
	if c.Metrics == nil {
		c.Metrics = nobody{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// nobody counts.
type nobody struct{}

func (nobody) Connected(string, int) {}
func (nobody) LimitHit(string)       {}
func (nobody) AuthFailed(string)     {}
