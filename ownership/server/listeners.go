package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/leasehold-dev/leasehold/ownership/console"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// healthServices are reported one by one; the empty name is the whole.
var healthServices = []string{"", leaseholdv1.SessionService_ServiceDesc.ServiceName, leaseholdv1.KeyspaceService_ServiceDesc.ServiceName}

func (s *Server) newGRPC() (*grpc.Server, *health.Server) {
	g := grpc.NewServer(slices.Concat(s.grpcOptions(), s.auth.ServerOptions(), s.api.ServerOptions())...)
	s.api.Register(g)
	s.etcd.Register(g)
	h := health.NewServer()
	for _, name := range healthServices {
		h.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
	}
	healthpb.RegisterHealthServer(g, h)
	reflection.Register(g)
	return g, h
}

// serveGRPC runs the APIs and the listener they are served on. At the end the APIs
// tell their streams first; gRPC then waits for them, but not for a client that
// does not listen.
func (s *Server) serveGRPC(ctx context.Context) error {
	apiCtx, endAPI := context.WithCancelCause(context.WithoutCancel(ctx))
	apiDone, etcdDone := make(chan error, 1), make(chan error, 1)
	go func() { apiDone <- s.api.Run(apiCtx) }()
	go func() { etcdDone <- s.etcd.Run(apiCtx) }()
	queuesDone := make(chan error, 1)
	go func() { queuesDone <- s.queues.Run(apiCtx) }()
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(s.grpcListener) }()
	var failed error
	select {
	case err := <-served:
		failed = fmt.Errorf("serve gRPC: %w", err)
		served <- nil
	case <-ctx.Done():
	}
	endAPI(context.Cause(ctx))
	cut := time.AfterFunc(time.Second, s.grpc.Stop)
	s.grpc.GracefulStop()
	cut.Stop()
	return errors.Join(failed, <-served, <-apiDone, <-etcdDone, <-queuesDone)
}

func (s *Server) newHTTP() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /{$}", s.index)
	mux.Handle(console.Prefix, s.consoleHandler())
	for _, path := range []string{"/v3/", "/health", "/version"} {
		mux.Handle(path, s.etcd.HTTPHandler())
	}
	mux.Handle("/", s.api.HTTPHandler(s.auth))
	return &http.Server{
		Handler:           s.auth.HTTP(s.guarded(mux)),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          newHTTPLog(s.log),
	}
}

// newAdmin serves profiles, to whoever is on this machine and not to pages that a
// browser on it has opened under a name of their own. The default mux, on which the
// import registers them too, is served nowhere.
func newAdmin(log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return &http.Server{Handler: console.Guard{Loopback: true}.Wrap(mux), ReadHeaderTimeout: 5 * time.Second, ErrorLog: newHTTPLog(log)}
}

func serveHTTP(ctx context.Context, srv *http.Server, ln net.Listener) error {
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := srv.Shutdown(bound); err != nil {
		srv.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// Readiness says whether this server can serve now, and if not, why.
func (s *Server) Readiness() (ready bool, reason string) { return s.api.Ready() }

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	ready, reason := s.Readiness()
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, reason)
		return
	}
	fmt.Fprintln(w, "ok")
}

// index tells what is here: a browser is sent to the console.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	if s.toConsole(w, r) {
		return
	}
	ready, reason := s.Readiness()
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	err := enc.Encode(map[string]any{
		"server": s.id, "version": s.cfg.Version, "ready": ready, "not_ready_reason": reason,
		"paths": []string{console.Prefix, "/metrics", "/livez", "/readyz", "/health", "/version", "/leasehold.v1.ClusterService/GetStatus (POST, JSON)", "/v3/kv/range (POST, JSON)"},
	})
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		s.log.Debug("index page was not sent", "error", err)
	}
}
