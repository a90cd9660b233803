package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// Limits of the API.
const (
	maxSocketPath = 107     // bytes, the kernel's
	maxBody       = 4 << 10 // bytes
	maxWatches    = 64
	writeWithin   = 5 * time.Second // a watch that does not read is ended
	heartbeat     = 10 * time.Second
)

// api is the HTTP server on a Unix socket that only this user can reach.
type api struct {
	dir, socket string
	server      *http.Server
	stop        context.CancelFunc // ends the watches
	done        chan struct{}
}

// serve starts the API.
func (sh *shared) serve() (*api, error) {
	dir, err := os.MkdirTemp("", "leasehold-")
	if err != nil {
		return nil, fmt.Errorf("make directory for the socket: %w", err)
	}
	a := &api{dir: dir, socket: filepath.Join(dir, "api.sock"), done: make(chan struct{})}
	if n := len(a.socket); n > maxSocketPath {
		err := fmt.Errorf("socket path %q has %d bytes: at most %d: set TMPDIR to a shorter directory", a.socket, n, maxSocketPath)
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ln, err := net.Listen("unix", a.socket) // nobody else can enter the directory
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on the socket: %w", err), os.RemoveAll(dir))
	}
	if err := os.Chmod(a.socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("close the socket to others: %w", err), ln.Close(), os.RemoveAll(dir))
	}
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.server = &http.Server{
		Handler:           sh.handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: writeWithin,
		ReadTimeout:       2 * writeWithin,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(sh.log.Handler(), slog.LevelInfo),
	}
	go func() {
		defer close(a.done)
		_ = a.server.Serve(ln) // ends with close
	}()
	return a, nil
}

// close ends the API and takes its directory away.
func (a *api) close() {
	a.stop()
	_ = a.server.Close()
	<-a.done
	_ = os.RemoveAll(a.dir)
}

// route is a path of the API.
type route struct {
	methods []string
	handle  http.HandlerFunc
}

func (sh *shared) handler() http.Handler {
	watches := make(chan struct{}, maxWatches)
	routes := map[string]route{
		"/v1/leases":  {[]string{"GET"}, sh.serveLeases},
		"/v1/watch":   {[]string{"GET"}, func(w http.ResponseWriter, r *http.Request) { sh.serveWatch(w, r, watches) }},
		"/v1/check":   {[]string{"GET", "POST"}, sh.serveCheck},
		"/v1/ready":   {[]string{"POST"}, sh.serveReady},
		"/v1/release": {[]string{"POST"}, sh.serveRelease},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, ok := routes[r.URL.Path]
		switch {
		case !ok:
			refuse(w, problem{Status: http.StatusNotFound, Field: "path", Value: r.URL.Path, Limit: "/v1/leases, /v1/watch, /v1/check, /v1/ready or /v1/release"})
		case !slices.Contains(to.methods, r.Method):
			w.Header().Set("Allow", strings.Join(to.methods, ", "))
			refuse(w, problem{Status: http.StatusMethodNotAllowed, Field: "method", Value: r.Method, Limit: strings.Join(to.methods, " or ")})
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			to.handle(w, r)
		}
	})
}

// leaseView is a lease in JSON. Tokens are decimal strings, as everywhere.
type leaseView struct {
	Keyspace  string `json:"keyspace"`
	Partition uint32 `json:"partition"`
	Token     string `json:"token"`
	Range     string `json:"range"` // first-last, in hexadecimal, both included
	State     string `json:"state"` // held, draining or ended
	Ready     bool   `json:"ready"`
	Previous  string `json:"previous,omitempty"` // worker id of the owner before
	// ReleaseMs is how long the command has to release it; afterwards it is
	// killed, in a strict keyspace.
	ReleaseMs *int64 `json:"release_ms,omitempty"`
}

// endView is a lease that is over.
type endView struct {
	leaseView
	// Cause is released, expired, revoked, drain_timeout, superseded, evicted or
	// shutdown.
	Cause string `json:"cause"`
	// Confirm asks for a release: until then the partition is not given on.
	Confirm bool `json:"confirm"`
}

// listView is all that is held.
type listView struct {
	Keyspace   string      `json:"keyspace"`
	Partitions uint32      `json:"partitions"`
	Worker     string      `json:"worker"`
	TTLMs      int64       `json:"ttl_ms"`
	EventID    string      `json:"event_id"` // a watch from here misses nothing
	Leases     []leaseView `json:"leases"`
}

