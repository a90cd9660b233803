package httpfence

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// ErrNoStamp is returned by Transport for a request whose context carries no
// stamp.
var ErrNoStamp = errors.New("request context carries no fencing stamp")

// ErrRedirected is returned by Transport when a stamped request is redirected
// to another host, or from https to http. The other host may not be guarded at
// all, so the request is not sent there, with or without the stamp.
var ErrRedirected = errors.New("stamped request redirected to another host")

// Transport stamps requests with what their context carries (fence.NewContext;
// the contexts of worker handlers do). It never changes the request it is
// given. The stamp goes along on redirects within the host. It is safe for
// concurrent use.
//
// A request may be sent twice, by a redirect or a retry of the Base: the
// server accepts a lease's token as often as it comes, so repeating must be
// harmless by itself.
type Transport struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper

	// PassUnstamped sends requests without a stamp as they are. By default
	// they fail with ErrNoStamp, because forgetting the context of the lease
	// is a mistake that only shows when it is too late. A stamp that was set
	// with SetStamp is then left alone.
	PassUnstamped bool
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	s, ok := fence.FromContext(req.Context())
	if !ok && t.PassUnstamped {
		return base.RoundTrip(req)
	}
	stamped, err := stamp(req, s, ok)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as every RoundTripper must
		}
		return nil, fmt.Errorf("stamp request: %w", err)
	}
	return base.RoundTrip(stamped)
}

func stamp(req *http.Request, s fence.Stamp, ok bool) (*http.Request, error) {
	if !ok {
		return nil, ErrNoStamp
	}
	if err := leaves(req); err != nil {
		return nil, err
	}
	stamped := req.Clone(req.Context())
	return stamped, SetStamp(stamped.Header, s)
}

// leaves refuses a request that redirects have led away from the host it was
// first sent to.
func leaves(req *http.Request) error {
	for r := req; r.Response != nil && r.Response.Request != nil; {
		from := r.Response.Request
		if hostPort(from.URL) != hostPort(r.URL) && !upgrade(from.URL, r.URL) || from.URL.Scheme == "https" && r.URL.Scheme != "https" {
			return fmt.Errorf("%w: from %s://%s", ErrRedirected, from.URL.Scheme, from.URL.Host)
		}
		r = from
	}
	return nil
}

// upgrade is the usual redirect from http to https on their default ports.
func upgrade(from, to *url.URL) bool {
	return from.Scheme == "http" && to.Scheme == "https" && from.Hostname() == to.Hostname() && from.Port() == "" && to.Port() == ""
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
