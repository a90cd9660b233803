package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
)

// Timings of connections. The servers allow a ping every 5 s.
const (
	pingAfter      = 10 * time.Second // gRPC's own lower limit
	pingTimeout    = 3 * time.Second
	window         = 4 << 20 // bytes of answers that may be on their way
	connectTimeout = 2 * time.Second
	maxMessage     = 64 << 20 // lists of a big cluster are one message
)

// ErrClosed is returned by every call on a closed Client.
var ErrClosed = errors.New("client is closed")

// Open makes a new connection to one server, for a caller that wants its
// traffic on a connection of its own, and closes it. It returns at once; the
// connection is made with the first call. Config's TLS, Credential,
// Dialer, UserAgent and
// the keep-alive settings apply; retries and failover do not.
func (c *Client) Open(addr string) (*grpc.ClientConn, error) {
	a, err := parseServer(addr)
	if err != nil {
		return nil, err
	}
	return c.open(a)
}

func (c *Client) open(addr string) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if c.cfg.TLS != nil {
		creds = credentials.NewTLS(c.cfg.TLS)
	}
	var opts []grpc.DialOption
	if c.cfg.Credential != nil {
		opts = append(opts, c.cfg.Credential.DialOption())
	}
	// The passthrough resolver leaves names to the dialer, which asks anew
	// for each connection and tries all addresses of a name.
	return grpc.NewClient("passthrough:///"+addr, append(opts,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(c.cfg.Dialer),
		grpc.WithUserAgent(c.cfg.UserAgent),
		grpc.WithDisableServiceConfig(),
		// Fixed windows, as on the servers' side: an estimate of the bandwidth
		// would ping after every message of a quiet stream.
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithDisableRetry(), // the rules of this package decide
		grpc.WithIdleTimeout(0), // a second connection for a call a minute would be waste
		grpc.WithStatsHandler(sentMarker{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout, PermitWithoutStream: true}),
	)...)
}

// sentMarker notes whether a call has been put on the wire: one that has not
// can be repeated whatever it is.
type sentMarker struct{}

type sentKey struct{}

func withSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := &atomic.Bool{}
	return context.WithValue(ctx, sentKey{}, sent), sent
}

func (sentMarker) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentMarker) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

func (sentMarker) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (sentMarker) HandleConn(context.Context, stats.ConnStats)                       {}
