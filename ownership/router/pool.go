package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Defaults of a PoolConfig.
const (
	DefaultIdleTimeout = 5 * time.Minute
	DefaultMaxConns    = 1024
)

// PoolConfig says which calls a Pool makes, and how.
type PoolConfig struct {
	Router   *Router
	Keyspace string

	// Key takes the key out of a call. The request is nil for a stream, which
	// begins before there is one. nil: the key of WithKey.
	Key func(ctx context.Context, method string, request any) ([]byte, error)

	// Options of the connections to owners. One of them must be about transport
	// security, as gRPC wants it.
	Options []grpc.DialOption

	// IdleTimeout is how long a connection without a call is kept. 0:
	// DefaultIdleTimeout.
	IdleTimeout time.Duration

	// MaxConns bounds the connections: above it, the one that was idle for
	// longest is closed. Those in use are never closed. 0: DefaultMaxConns.
	MaxConns int
}

// Pool makes gRPC calls to the owner of each call's key. It implements
// grpc.ClientConnInterface, so a generated client runs over it; Unary and
// Stream are the same as interceptors, for a program whose connection is made
// elsewhere.
//
// The owner's side is UnaryNotOwner and StreamNotOwner. If it refuses a call as
// not the owner, the table is corrected and the call made once more, to another
// address. Calls with one request can be repeated, so that goes for unary and
// server-streaming ones. A stream of the client's cannot: it ends with the
// refusal (see IsNotOwner), and begun anew it goes to the right one. The same
// holds if the address refused the connection and the table has another by
// then.
//
// A partition without an owner, or a router without a table, is UNAVAILABLE.
//
// A Pool has no goroutine of its own; idle connections are closed when another
// one is wanted, and gRPC drops their sockets by itself. It must be closed.
type Pool struct {
	cfg PoolConfig

	mu     sync.Mutex // guards what follows
	conns  map[string]*pooled
	swept  time.Time
	closed bool
}

// pooled is a connection to one endpoint.
type pooled struct {
	cc    *grpc.ClientConn
	users int
	used  time.Time // last
}

// NewPool checks the configuration. Nobody is contacted before the first call.
func NewPool(cfg PoolConfig) (*Pool, error) {
	switch {
	case cfg.Router == nil:
		return nil, errors.New("pool: Router: nil, want one whose Run runs")
	case cfg.Keyspace == "":
		return nil, errors.New("pool: Keyspace: empty, want one of the router's")
	case cfg.IdleTimeout < 0:
		return nil, fmt.Errorf("pool: IdleTimeout %v: below 0", cfg.IdleTimeout)
	case cfg.MaxConns < 0:
		return nil, fmt.Errorf("pool: MaxConns %d: below 0", cfg.MaxConns)
	}
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = DefaultIdleTimeout
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	if cfg.Key == nil {
		cfg.Key = func(ctx context.Context, method string, _ any) ([]byte, error) {
			if key, ok := ctx.Value(callKey{}).([]byte); ok {
				return key, nil
			}
			return nil, fmt.Errorf("the context of %s has no key, see router.WithKey", method)
		}
	}
	return &Pool{cfg: cfg, conns: map[string]*pooled{}, swept: time.Now()}, nil
}

type callKey struct{}

// WithKey gives the key of the calls made under a context.
func WithKey(ctx context.Context, key []byte) context.Context {
	return context.WithValue(ctx, callKey{}, key)
}

// Close closes all connections, whether in use or not.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, c := range p.conns {
		errs = append(errs, c.cc.Close())
	}
	p.conns = nil
	return errors.Join(errs...)
}

// Conns is how many connections there are.
func (p *Pool) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// acquire returns the connection to an endpoint; release must follow.
func (p *Pool) acquire(endpoint string) (*grpc.ClientConn, func(), error) {
	if endpoint == "" {
		return nil, nil, status.Error(codes.Unavailable, "the owner has no endpoint: see the worker's Config.Endpoint")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, status.Error(codes.Canceled, "the router's pool is closed")
	}
	now := time.Now()
	c := p.conns[endpoint]
	if c == nil {
		p.sweepLocked(now)
		opts := append([]grpc.DialOption{grpc.WithIdleTimeout(p.cfg.IdleTimeout), grpc.WithStatsHandler(sentMarker{})}, p.cfg.Options...)
		cc, err := grpc.NewClient("passthrough:///"+endpoint, opts...)
		if err != nil {
			return nil, nil, fmt.Errorf("connect to owner at %q: %w", endpoint, err)
		}
		c = &pooled{cc: cc}
		p.conns[endpoint] = c
	} else if now.Sub(p.swept) > p.cfg.IdleTimeout/2 {
		p.sweepLocked(now)
	}
	c.users++
	c.used = now
	var once sync.Once
	return c.cc, func() {
		once.Do(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			c.users--
			c.used = time.Now()
		})
	}, nil
}

