package etcdapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
)

// API serves etcd v3 on one server. All methods may be called from any
// goroutine.
type API struct {
	cfg  Config
	log  *slog.Logger
	self identity

	// stopping ends with errStopped when Run is asked to end. Whoever waits for
	// long selects on it.
	stopping context.Context
	stop     context.CancelCauseFunc

	calls       []call
	permissions map[string]permission
	routines    routines
	relay       *relay
	readers     readers
	saving      atomic.Int32 // snapshots being sent
	hub         *hub
	queues      *queue.Queues
	leaderLoss  *leaderLoss
	gateway     *gateway
}

// New validates the configuration. Nothing runs until Run.
func New(cfg Config) (*API, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &API{cfg: cfg, log: cfg.Logger, self: newIdentity(cfg.ServerID, cfg.StoreID), calls: callTable(), permissions: permissionTable()}
	a.stopping, a.stop = context.WithCancelCause(context.Background())
	a.relay = newRelay(a)
	a.readers.a = a
	a.hub = a.newWatchHub()
	if a.queues = cfg.Queues; a.queues == nil {
		a.queues = queue.New(cfg.Store)
	}
	a.leaderLoss = newLeaderLoss()
	if a.gateway, err = newGateway(a); err != nil {
		return nil, fmt.Errorf("configure etcd API: JSON gateway: %w", err)
	}
	a.Register(a.gateway.server)
	return a, nil
}

// Run works until ctx ends. Then every stream ends with "server stopped", and Run
// returns when all that it started has: at the latest when the gRPC server has
// been stopped, so do not wait for Run before that.
func (a *API) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { a.relay.run(a.stopping) })
	group.Go(func() { a.runHub(a.stopping) })
	group.Go(func() { a.leaderLoss.run(a.stopping, a.cfg.Store, noLeaderElections*a.cfg.ElectionTimeout) })
	group.Go(func() { a.gateway.run(a.stopping) })
	if a.cfg.Queues == nil {
		group.Go(func() { _ = a.queues.Run(a.stopping) }) // it always returns nil
	}
	<-ctx.Done()
	a.stop(errStopped)
	group.Wait()
	a.routines.wait()
	return nil
}

// Lead is the leader's duties: run it inside raftstore's Config.Lead. It returns
// when ctx ends.
func (a *API) Lead(ctx context.Context, l *raftstore.Lead) error {
	a.compact(ctx)
	<-ctx.Done()
	return nil
}

// Register adds all services of etcd v3, and the one that servers speak among
// themselves, to a gRPC server.
func (a *API) Register(s grpc.ServiceRegistrar) {
	pb.RegisterKVServer(s, &kv{API: a})
	pb.RegisterWatchServer(s, &watch{API: a})
	pb.RegisterLeaseServer(s, &lease{API: a})
	pb.RegisterClusterServer(s, &cluster{API: a})
	pb.RegisterMaintenanceServer(s, &maintenance{API: a})
	pb.RegisterAuthServer(s, &auth{API: a})
	v3lockpb.RegisterLockServer(s, &lock{API: a})
	v3electionpb.RegisterElectionServer(s, &election{API: a})
	relaypb.RegisterRelayServiceServer(s, &relayServer{API: a})
}

// HTTPHandler serves the calls as JSON under /v3/, and /health and /version.
func (a *API) HTTPHandler() http.Handler { return a.httpHandler() }
