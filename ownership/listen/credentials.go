package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Streams bounds what one gRPC connection does with its streams.
type Streams struct {
	// Max is how many streams a connection may have at a time, as gRPC has been
	// told. A client that has so many may give them all up at once, twice.
	Max int
	// ResetsPerSecond is how many it may give up after that. 0:
	// DefaultResetsPerSecond.
	ResetsPerSecond int
	// Exempt says whose connections are not bounded: those of other servers, which
	// give up for many clients. nil: nobody's.
	Exempt func(tls.ConnectionState) bool
	// Metrics may be nil.
	Metrics Observer
}

// DefaultResetsPerSecond is far above what clients give up one after the other.
const DefaultResetsPerSecond = 500

// minResetBurst keeps a small Max from ending honest connections.
const minResetBurst = 1000

// Credentials give gRPC the connections of a Listener, whose handshake is done, and
// watch over their streams.
func Credentials(s Streams) credentials.TransportCredentials {
	if s.ResetsPerSecond <= 0 {
		s.ResetsPerSecond = DefaultResetsPerSecond
	}
	if s.Metrics == nil {
		s.Metrics = nobody{}
	}
	return &serverCredentials{plain: insecure.NewCredentials(), streams: s}
}

type serverCredentials struct {
	plain   credentials.TransportCredentials
	streams Streams
}

// ServerHandshake makes none: it looks at the one that the Listener has made.
func (c *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, ok := raw.(*tls.Conn)
	if !ok {
		conn, info, err := c.plain.ServerHandshake(raw)
		return c.watch(conn, true), info, err
	}
	state := t.ConnectionState()
	if !state.HandshakeComplete || state.NegotiatedProtocol != "h2" {
		return nil, nil, fmt.Errorf("the client of %s speaks %q: gRPC wants h2, negotiated by ALPN", raw.RemoteAddr(), state.NegotiatedProtocol)
	}
	info := credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	return c.watch(t, c.streams.Exempt == nil || !c.streams.Exempt(state)), info, nil
}

func (c *serverCredentials) watch(over net.Conn, bounded bool) net.Conn {
	w := &watched{Conn: over, metrics: c.streams.Metrics}
	if t, ok := over.(*tls.Conn); ok {
		w.under, _ = t.NetConn().(*conn)
	}
	w.in.skip = len(clientPreface)
	if bounded {
		w.resets = rate.NewLimiter(rate.Limit(c.streams.ResetsPerSecond), max(2*c.streams.Max, minResetBurst))
	}
	return w
}

// ClientHandshake is for clients, who have other credentials.
func (c *serverCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

// Info names the protocol.
func (c *serverCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone returns a copy.
func (c *serverCredentials) Clone() credentials.TransportCredentials {
	clone := *c
	return &clone
}

// OverrideServerName does nothing: there is no name.
func (c *serverCredentials) OverrideServerName(string) error { return nil }
