package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/leasehold-dev/leasehold/metrics"
)

// metricsAddr is where a command that is a worker shows its series; "": nowhere.
type metricsAddr string

// String implements pflag.Value.
func (a *metricsAddr) String() string { return string(*a) }

// Type implements pflag.Value.
func (*metricsAddr) Type() string { return "host:port" }

// Set implements pflag.Value.
func (a *metricsAddr) Set(s string) error {
	if s != "" {
		_, port, err := net.SplitHostPort(s)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return errors.New("want host:port, such as 127.0.0.1:9400, with a port of 0 to 65535")
		}
	}
	*a = metricsAddr(s)
	return nil
}

func (a *metricsAddr) define(cmd *cobra.Command) {
	cmd.Flags().Var(a, "metrics-addr", "serve the worker's figures for Prometheus there, under /metrics (default off) (env LEASEHOLD_METRICS_ADDR)")
	layered(cmd.Flags(), "metrics-addr")
}

// serve makes the series of the worker and shows them until stop is called,
// beside those of the process. It starts one goroutine, which stop waits for.
// Without an address there are no series, and stop does nothing.
func (a metricsAddr) serve(log *slog.Logger) (series *metrics.Worker, stop func(), err error) {
	if a == "" {
		return nil, func() {}, nil
	}
	ln, err := net.Listen("tcp", string(a))
	if err != nil {
		err = fmt.Errorf("listen on --metrics-addr: %w", err)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = &hintError{err, "give each worker of a host a port of its own"}
		}
		return nil, nil, err
	}
	series = metrics.NewWorker()
	registry := prometheus.NewRegistry()
	registry.MustRegister(series, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8}))
	srv := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("serving metrics", "url", "http://"+ln.Addr().String()+"/metrics")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are served no more", "error", err)
		}
	}()
	return series, func() {
		bound, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(bound) != nil {
			_ = srv.Close() // whoever still reads has had a second
		}
		<-done
	}, nil
}
