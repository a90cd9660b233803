package httpfence_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

func TestTransportLeavesTheRequestAlone(t *testing.T) {
	srv, c := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	req, _ := http.NewRequestWithContext(with(stamp(5, "a")), "PUT", srv.URL, nil)
	req.Header.Set("X-Mine", "1")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(req.Header) != 1 {
		t.Errorf("the caller's headers became %v", req.Header)
	}
}

type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

func TestTransportWithoutAStamp(t *testing.T) {
	asked := 0
	srv, c := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	body := &closable{Reader: strings.NewReader("x")}
	req, _ := http.NewRequestWithContext(t.Context(), "PUT", srv.URL, body)
	resp, err := c.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, httpfence.ErrNoStamp) || asked != 0 || !body.closed {
		t.Errorf("got %v after %d requests, body closed: %v", err, asked, body.closed)
	}
	bad := stamp(5, "a\x00b")
	req, _ = http.NewRequestWithContext(with(bad), "PUT", srv.URL, nil)
	if resp, err = c.Do(req); err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, fence.ErrInvalid) || asked != 0 {
		t.Errorf("impossible stamp: got %v after %d requests", err, asked)
	}
	c.Transport.(*httpfence.Transport).PassUnstamped = true
	resp, err = c.Post(srv.URL, "text/plain", nil)
	if err != nil || asked != 1 {
		t.Fatalf("PassUnstamped: got %v after %d requests", err, asked)
	}
	resp.Body.Close()
}

func TestStampFollowsRedirectsWithinTheHostOnly(t *testing.T) {
	var away []string
	other, _ := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		away = append(away, r.Header.Get(httpfence.HeaderToken))
	}))
	for _, code := range []int{307, 308} {
		var arrived []string
		srv, c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/home":
				body, _ := io.ReadAll(r.Body)
				arrived = append(arrived, r.Header.Get(httpfence.HeaderToken)+" "+string(body))
			case "/there-and-away":
				http.Redirect(w, r, "/away", code)
			case "/away":
				http.Redirect(w, r, other.URL+"/home", code)
			default:
				http.Redirect(w, r, "/home", code)
			}
		}))
		do := func(path string) error {
			req, _ := http.NewRequestWithContext(with(stamp(5, "a")), "PUT", srv.URL+path, strings.NewReader("write"))
			resp, err := c.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		if err := do("/start"); err != nil || len(arrived) != 1 || arrived[0] != "5 write" {
			t.Errorf("%d: got %v, arrived %q", code, err, arrived)
		}
		for _, path := range []string{"/away", "/there-and-away"} {
			if err := do(path); !errors.Is(err, httpfence.ErrRedirected) || len(away) > 0 {
				t.Errorf("%d %s: got %v, the other host has seen %q", code, path, err, away)
			}
		}
	}
}
