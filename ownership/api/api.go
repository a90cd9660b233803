package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
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
	// StoreID is that of the server's data directory, Boot when its process
	// started; both are reported.
	StoreID string
	Boot    uint64
	// ElectionTimeout of the Raft group: the least TTL is six of it. Required.
	ElectionTimeout time.Duration
	// InitialDelay of keyspaces created without one; 0 in dev.
	InitialDelay time.Duration
	// MaxRequestBytes bounds one request. 0: DefaultMaxRequestBytes.
	MaxRequestBytes int
	// CallTimeout ends unary calls that came without a deadline. 0:
	// DefaultCallTimeout.
	CallTimeout time.Duration
	// TLS says that the server asks who calls; it is reported.
	TLS bool
	// Dial are the options for connections to the leader. nil: no TLS.
	Dial []grpc.DialOption
	// Formation tells how this server would form a cluster: how many servers
	// it waits for and the hash of those it sees. nil: it would not.
	Formation func() (expect int, hash string)
	// Members forms the cluster and knows what is done about its servers; nil:
	// nothing of that is offered.
	Members Members
	// Insecure: the keys of gossip may be told to workers over connections that
	// others can read.
	Insecure bool
	// GossipLabel is told to workers that want to gossip.
	GossipLabel string
	// Gossip shows members; nil: there is none.
	Gossip Gossip
	// Health is what the process around the API measures of itself; the API adds
	// what it knows. It must not wait for a disk or another server. nil: nothing.
	Health func() *pb.ServerHealth
	// DebugFiles are added to a debug archive: what only the process around the
	// API knows. Read is called anew for each archive.
	DebugFiles []DebugFile
	// Secrets are replaced wherever they appear in a debug archive, whatever put
	// them there. Shorter ones than MinSecret are not looked for.
	Secrets []string
	// Clock measures probes, graces and drains. Required.
	Clock Clock
	// Wall is the wall clock, against which reported tokens and the age of
	// events are held. nil: time.Now.
	Wall func() time.Time
	// BackupDone is told when a whole backup has been sent, with the wall clock.
	// It may be nil.
	BackupDone func(at time.Time)
	// Room refuses, on the leader, keys that would take bytes more than there is
	// room for. nil: there always is.
	Room func(ctx context.Context, bytes int64) error
	// Queues of this server's waiters, which its other APIs share; whoever gives
	// them runs them. nil: queues of the API's own.
	Queues *queue.Queues
	// Metrics may be nil.
	Metrics *metrics.Server
	// Logger; nil: slog.Default().
	Logger *slog.Logger
}

// API serves leasehold.v1 on one server. All methods may be called from any
// goroutine.
type API struct {
	cfg      Config
	log      *slog.Logger
	started  time.Duration
	methods  map[string]method
	conns    *conns
	hub      *hub
	names    *names
	routines *routines
	queues   *queue.Queues
	office   office
	stopping chan struct{} // closed when Run is asked to end
	redact   *redactor
	// collecting is true while a debug archive is being made: one at a time.
	collecting atomic.Bool
	saving     atomic.Int32  // backups being made
	simulating chan struct{} // capacity 1: a simulation runs
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
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	methods, err := methodTable()
	if err != nil {
		return nil, fmt.Errorf("configure api: %w", err)
	}
	a := &API{
		cfg: cfg, log: cfg.Logger, started: cfg.Clock.Now(),
		methods:  methods,
		conns:    &conns{dial: cfg.Dial, byAddr: map[string]*grpc.ClientConn{}},
		names:    &names{byID: map[state.KeyspaceID]string{}},
		routines: &routines{},
		stopping: make(chan struct{}),
		redact:   newRedactor(cfg.Secrets),

		simulating: make(chan struct{}, 1),
	}
	if a.queues = cfg.Queues; a.queues == nil {
		a.queues = queue.New(cfg.Store)
	}
	a.hub = newHub(&a.cfg, a.routines)
	return a, nil
}

// Run keeps the API alive until ctx ends. Then every stream is ended with
// shutting_down, and Run returns when their readers have: at the latest when
// the gRPC server has been stopped, so do not wait for Run before that.
func (a *API) Run(ctx context.Context) error {
	if a.cfg.Queues == nil {
		_ = a.queues.Run(ctx) // it always returns nil
	} else {
		<-ctx.Done()
	}
	close(a.stopping)
	a.hub.end(errShuttingDown())
	<-a.routines.close()
	a.conns.close()
	return nil
}

func (a *API) isStopping() bool {
	select {
	case <-a.stopping:
		return true
	default:
		return false
	}
}

// Lead serves sessions while this server leads: run it inside raftstore's
// Config.Lead, beside the controller. It returns when ctx ends, after all
// session streams have been told not_leader.
func (a *API) Lead(ctx context.Context, term uint64) error {
	defer a.office.enter(ctx)()
	a.hub.begin(term)
	<-ctx.Done()
	if a.isStopping() {
		a.hub.end(errShuttingDown())
		return nil
	}
	// Who leads next is not known yet: no hint is better than an old one.
	a.hub.end(fail(&pb.ErrorDetail{
		Reason: pb.ReasonNotLeader, RetryAfterMs: retryAfter.Milliseconds(),
		Message: fmt.Sprintf("server %s does not lead any more", a.cfg.ServerID),
	}))
	return nil
}

// OnApply feeds the session streams. It is raftstore's Config.OnApply: called
// by the applying goroutine under the store's lock, so it only appends and
// signals.
func (a *API) OnApply(s *state.State, from, to, index uint64) { a.hub.onApply(s, from, to, index) }

// Register adds all services of leasehold.v1 to a server made with the options of
// an auth.Auth that has this API's rules, then ServerOptions.
func (a *API) Register(s grpc.ServiceRegistrar) {
	pb.RegisterClusterServiceServer(s, &cluster{API: a})
	pb.RegisterKeyspaceServiceServer(s, &keyspaces{API: a})
	pb.RegisterPartitionServiceServer(s, &partitions{API: a})
	pb.RegisterWorkerServiceServer(s, &workers{API: a})
	pb.RegisterEventServiceServer(s, &events{API: a})
	pb.RegisterSessionServiceServer(s, &sessions{API: a})
	pb.RegisterCoordinationServiceServer(s, &coordination{API: a})
	pb.RegisterRingServiceServer(s, &rings{API: a})
	pb.RegisterCredentialServiceServer(s, &credentials{API: a})
	pb.RegisterGossipServiceServer(s, &gossips{API: a})
}

// HTTPHandler serves the same calls as JSON: POST /leasehold.v1.<Service>/<Method>.
// guard lets through who may make them; who that is, guard.HTTP finds out before.
func (a *API) HTTPHandler(guard *auth.Auth) http.Handler { return a.twin(guard) }
