package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gometrics "github.com/hashicorp/go-metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/api"
	"github.com/leasehold-dev/leasehold/ownership/audit"
	"github.com/leasehold-dev/leasehold/ownership/auditlog"
	"github.com/leasehold-dev/leasehold/ownership/auth"
	"github.com/leasehold-dev/leasehold/ownership/console"
	"github.com/leasehold-dev/leasehold/ownership/controller"
	"github.com/leasehold-dev/leasehold/ownership/listen"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// Addrs are the addresses that others reach this server at, ports filled in.
type Addrs struct {
	GRPC, Raft, Gossip, HTTP string
}

// Server is one server. Its methods may be called from any goroutine.
type Server struct {
	cfg   Config
	log   *slog.Logger
	id    string
	addrs Addrs

	registry *prometheus.Registry
	metrics  *metrics.Server
	planned  *controllerMetrics

	store      *raftstore.Store
	gossip     *gossip.Gossip
	firstKeys  state.Keyring // that gossip was started with
	controller *controller.Controller
	api        *api.API
	etcd       *etcdapi.API
	queues     *queue.Queues    // of both APIs
	console    *console.Console // nil: off
	auth       *auth.Auth
	guards     []*listen.Listener // of the listeners below, but adminListener, and of Raft's

	certificates  *pki.Store // nil: no TLS
	shortWarnings shortWarnings
	given         given
	forgotten     atomic.Bool // an authority that was believed: connections are to be looked at

	// adminListener is nil unless profiles are asked for.
	grpcListener, httpListener, adminListener net.Listener
	grpc                                      *grpc.Server
	health                                    *health.Server
	http                                      *http.Server

	gossipChanged chan struct{} // capacity 1
	ready         chan struct{} // closed when first ready
	readyOnce     sync.Once

	vitals  vitals
	calls   *auditlog.Log                 // who has called what; nil: it is not kept
	finding atomic.Pointer[audit.Finding] // of the audit, to be logged; nil: nothing

	twins    chan string   // capacity 1: gRPC address of who is said to have this server's id
	forming  chan struct{} // capacity 1: held by who forms the cluster
	warnedOf string        // a twin that the log has; belongs to the one meeting at a time

	mu        sync.Mutex
	formation verdict // what was last seen of servers to form a cluster with
	stopping  bool
	isTwin    bool                // this server's id belongs to another
	catching  catchUp             // written by the watching goroutine only
	notes     map[storeKey]string // on the leader: what is being done with each server
}

// New checks cfg, opens the data directory and the listeners, and builds all
// floors. Nothing runs until Run. On an error everything is closed again.
func New(cfg Config) (_ *Server, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure server: %w", err)
	}
	if cfg.hooks.clock == nil {
		cfg.hooks.clock = cfg.Clock
	}
	s := &Server{
		cfg:           cfg,
		log:           cfg.logger(),
		registry:      prometheus.NewRegistry(),
		gossipChanged: make(chan struct{}, 1),
		ready:         make(chan struct{}),
		twins:         make(chan string, 1),
		forming:       make(chan struct{}, 1),
		shortWarnings: shortWarnings{},
	}
	s.vitals.boot = uint64(time.Now().UnixNano())
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = metrics.NewServer(s.registry, metrics.ServerConfig{Version: cfg.Version})
	s.metrics.SettingsRead(time.Now())
	if cfg.LibraryMetrics {
		if _, err := gometrics.NewGlobal(sinkConfig(), metrics.NewSink(s.metrics)); err != nil {
			return nil, fmt.Errorf("install the sink of the libraries' metrics: %w", err)
		}
	}

	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	listen := func(flag, addr string) net.Listener {
		if err != nil {
			return nil
		}
		ln, lerr := cfg.hooks.listenTCP(addr)
		if lerr != nil {
			err = fmt.Errorf("listen on %s %s: %w (is another server running? port 0 takes a free one)", flag, addr, lerr)
			return nil
		}
		undo = append(undo, func() { ln.Close() })
		return ln
	}
	s.grpcListener = listen("--grpc-addr", cfg.GRPCAddr)
	s.httpListener = listen("--http-addr", cfg.HTTPAddr)
	raftListener := listen("--raft-addr", cfg.RaftAddr)
	if cfg.AdminAddr != "" {
		s.adminListener = listen("--admin-addr", cfg.AdminAddr)
	}
	if err != nil {
		return nil, err
	}
	s.addrs = Addrs{
		GRPC: cfg.advertised(s.grpcListener.Addr().String()),
		HTTP: cfg.advertised(s.httpListener.Addr().String()),
		Raft: cfg.advertised(raftListener.Addr().String()),
	}
	if s.id, err = cfg.id(raftstore.StoredID(cfg.DataDir)); err != nil {
		return nil, err
	}
	if cfg.secure() {
		if s.certificates, err = cfg.openCertificates(s.id, s.log); err != nil {
			return nil, fmt.Errorf("open TLS files: %w", err)
		}
	}
	s.grpcListener = s.guard("grpc", s.grpcListener, pki.UseAPI)
	s.httpListener = s.guard("http", s.httpListener, pki.UseHTTP)
	if err := s.openStore(s.guard("raft", raftListener, pki.UseRaft)); err != nil {
		return nil, err
	}
	undo = append(undo, func() { s.store.Close() })
	if err := s.openAuditLog(); err != nil {
		return nil, err
	}
	if s.calls != nil {
		undo = append(undo, func() { _ = s.closeAuditLog(context.Background()) })
	}
	if err := s.openGossip(); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = s.gossip.Shutdown(context.Background()) })
	if err := s.openOwnership(); err != nil {
		return nil, err
	}
	return s, nil
}

