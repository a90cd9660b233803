package httpfence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

func TestStaleRequestGetsTheCurrentToken(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	srv, c := serve(t, httpfence.Middleware(gate)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if s, ok := fence.FromContext(r.Context()); !ok || s.Token != 34 {
			t.Errorf("handler's context carries %v, %v", s, ok)
		}
	})))
	if _, err := send(t, c, "PUT", srv.URL, stamp(34, "wörker, four")); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"PUT", "POST", "DELETE", "HEAD"} { // HEAD: an answer without a body
		resp, err := send(t, c, method, srv.URL, stamp(33, "w2"))
		want := fence.StaleError{Stamp: stamp(33, "w2"), Current: 34, CurrentOwner: "wörker, four", Reason: fence.ReasonStale}
		var stale *fence.StaleError
		if !errors.As(err, &stale) || *stale != want || resp.StatusCode != 409 {
			t.Errorf("%s: status %d, got %+v, want %+v", method, resp.StatusCode, err, want)
		}
		if resp.Header.Get("Leasehold-Current-Token") != "34" {
			t.Errorf("%s: header %q", method, resp.Header.Get("Leasehold-Current-Token"))
		}
	}
	resp, err := send(t, c, "PUT", srv.URL, stamp(34, "liar"))
	if !errors.Is(err, fence.ErrOtherOwner) || resp.StatusCode != 409 || resp.Header.Get(httpfence.HeaderRefused) != "other_owner" {
		t.Errorf("O-73: status %d, reason %q, got %v", resp.StatusCode, resp.Header.Get(httpfence.HeaderRefused), err)
	}
}

func TestProblemBodyHasTheTokenAsAString(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	srv, c := serve(t, httpfence.Middleware(gate)(http.NotFoundHandler()))
	if err := gate.Claim(t.Context(), []fence.Stamp{stamp(fence.MaxToken, "new")}); err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(with(stamp(fence.MaxToken-1, "old")), "PUT", srv.URL, nil)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"status": 409.0, "title": "Conflict", "reason": "stale", "current_token": "9007199254740991", "current_owner": "new",
		"detail": "write to orders/17 token 9007199254740990 of old refused: the resource has seen token 9007199254740991 of new",
	} {
		if body[field] != want {
			t.Errorf("%s is %v, want %v", field, body[field], want)
		}
	}
}

// The handler's own 409 is the handler's.
func TestAnswersOfTheHandlerAreNotRefusals(t *testing.T) {
	srv, c := serve(t, httpfence.Middleware(fence.NewGate(nil, nil))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "order is shipped", http.StatusConflict)
	})))
	resp, err := send(t, c, "PUT", srv.URL, stamp(1, "a"))
	if err != nil || resp.StatusCode != 409 {
		t.Errorf("status %d, got %v", resp.StatusCode, err)
	}
}

type down struct{ err error }

func (d down) Claim(context.Context, []fence.Stamp) error { return d.err }

func TestDurableGuardDownIs503(t *testing.T) {
	var log bytes.Buffer
	gate := fence.NewGate(down{errors.New("dial tcp 10.0.0.9: refused")}, nil)
	h := httpfence.Middleware(gate, httpfence.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	srv, c := serve(t, h(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let through") })))
	resp, err := send(t, c, "PUT", srv.URL, stamp(1, "a"))
	var refused *httpfence.RefusedError
	if !errors.As(err, &refused) || resp.StatusCode != 503 || refused.Reason != "unavailable" || errors.Is(err, fence.ErrStale) {
		t.Errorf("status %d, got %v", resp.StatusCode, err)
	}
	if strings.Contains(err.Error(), "10.0.0.9") || !strings.Contains(log.String(), "10.0.0.9") {
		t.Errorf("the client was told %q, the log %q", err, log.String())
	}
}

func TestAllowHasTheFirstSay(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	h := httpfence.Middleware(gate, httpfence.Allow(func(r *http.Request, s fence.Stamp) error {
		if r.URL.Path != "/"+s.Keyspace {
			return errors.New("this path is not of that keyspace")
		}
		return nil
	}))
	srv, c := serve(t, h(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	if _, err := send(t, c, "PUT", srv.URL+"/orders", stamp(1, "a")); err != nil {
		t.Error(err)
	}
	resp, err := send(t, c, "PUT", srv.URL+"/billing", stamp(9, "a"))
	var refused *httpfence.RefusedError
	if !errors.As(err, &refused) || resp.StatusCode != 403 || refused.Detail != "this path is not of that keyspace" {
		t.Errorf("status %d, got %v", resp.StatusCode, err)
	}
	if m := gate.Seen(stamp(1, "a").Key()); m.Token != 1 {
		t.Errorf("a stamp that was not allowed left the mark %+v", m)
	}
}

// The old owner was stopped in the middle of sending its body: the handler
// reads and reads. The new owner must get through all the same.
func TestPausedSenderDoesNotBlockTheNewOwner(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	entered := make(chan struct{})
	result := make(chan error, 1)
	srv, c := serve(t, httpfence.Middleware(gate)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" {
			return
		}
		close(entered)
		_, err := io.ReadAll(r.Body)
		result <- err
	})))
	body, stopped := io.Pipe()
	defer stopped.Close()
	old := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(with(stamp(33, "w2")), "POST", srv.URL, body)
		resp, err := c.Do(req)
		if err != nil {
			old <- err
			return
		}
		defer resp.Body.Close()
		old <- httpfence.CheckResponse(resp)
	}()
	_, _ = stopped.Write([]byte("half a wri"))
	<-entered
	if _, err := send(t, c, "PUT", srv.URL, stamp(34, "w4")); err != nil {
		t.Errorf("new owner: %v", err)
	}
	if err := <-result; err == nil {
		t.Error("the old handler read a whole body")
	}
	var refused *httpfence.RefusedError
	if err := <-old; !errors.As(err, &refused) || refused.Reason != httpfence.ReasonInterrupted || refused.Status != 503 {
		t.Errorf("the old owner got %v, want interrupted", err)
	}
	if _, err := send(t, c, "PUT", srv.URL, stamp(33, "w2")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the old owner's next try: %v", err)
	}
}

// And one that does not take its answer.
func TestPausedReceiverDoesNotBlockTheNewOwner(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	writing := make(chan struct{})
	srv, c := serve(t, httpfence.Middleware(gate)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" {
			return
		}
		chunk := make([]byte, 64<<10)
		for i := range 10_000 { // far more than any socket holds
			if _, err := w.Write(chunk); err != nil {
				return
			}
			if i == 0 {
				close(writing)
			}
		}
		t.Error("everything was written to a receiver that does not read")
	})))
	req, _ := http.NewRequestWithContext(with(stamp(33, "w2")), "POST", srv.URL, nil)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-writing
	if _, err := send(t, c, "PUT", srv.URL, stamp(34, "w4")); err != nil {
		t.Errorf("new owner: %v", err)
	}
}

func TestPanicAndFlushPassThrough(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	srv, c := serve(t, httpfence.Middleware(gate)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			panic(http.ErrAbortHandler)
		}
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})))
	req, _ := http.NewRequestWithContext(with(stamp(1, "a")), "POST", srv.URL, nil)
	if resp, err := c.Do(req); err == nil {
		resp.Body.Close()
		t.Error("an aborted handler answered")
	}
	if _, err := send(t, c, "PUT", srv.URL, stamp(2, "b")); err != nil {
		t.Error(err)
	}
}
