package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// DefaultMaxRequestBytes is etcd's limit, too.
const DefaultMaxRequestBytes = 3 << 19 // 1.5 MiB

// DefaultCallTimeout ends a call that came without a deadline.
const DefaultCallTimeout = 10 * time.Second

// Config of the API of one server.
type Config struct {
	// Store holds the state. Required. Its Config.OnApply must call
	// API.OnApply, and its Config.Lead must run API.Lead.
	Store Store
	// Controller of this server; it works while this server leads. Required.
	Controller Controller
	// ServerID and Version are reported. ServerID is required.
	ServerID, Version string
	// ElectionTimeout of the Raft group: the least TTL is six of it. Required.
	ElectionTimeout time.Duration
	// InitialDelay of keyspaces created without one; 0 in dev.
	InitialDelay time.Duration
	// MaxRequestBytes bounds one request. 0: DefaultMaxRequestBytes.
	MaxRequestBytes int
	// CallTimeout ends unary calls that came without a deadline. 0:
	// DefaultCallTimeout.
	CallTimeout time.Duration
	// Dial are the options for connections to the leader. nil: no TLS.
	Dial []grpc.DialOption
	// Formation tells how this server would form a cluster: how many servers
	// it waits for and the hash of those it sees. nil: it would not.
	Formation func() (expect int, hash string)
	// GossipLabel is told to workers that want to gossip.
	GossipLabel string
	// Clock measures probes, graces and drains. Required.
	Clock Clock
	// Logger; nil: slog.Default().
	Logger *slog.Logger
}

// API serves leasehold.v1 on one server. All methods may be called from any
// goroutine.
type API struct {
	cfg Config
	log *slog.Logger
}

// New validates the configuration.
func New(cfg Config) (*API, error) {
	var errs []error
	need := func(field string, ok bool) {
		if !ok {
			errs = append(errs, fmt.Errorf("configure api: %s is required", field))
		}
	}
	need("Store", cfg.Store != nil)
	need("Controller", cfg.Controller != nil)
	need("ServerID", cfg.ServerID != "")
	need("ElectionTimeout", cfg.ElectionTimeout > 0)
	need("Clock", cfg.Clock != nil)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.MaxRequestBytes == 0 {
		cfg.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = DefaultCallTimeout
	}
	if cfg.Dial == nil {
		cfg.Dial = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &API{cfg: cfg, log: cfg.Logger}, nil
}

// Run keeps the API alive until ctx ends; then every stream is ended with
// shutting_down, and Run returns when the streams' readers have returned,
// which they do at the latest when the gRPC server is stopped.
func (a *API) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Lead serves sessions while this server leads: run it inside raftstore's
// Config.Lead, beside the controller. It returns when ctx ends, after all
// session streams have been told not_leader.
func (a *API) Lead(ctx context.Context, term uint64) error {
	<-ctx.Done()
	return nil
}

// OnApply feeds the session streams. It is raftstore's Config.OnApply: called
// by the applying goroutine under the store's lock, so it only appends and
// signals.
func (a *API) OnApply(s *state.State, from, to, index uint64) {}

// ServerOptions are what a grpc.Server needs to serve this API: interceptors,
// size limits, connection keep-alives.
func (a *API) ServerOptions() []grpc.ServerOption { return nil }

// Register adds all services of leasehold.v1 to a server made with
// ServerOptions.
func (a *API) Register(s grpc.ServiceRegistrar) {}

// HTTPHandler serves the same calls as JSON: POST /leasehold.v1.<Service>/<Method>.
func (a *API) HTTPHandler() http.Handler { return http.NotFoundHandler() }

// Ready says whether this server can serve now, and if not, why.
func (a *API) Ready() (bool, string) { return false, "starting" }
