package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"

	"github.com/leasehold-dev/leasehold/ownership/router"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// maxStep is the most that one request may add or take.
const maxStep = 1_000_000

// server owns partitions and answers requests for the tenants in them.
type server struct {
	id       string
	keyspace string
	store    *store
	router   *router.Router // tells which partition a tenant belongs to, and whose it is
	held     router.Holdings
	log      *slog.Logger

	mu         sync.Mutex // guards partitions
	partitions map[uint32]*partition
}

// handle is the worker.Handler: it opens the partition to requests while the
// lease lasts. In a planned move it answers those that are under way first.
func (s *server) handle(ctx context.Context, l *worker.Lease) error {
	p := newPartition(ctx, s.store, l.Stamp(), l.TTL(), l.Check)
	s.mu.Lock()
	s.partitions[l.Partition()] = p
	s.mu.Unlock()
	remove := s.held.Add(l.Keyspace(), l.Partition(), uint64(l.Token()), l.Check)
	l.Ready()

	var err error
	select {
	case <-l.Draining():
	case <-ctx.Done():
		err = context.Cause(ctx)
	case err = <-p.stale: // there is a newer owner
		s.log.Warn("refused", "partition", l.Partition(), "token", l.Token(), "cause", err)
	}
	remove()
	s.mu.Lock()
	delete(s.partitions, l.Partition())
	s.mu.Unlock()
	p.close()
	return err
}

// handler answers requests; those that a front has sent to the wrong process
// are sent on by the middleware.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tenants/{tenant}/add", s.add)
	mux.HandleFunc("GET /tenants/{tenant}", s.get)
	return router.NotOwner(&s.held, s.router, mux)
}

// reply is the body of an answer.
type reply struct {
	Tenant   string `json:"tenant"`
	Value    int64  `json:"value"`
	Replayed bool   `json:"replayed,omitempty"` // this request was carried out before
	Owner    string `json:"owner"`
}

func (s *server) add(w http.ResponseWriter, req *http.Request) {
	n, err := strconv.ParseInt(req.URL.Query().Get("n"), 10, 64)
	request := req.Header.Get("Request-Id")
	if err != nil || n < -maxStep || n > maxStep || request == "" || len(request) > 100 {
		http.Error(w, fmt.Sprintf("want n of -%d to %d, and a header Request-Id of 1 to 100 bytes, the same in each retry", maxStep, maxStep), http.StatusBadRequest)
		return
	}
	s.answer(w, req, func(ctx context.Context, a *actor, r *reply) (err error) {
		r.Value, r.Replayed, err = a.add(ctx, request, n)
		return err
	})
}

func (s *server) get(w http.ResponseWriter, req *http.Request) {
	s.answer(w, req, func(ctx context.Context, a *actor, r *reply) (err error) {
		r.Value, err = a.get(ctx)
		return err
	})
}

func (s *server) answer(w http.ResponseWriter, req *http.Request, fn func(ctx context.Context, a *actor, r *reply) error) {
	r := reply{Tenant: req.PathValue("tenant"), Owner: s.id}
	err := s.find(req.Context(), &r, fn)
	switch {
	case errors.Is(err, errNotOwner):
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
	case err != nil:
		s.log.Warn("request failed", "tenant", r.Tenant, "cause", err)
		http.Error(w, "try again, with the same Request-Id", http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r) // the client has gone: it will ask again
	}
}

// find runs fn on the tenant's actor. It looks at the lease after fn as well: a
// value that was read while this process was paused is not given away.
func (s *server) find(ctx context.Context, r *reply, fn func(ctx context.Context, a *actor, r *reply) error) error {
	number, err := s.router.Partition(s.keyspace, []byte(r.Tenant))
	if err != nil {
		return err
	}
	s.mu.Lock()
	p := s.partitions[number]
	s.mu.Unlock()
	if p == nil {
		return errNotOwner
	}
	return p.do(ctx, r.Tenant, func(ctx context.Context, a *actor) error {
		if err := fn(ctx, a, r); err != nil {
			return err
		}
		return p.check()
	})
}