// view describes a lease. The caller holds mu, as for the other views.
func (sh *shared) view(h *holding) any { return sh.leaseView(h) }

func (sh *shared) leaseView(h *holding) leaseView {
	l := h.lease
	v := leaseView{Keyspace: l.Keyspace(), Partition: l.Partition(), Token: l.Token().String(), Range: rangeText(l),
		State: h.state, Ready: h.ready, Previous: l.Previous()}
	switch {
	case h.by != 0:
		ms := max((h.by - sh.clock.Now()).Milliseconds(), 0)
		v.ReleaseMs = &ms
	case h.state == stateDraining:
		ms := max(time.Until(l.DrainBy()).Milliseconds(), 0)
		v.ReleaseMs = &ms
	}
	return v
}

func (sh *shared) endView(h *holding, cause string) any {
	v := endView{sh.leaseView(h), cause, !h.over && !sh.cfg.Keyspace.Fenced}
	v.State, v.Ready = stateEnded, false
	return v
}

// list is a view of everything, with the id of the last event that is in it.
func (sh *shared) list() (listView, uint64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	id, _ := sh.feed.head()
	v := listView{Keyspace: sh.cfg.Keyspace.Name, Partitions: sh.cfg.Keyspace.Partitions, Worker: sh.cfg.Worker.ID,
		TTLMs: sh.cfg.Keyspace.TTL.Milliseconds(), EventID: sh.feed.format(id), Leases: []leaseView{}}
	for _, h := range sh.held {
		if !h.over && h.told {
			v.Leases = append(v.Leases, sh.leaseView(h))
		}
	}
	slices.SortFunc(v.Leases, func(a, b leaseView) int { return int(a.Partition) - int(b.Partition) })
	return v, id
}

func (sh *shared) serveLeases(w http.ResponseWriter, r *http.Request) {
	if _, p := readParams(r, sh.cfg.Keyspace.Partitions); p != nil {
		refuse(w, *p)
		return
	}
	v, _ := sh.list()
	answer(w, http.StatusOK, v)
}

// target finds the lease that a request means, or refuses.
func (sh *shared) target(w http.ResponseWriter, r *http.Request, may ...string) (params, *holding, bool) {
	q, p := readParams(r, sh.cfg.Keyspace.Partitions, may...)
	if p != nil {
		refuse(w, *p)
		return q, nil, false
	}
	h, err := sh.find(q.partition, q.token)
	if err != nil {
		gone(w, q, err)
		return q, nil, false
	}
	return q, h, true
}

// gone says that a partition is not held, or not under that token.
func gone(w http.ResponseWriter, q params, err error) {
	field, value := "partition", fmt.Sprint(q.partition)
	if q.token != "" {
		field, value = "token", q.token
	}
	status := http.StatusGone
	if errors.Is(err, worker.ErrUnconfirmed) { // it may be confirmed again
		status = http.StatusServiceUnavailable
	}
	refuse(w, problem{Status: status, Detail: err.Error(), Field: field, Value: value, Limit: "a lease that is held"})
}

func (sh *shared) serveCheck(w http.ResponseWriter, r *http.Request) {
	q, h, ok := sh.target(w, r, paramPartition, paramToken)
	if !ok {
		return
	}
	if err := sh.check(h); err != nil {
		gone(w, q, err)
		return
	}
	sh.answerLease(w, h)
}

func (sh *shared) serveReady(w http.ResponseWriter, r *http.Request) {
	q, h, ok := sh.target(w, r, paramPartition, paramToken+needed)
	if !ok {
		return
	}
	if err := sh.check(h); err != nil {
		gone(w, q, err)
		return
	}
	sh.ready(h)
	sh.answerLease(w, h)
}

func (sh *shared) serveRelease(w http.ResponseWriter, r *http.Request) {
	q, h, ok := sh.target(w, r, paramPartition, paramToken+needed, paramFailed)
	if !ok {
		return
	}
	sh.release(h, q.failed)
	sh.answerLease(w, h)
}

func (sh *shared) answerLease(w http.ResponseWriter, h *holding) {
	sh.mu.Lock()
	v := sh.leaseView(h)
	sh.mu.Unlock()
	answer(w, http.StatusOK, v)
}