// sweepLocked closes what has been idle for too long, and the longest idle one
// if there are too many.
func (p *Pool) sweepLocked(now time.Time) {
	p.swept = now
	oldest := ""
	for endpoint, c := range p.conns {
		switch {
		case c.users > 0:
		case now.Sub(c.used) >= p.cfg.IdleTimeout:
			_ = c.cc.Close()
			delete(p.conns, endpoint)
		case oldest == "" || c.used.Before(p.conns[oldest].used):
			oldest = endpoint
		}
	}
	if len(p.conns) >= p.cfg.MaxConns && oldest != "" {
		_ = p.conns[oldest].cc.Close()
		delete(p.conns, oldest)
	}
}

// Invoke implements grpc.ClientConnInterface for unary calls.
func (p *Pool) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return p.unary(ctx, method, args, func(ctx context.Context, cc *grpc.ClientConn) error {
		return cc.Invoke(ctx, method, args, reply, opts...)
	})
}

// Unary is Invoke as an interceptor: the call leaves the connection it was made
// on for the one to its owner.
func (p *Pool) Unary(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return p.unary(ctx, method, req, func(ctx context.Context, cc *grpc.ClientConn) error {
		return invoker(ctx, method, req, reply, cc, opts...)
	})
}

func (p *Pool) unary(ctx context.Context, method string, req any, call func(context.Context, *grpc.ClientConn) error) error {
	at, err := p.lookup(ctx, method, req)
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		cc, release, err := p.acquire(at.Endpoint)
		if err != nil {
			return err
		}
		try, sent := withSent(stamped(ctx, at))
		err = call(try, cc)
		release()
		if !first {
			p.heed(at, err)
			return err
		}
		next, again := p.elsewhere(ctx, at, err, sent.Load())
		if !again {
			return err
		}
		at = next
	}
}

// lookup finds the owner of a call.
func (p *Pool) lookup(ctx context.Context, method string, req any) (Route, error) {
	key, err := p.cfg.Key(ctx, method, req)
	if err != nil {
		return Route{}, status.Errorf(codes.InvalidArgument, "key of the call: %v", err)
	}
	at, err := p.cfg.Router.Lookup(p.cfg.Keyspace, key)
	if err != nil {
		return at, status.Error(codes.Unavailable, err.Error())
	}
	return at, nil
}

// elsewhere looks at how a call ended and says where to make it again.
func (p *Pool) elsewhere(ctx context.Context, tried Route, err error, sent bool) (Route, bool) {
	if err == nil {
		return Route{}, false
	}
	if hint, refused := notOwner(err, tried); refused {
		next, err := p.cfg.Router.elsewhere(ctx, tried, hint)
		return next, err == nil
	}
	if sent || status.Code(err) != codes.Unavailable {
		return Route{}, false
	}
	next, err := p.cfg.Router.At(tried.Keyspace, tried.Partition)
	return next, err == nil && next.Endpoint != "" && next.Endpoint != tried.Endpoint
}

// heed takes the hint of a refusal that nothing more is done about: the next
// caller shall know.
func (p *Pool) heed(tried Route, err error) {
	if hint, refused := notOwner(err, tried); refused {
		p.cfg.Router.Correct(tried.Keyspace, tried.Partition, hint)
	}
}

// stamped is the context of a call with the way it goes.
func stamped(ctx context.Context, at Route) context.Context {
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		md = metadata.MD{}
	} else {
		md = md.Copy()
	}
	stamp(func(key, value string) { md.Set(key, value) }, at)
	return metadata.NewOutgoingContext(ctx, md)
}

// NewStream implements grpc.ClientConnInterface.
func (p *Pool) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return p.stream(ctx, desc, method, func(ctx context.Context, cc *grpc.ClientConn, finish grpc.CallOption) (grpc.ClientStream, error) {
		return cc.NewStream(ctx, desc, method, append(slices.Clip(opts), finish)...)
	})
}

// Stream is NewStream as an interceptor.
func (p *Pool) Stream(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return p.stream(ctx, desc, method, func(ctx context.Context, cc *grpc.ClientConn, finish grpc.CallOption) (grpc.ClientStream, error) {
		return streamer(ctx, desc, cc, method, append(slices.Clip(opts), finish)...)
	})
}

func (p *Pool) stream(ctx context.Context, desc *grpc.StreamDesc, method string, open func(context.Context, *grpc.ClientConn, grpc.CallOption) (grpc.ClientStream, error)) (grpc.ClientStream, error) {
	at, err := p.lookup(ctx, method, nil)
	if err != nil {
		return nil, err
	}
	s := &ownerStream{pool: p, ctx: ctx, at: at, open: open, replay: !desc.ClientStreams}
	if err := s.begin(); err != nil {
		next, again := p.elsewhere(ctx, at, err, s.sent.Load())
		if !again {
			return nil, err
		}
		s.at, s.replay = next, false
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// sentMarker notes whether a call has been put on the wire: one that has not
// can be made elsewhere whatever it is.
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

// notOwner reads the refusal of an owner's side about a partition.
func notOwner(err error, at Route) (Hint, bool) {
	d := leaseholdv1.DetailOf(err)
	if d.GetReason() != ReasonNotOwner || d.GetValue() != partitionName(at.Keyspace, at.Partition) {
		return Hint{}, false
	}
	return Hint{Owner: d.GetOwner(), Endpoint: d.GetEndpoint(), Token: d.GetToken()}, true
}