// openStore is the lowest floor. What it calls upwards is set later in New
// and before Run.
func (s *Server) openStore(raftListener net.Listener) (err error) {
	count := &eventCounter{m: s.metrics, audit: audit.New(), found: &s.finding, revoked: func(id string) { s.auth.Revoked(id) }}
	network := bound{ln: raftListener, hooks: &s.cfg.hooks}
	var certified func(net.Conn) (string, error)
	if s.certificates != nil {
		network.tls, certified = s.certificates.Config(pki.UsePeer), s.certified
	}
	cfg := raftstore.Config{
		ServerID:   s.id,
		Dir:        s.cfg.DataDir,
		RaftAddr:   s.cfg.RaftAddr,
		Advertise:  s.addrs.Raft,
		Resolve:    s.resolve,
		Version:    s.cfg.Version,
		MaxFeature: s.maxFeature(),
		Announce: state.Server{
			ID: s.id, RaftAddr: s.addrs.Raft, GRPCAddr: s.addrs.GRPC, HTTPAddr: s.addrs.HTTP,
			Version: s.cfg.Version,
		},
		Clock:           s.cfg.hooks.bootClock(),
		Logger:          s.log,
		Metrics:         storeMetrics{s.metrics, &s.vitals},
		ElectionTimeout: s.cfg.ElectionTimeout,
		Network:         network,
		Certified:       certified,
		WrapLog:         s.cfg.WrapLog,
		Lead:            s.lead,
		OnApply: func(st *state.State, from, to, index uint64) {
			count.count(st, from, to, index)
			s.api.OnApply(st, from, to, index)
		},
	}
	if s.cfg.hooks.store != nil {
		s.cfg.hooks.store(&cfg)
	}
	s.store, err = raftstore.New(cfg)
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	count.known = s.store.Storage().LastIndex
	return nil
}

