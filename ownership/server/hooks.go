package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
	"google.golang.org/grpc"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// hooks replace what a server takes from the machine: network and clock. The
// zero value is TCP, UDP and the boot clock. They are for this package's own
// simulation, which runs a whole cluster in one synctest bubble; so they are
// not part of the API.
type hooks struct {
	// listen and dial stand in for TCP, for the API, HTTP and Raft alike.
	listen func(addr string) (net.Listener, error)
	dial   func(ctx context.Context, addr string) (net.Conn, error)
	// gossip stands in for the gossip sockets.
	gossip memberlist.Transport
	clock  bootclock.Clock
	// store has the last word on how the store is configured.
	store func(*raftstore.Config)
	// pace stretches the intervals of gossip and of the figures.
	pace int
	// feature is the highest level that the server knows: another release.
	feature state.Feature
}

func (h *hooks) listenTCP(addr string) (net.Listener, error) {
	if h.listen != nil {
		return h.listen(addr)
	}
	return net.Listen("tcp", addr)
}

func (h *hooks) bootClock() bootclock.Clock {
	if h.clock != nil {
		return h.clock
	}
	return bootclock.Boot()
}

// dialOptions are those of connections to other servers.
func (h *hooks) dialOptions() []grpc.DialOption {
	opts := []grpc.DialOption{grpc.WithNoProxy()}
	if h.dial != nil {
		opts = append(opts, grpc.WithContextDialer(h.dial))
	}
	return opts
}

// bound hands a listener that is open already to the store.
type bound struct {
	ln    net.Listener
	hooks *hooks
	tls   *tls.Config // for dialling; nil: in the clear
}

func (b bound) Listen(string) (net.Listener, error) { return b.ln, nil }

func (b bound) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := b.dial(ctx, addr)
	if err != nil || b.tls == nil {
		return conn, err
	}
	t := tls.Client(conn, b.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS with %s: %w", addr, err), conn.Close())
	}
	return t, nil
}

func (b bound) dial(ctx context.Context, addr string) (net.Conn, error) {
	if b.hooks.dial != nil {
		return b.hooks.dial(ctx, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}
