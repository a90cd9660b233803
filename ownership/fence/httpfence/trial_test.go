package httpfence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/fencetest"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

// endpoint is a resource behind HTTP: a journal of stamps. A write is a PUT
// whose body is sent in two parts, so that its handler has been let in and
// waits while the trial does other things.
type endpoint struct {
	guarded bool
	durable fence.Guard // nil: never restarted

	mu      sync.Mutex // guards the rest
	entered map[string]chan struct{}
	journal []fence.Stamp
	srv     *httptest.Server
	base    *http.Transport
	writes  int
}

func newEndpoint(guarded bool, durable fence.Guard) *endpoint {
	e := &endpoint{guarded: guarded, durable: durable, entered: make(map[string]chan struct{}), base: &http.Transport{}}
	e.srv = e.start()
	return e
}

func (e *endpoint) start() *httptest.Server {
	gate := fence.NewGate(e.durable, nil)
	mux := http.NewServeMux()
	if e.guarded {
		mux.Handle("POST /claim", httpfence.ClaimHandler(gate, quiet))
		mux.Handle("PUT /journal", httpfence.Middleware(gate, quiet)(http.HandlerFunc(e.write)))
	} else {
		mux.HandleFunc("PUT /journal", e.write)
	}
	return httptest.NewServer(mux)
}

func (e *endpoint) write(w http.ResponseWriter, r *http.Request) {
	s, err := httpfence.ParseStamp(r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	e.mu.Lock()
	close(e.entered[r.URL.Query().Get("id")])
	e.mu.Unlock()
	if _, err := io.ReadAll(r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.journal = append(e.journal, s)
}

func (e *endpoint) url(path string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.srv.URL + path
}

// Claim implements fencetest.Resource.
func (e *endpoint) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if !e.guarded {
		return nil
	}
	g, err := httpfence.NewGuard(e.url("/claim"), &http.Client{Transport: e.base})
	if err != nil {
		return err
	}
	return g.Claim(ctx, stamps)
}

// put is a request by hand: its head has been sent, its body has not.
type put struct {
	e      *endpoint
	conn   net.Conn
	result chan error
}

// Begin implements fencetest.Resource.
func (e *endpoint) Begin(_ context.Context, s fence.Stamp) (fencetest.Write, error) {
	entered := make(chan struct{})
	e.mu.Lock()
	e.writes++
	id := fmt.Sprint(e.writes)
	e.entered[id] = entered
	addr := e.srv.Listener.Addr().String()
	e.mu.Unlock()
	req, err := http.NewRequest("PUT", "http://"+addr+"/journal?id="+id, nil)
	if err != nil {
		return nil, err
	}
	if err := httpfence.SetStamp(req.Header, s); err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &put{e: e, conn: conn, result: make(chan error, 1)}
	go func() {
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 4\r\n", req.URL.RequestURI(), addr)
		_ = req.Header.Write(conn)
		_, _ = io.WriteString(conn, "\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), req)
		if err == nil {
			defer resp.Body.Close()
			err = httpfence.CheckResponse(resp)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
		}
		p.result <- err
	}()
	select {
	case <-entered:
		return p, nil
	case err := <-p.result:
		if err == nil {
			err = errors.New("answered before the body was sent")
		}
		return nil, err
	}
}

func (p *put) Commit(context.Context) error {
	_, _ = io.WriteString(p.conn, "rest")
	return <-p.result
}

func (p *put) Crash() {
	_ = p.conn.Close()
	<-p.result
	if p.e.durable != nil {
		p.e.restart()
	}
}

// restart is a crash of the server: its requests die with it, and a new
// process starts with an empty memory.
func (e *endpoint) restart() {
	e.mu.Lock()
	old := e.srv
	e.mu.Unlock()
	old.CloseClientConnections()
	old.Close() // waits for the handlers, which read from closed connections
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.srv == old {
		e.srv = e.start()
	}
}

// Accepted implements fencetest.Resource.
func (e *endpoint) Accepted(context.Context) ([]fence.Stamp, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]fence.Stamp(nil), e.journal...), nil
}

// Close ends a trial.
func (e *endpoint) Close() error {
	e.base.CloseIdleConnections()
	e.srv.Close()
	return nil
}

// 1,000 trials: go test ./ownership/fence/httpfence -args -fencetest.trials=1000
func TestTrials(t *testing.T) {
	report := fencetest.Run(t, fencetest.Options{Trials: 400, Parallel: 4}, func(int) (fencetest.Resource, error) {
		return newEndpoint(true, nil), nil
	})
	if !report.OK() {
		t.Errorf("%s\n%s", report, report.First)
	}
}

// The server crashes as well, whenever a writer does, and has only its durable
// guard to remember by.
func TestTrialsWithARestartedServer(t *testing.T) {
	report := fencetest.Run(t, fencetest.Options{Trials: 200, Parallel: 4}, func(int) (fencetest.Resource, error) {
		return newEndpoint(true, fence.NewMemory(nil)), nil
	})
	if !report.OK() || report.Crashed == 0 {
		t.Errorf("%s\n%s", report, report.First)
	}
}

func TestTrialsFindAnUnguardedEndpoint(t *testing.T) {
	report := fencetest.Run(t, fencetest.Options{Trials: 60, Parallel: 4}, func(int) (fencetest.Resource, error) {
		return newEndpoint(false, nil), nil
	})
	if report.Stale == 0 {
		t.Errorf("no stale write without a guard: the trials prove nothing: %s", report)
	}
}

// And a gate that remembers nothing over a restart is found as well. It takes a
// crash between a claim and an older write, which a hundred trials may not have.
func TestTrialsFindAForgetfulServer(t *testing.T) {
	for seed := range uint64(20) {
		report := fencetest.Run(t, fencetest.Options{Trials: 100, Parallel: 4, Seed: 1 + seed}, func(int) (fencetest.Resource, error) {
			return newEndpoint(true, forgetful{}), nil
		})
		if report.Stale > 0 {
			return
		}
	}
	t.Error("no stale write in 2,000 trials although restarts forget")
}

type forgetful struct{}

func (forgetful) Claim(context.Context, []fence.Stamp) error { return nil }