func (s *Server) openGossip() (err error) {
	if s.firstKeys, err = s.cfg.firstKeyring(s.log); err != nil {
		return err
	}
	known := ""
	if s.cfg.DataDir != "" {
		known = s.cfg.DataDir + "/known-peers"
	}
	s.gossip, err = gossip.New(gossip.Config{
		Label:          s.cfg.GossipLabel,
		Keys:           s.firstKeys.Keys,
		KeyringVersion: s.firstKeys.Version,
		BindAddr:       s.cfg.GossipAddr,
		Advertise:      strings.Trim(s.cfg.Advertise, "[]"),
		Seeds:          s.cfg.Join,
		KnownPeersFile: known,
		Logger:         s.log,
		Observer:       gossipMetrics{s.metrics.Gossip(), s.metrics},
		Transport:      s.cfg.hooks.gossip,
		Pace:           s.cfg.hooks.pace,
		OnChange: func() {
			select {
			case s.gossipChanged <- struct{}{}:
			default: // one look covers all that has changed
			}
		},
		OnConflict: func(c gossip.Conflict) {
			if c.Mine {
				s.noteTwin(c.OtherMeta.GRPCAddr)
			}
		},
		Meta: gossip.Meta{
			Role: gossip.RoleServer, ID: s.id, Boot: s.vitals.boot, Store: s.store.Self().Store, Feature: uint32(s.maxFeature()),
			GRPCAddr: s.addrs.GRPC, RaftAddr: s.addrs.Raft, HTTPAddr: s.addrs.HTTP, Version: s.cfg.Version,
			Expect: s.cfg.BootstrapExpect, HasState: s.store.HasState(), ClusterID: s.store.ClusterID(),
		},
	})
	if err != nil {
		return fmt.Errorf("open gossip: %w", err)
	}
	s.addrs.Gossip = s.gossip.LocalAddr()
	return nil
}

func (s *Server) openOwnership() (err error) {
	members := memberView{s.gossip}
	s.planned = newControllerMetrics(s.metrics)
	s.controller, err = controller.New(controller.Config{
		Store: s.store, Clock: s.cfg.hooks.bootClock(), Gossip: members, Logger: s.log, Metrics: s.planned,
	})
	if err != nil {
		return fmt.Errorf("build controller: %w", err)
	}
	s.queues = queue.New(s.store)
	s.api, err = api.New(api.Config{
		Queues: s.queues,
		Room:   func(ctx context.Context, bytes int64) error { return s.etcd.Room(ctx, bytes) },
		Store:  s.store, Controller: s.controller, Gossip: s.gossip,
		ServerID: s.id, StoreID: s.store.Self().Store, Boot: s.vitals.boot, Version: s.cfg.Version, ElectionTimeout: s.cfg.ElectionTimeout, InitialDelay: s.cfg.InitialDelay,
		Formation:       s.formationSeen,
		Members:         s,
		Health:          s.healthNow,
		BackupDone:      s.backedUp,
		DebugFiles:      s.debugFiles(),
		Secrets:         s.secrets(),
		GossipLabel:     s.cfg.GossipLabel,
		Insecure:        s.cfg.Insecure,
		Dial:            s.dialOptions(),
		MaxRequestBytes: s.cfg.MaxRequestBytes,
		TLS:             s.certificates != nil,
		Clock:           s.cfg.hooks.bootClock(), Logger: s.log, Metrics: s.metrics,
	})
	if err != nil {
		return fmt.Errorf("build API: %w", err)
	}
	if err := s.openKeys(); err != nil {
		return err
	}
	if err := s.openConsole(); err != nil {
		return err
	}
	s.openAuth()
	s.grpc, s.health = s.newGRPC()
	s.http = s.newHTTP()
	return nil
}

// openKeys builds the etcd API, which stands beside the native one.
func (s *Server) openKeys() (err error) {
	clock := s.cfg.hooks.bootClock()
	var login func(ctx context.Context, name, password string) (string, error)
	if s.certificates != nil {
		login = func(ctx context.Context, name, password string) (string, error) {
			return s.auth.Login(ctx, name, password, "") // from where the context says
		}
	}
	s.etcd, err = etcdapi.New(etcdapi.Config{
		Login: login, TLS: s.certificates != nil,
		Unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return s.auth.Unary(ctx, req, info, next)
		},
		Stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return s.auth.Stream(srv, ss, info, next)
		},
		Store:    s.store,
		ServerID: s.id, StoreID: s.store.Self().Store, Version: s.cfg.Version,
		Address:         s.grpcAddrOf,
		Dial:            s.dialOptions(),
		MaxRequestBytes: s.cfg.MaxRequestBytes,
		QuotaBytes:      s.cfg.QuotaBytes, CompactAge: s.cfg.CompactAge, CompactRevisions: s.cfg.CompactRevisions,
		Queues:          s.queues,
		ElectionTimeout: s.cfg.ElectionTimeout,
		Clock:           clock.Now,
		Metrics:         s.metrics,
		Logger:          s.log,
	})
	if err != nil {
		return fmt.Errorf("build etcd API: %w", err)
	}
	return nil
}

// grpcAddrOf is where the API of a server of the group is reached, or "".
func (s *Server) grpcAddrOf(id string) string {
	if id == s.id {
		return s.addrs.GRPC
	}
	return s.api.ServerAddr(id)
}

// lead runs the duties of a term beside each other; losing one is losing the
// role.
func (s *Server) lead(ctx context.Context, l *raftstore.Lead) error {
	if s.cfg.TokenFloor > 0 {
		if _, err := l.Propose(ctx, &state.RaiseToken{Token: state.Token(s.cfg.TokenFloor)}); err != nil {
			return fmt.Errorf("raise token to the floor: %w", err)
		}
	}
	s.warnOfShortTTLs()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.api.Lead(ctx, l.Term) })
	g.Go(func() error { return s.etcd.Lead(ctx, l) })
	g.Go(func() error { return s.controller.Lead(ctx, l) })
	g.Go(func() error { return s.raiseFeatures(ctx, l) })
	g.Go(func() error { return s.leadMembers(ctx) })
	g.Go(func() error { return s.leadKeyring(ctx, l) })
	g.Go(func() error { return s.leadCertified(ctx) })
	defer s.planned.forget()
	return g.Wait()
}

// warnOfShortTTLs names keyspaces that were created under a shorter election
// timeout: an election may outlast their sessions, and then stops owners.
func (s *Server) warnOfShortTTLs() {
	floor := 6 * s.cfg.ElectionTimeout
	s.store.View(func(st *state.State) {
		for k := range st.Keyspaces() {
			if k.Settings.TTL < floor {
				s.log.Error("TTL of a keyspace is below six election timeouts: raise it, or lower --election-timeout",
					"keyspace", k.Name, "ttl", k.Settings.TTL, "election_timeout", s.cfg.ElectionTimeout)
			}
		}
	})
}

// Run works until ctx ends, then stops in order: not ready, leadership handed
// on, sessions told, gossip left, everything closed, within ShutdownTimeout.
// It returns nil after a stop that was asked for.
func (s *Server) Run(ctx context.Context) error {
	s.log.Info("server starts", "server", s.id, "grpc", s.addrs.GRPC, "raft", s.addrs.Raft, "gossip", s.addrs.Gossip,
		"http", s.addrs.HTTP, "data_dir", s.cfg.DataDir, "election_timeout", s.cfg.ElectionTimeout, "version", s.cfg.Version, "feature", uint32(s.maxFeature()))
	if s.cfg.BootstrapExpect > 0 && s.store.HasState() {
		s.log.Info("--bootstrap-expect has no effect: this server has state", "server", s.id, "cluster", s.store.ClusterID())
	}
	floors := []floor{
		{name: "store", run: s.store.Run},
		{name: "gossip", run: s.gossip.Run, stop: s.leaveGossip},
		{name: "keys of gossip", run: s.keyring().run},
		{name: "formation and figures", run: s.watch},
		// Before the streams end, the workers have gone to the new leader.
		{name: "grpc", run: s.serveGRPC, stop: s.handOverLeadership},
		{name: "http", run: func(ctx context.Context) error { return serveHTTP(ctx, s.http, s.httpListener) }, stop: s.unready},
	}
	if s.calls != nil {
		floors = slices.Insert(floors, 0, floor{name: "audit log", run: s.keepAuditLog})
	}
	if s.console != nil { // its streams would hold up the end of http
		floors = append(floors, floor{name: "console", run: s.console.Run})
	}
	if s.adminListener != nil {
		floors = append(floors, floor{name: "admin", run: func(ctx context.Context) error {
			return serveHTTP(ctx, newAdmin(s.log), s.adminListener)
		}})
	}
	err := runFloors(ctx, s.log, s.cfg.ShutdownTimeout, floors)
	s.log.Info("server stopped", "server", s.id, "error", err)
	return err
}

// unready tells load balancers and workers to look elsewhere.
func (s *Server) unready(context.Context) {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.health.Shutdown()
}

// Ready is closed when the server is first able to serve: it has a leader and
// has caught up.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addrs are known as soon as New has returned.
func (s *Server) Addrs() Addrs { return s.addrs }

// ID is the server's id in the Raft group.
func (s *Server) ID() string { return s.id }
