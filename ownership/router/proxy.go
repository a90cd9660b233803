package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
)

// DefaultMaxBody is how much of a request's body a Proxy remembers.
const DefaultMaxBody = 1 << 20

// ProxyConfig says what a Proxy forwards, and by what.
type ProxyConfig struct {
	Router   *Router
	Keyspace string

	// Key takes the key out of a request. An error is answered with 400.
	Key func(*http.Request) ([]byte, error)

	// Scheme of endpoints that are a plain host:port: "http" (the default) or
	// "https". An endpoint may also be a URL; its path is not used.
	Scheme string

	// Transport to the owners. nil: one like http.DefaultTransport that uses no
	// proxy of the environment.
	Transport http.RoundTripper

	// MaxBody is how many bytes of a request's body are remembered, so that it
	// can be sent to a second owner. A longer one is streamed like any other,
	// but answered with 503 if the first was not the owner any more. 0:
	// DefaultMaxBody; below 0: none.
	MaxBody int

	// Logger hears of requests that could not be forwarded, at debug level.
	Logger *slog.Logger
}

// Proxy is an http.Handler that forwards each request to the owner of its key.
//
// The owner's side is NotOwner. If it answers "not the owner", the table is
// corrected and the request sent once more, to another address: the one in the
// answer if that is news, else the one that the servers name. So is a request
// whose first address could not be connected to, if the table has another by
// then. There is no third try: the caller gets 503 with Retry-After, as it
// does while a partition has no owner. A request that a Proxy has forwarded
// already is answered with 508.
//
// Hints are believed for a moment. Where a stranger could take over the address
// of an owner, use TLS on the way to the owners.
type Proxy struct {
	cfg     ProxyConfig
	reverse *httputil.ReverseProxy

	forwarded, misdirected, retried, failed atomic.Uint64
}

// ProxyStats counts requests since NewProxy.
type ProxyStats struct {
	Forwarded   uint64 // sent to an owner, tries not counted twice
	Misdirected uint64 // answers "not the owner"
	Retried     uint64 // sent a second time
	Failed      uint64 // answered by the Proxy itself with an error
}

// NewProxy checks the configuration. A Proxy has no goroutine of its own.
func NewProxy(cfg ProxyConfig) (*Proxy, error) {
	switch {
	case cfg.Router == nil:
		return nil, errors.New("proxy: Router: nil, want one whose Run runs")
	case cfg.Keyspace == "":
		return nil, errors.New("proxy: Keyspace: empty, want one of the router's")
	case cfg.Key == nil:
		return nil, errors.New("proxy: Key: nil, want a function that takes the key out of a request")
	case cfg.Scheme != "" && cfg.Scheme != "http" && cfg.Scheme != "https":
		return nil, fmt.Errorf("proxy: Scheme %q: want http or https", cfg.Scheme)
	}
	if cfg.Scheme == "" {
		cfg.Scheme = "http"
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = DefaultMaxBody
	}
	if cfg.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy, t.MaxIdleConnsPerHost = nil, 64
		cfg.Transport = t
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{cfg: cfg}
	p.reverse = &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetXForwarded()
			pr.Out.URL.Scheme, pr.Out.URL.Host = cfg.Scheme, pr.In.Host // the owner's take their place in RoundTrip
		},
		Transport:    roundTripper{p},
		ErrorHandler: p.fail,
		ErrorLog:     slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// Stats returns the present counts.
func (p *Proxy) Stats() ProxyStats {
	return ProxyStats{p.forwarded.Load(), p.misdirected.Load(), p.retried.Load(), p.failed.Load()}
}

// CloseIdleConnections closes the connections to owners that are not in use.
func (p *Proxy) CloseIdleConnections() {
	if t, ok := p.cfg.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

type routeKey struct{}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(HeaderHop) != "" {
		p.fail(w, r, errLoop)
		return
	}
	key, err := p.cfg.Key(r)
	if err != nil {
		p.fail(w, r, &keyError{err})
		return
	}
	at, err := p.cfg.Router.Lookup(p.cfg.Keyspace, key)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.forwarded.Add(1)
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), routeKey{}, at)))
}

// roundTripper sends a request to the owner and, if need be, to another one.
type roundTripper struct{ *Proxy }

// RoundTrip implements http.RoundTripper.
func (p roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	at, _ := r.Context().Value(routeKey{}).(Route)
	var body *recording
	if r.Body != nil && r.Body != http.NoBody {
		body = newRecording(r.Body, p.cfg.MaxBody)
	}
	resp, err := p.try(r, at, body)
	next, err := p.elsewhere(r.Context(), at, resp, err)
	if err != nil {
		return nil, err
	}
	if next.Endpoint == "" {
		return resp, nil
	}
	p.retried.Add(1)
	resp, err = p.try(r, next, body)
	if err == nil && p.refused(resp, next) {
		// Nobody is asked a third time, but the next caller shall know.
		p.cfg.Router.Correct(next.Keyspace, next.Partition, hintOf(resp.Header))
		discard(resp)
		err = &noOwnerFoundError{next.Keyspace, next.Partition, []string{at.Endpoint, next.Endpoint}, nil}
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// try sends the request to one address.
func (p roundTripper) try(r *http.Request, at Route, body *recording) (*http.Response, error) {
	target, err := targetOf(p.cfg.Scheme, at)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = target.Scheme, target.Host
	stamp(out.Header.Set, at)
	if body != nil {
		again, ok := body.begin()
		if !ok {
			return nil, fmt.Errorf("%w, it is now %s", errBodyGone, at.Owner)
		}
		out.Body = again
		// For a connection that turns out to be closed before anything is sent.
		out.GetBody = func() (io.ReadCloser, error) {
			if again, ok := body.begin(); ok {
				return again, nil
			}
			return nil, errBodyGone
		}
	}
	return p.cfg.Transport.RoundTrip(out)
}

// elsewhere looks at how the first try ended. It returns a Route with an
// endpoint if the request shall be sent there.
func (p roundTripper) elsewhere(ctx context.Context, tried Route, resp *http.Response, err error) (Route, error) {
	switch {
	case err == nil && !p.refused(resp, tried):
		return Route{}, nil // an answer, whatever it is
	case err == nil:
		hint := hintOf(resp.Header)
		discard(resp)
		return p.cfg.Router.elsewhere(ctx, tried, hint)
	case unsent(err):
		// Nobody has seen the request. Has the table moved on meanwhile?
		if next, _ := p.cfg.Router.At(tried.Keyspace, tried.Partition); next.Endpoint != "" && next.Endpoint != tried.Endpoint {
			return next, nil
		}
	}
	return Route{}, err
}

// elsewhere corrects the table by the answer of one who is not the owner, and
// returns where else to go: never where the answer came from.
func (r *Router) elsewhere(ctx context.Context, tried Route, hint Hint) (Route, error) {
	r.Correct(tried.Keyspace, tried.Partition, hint)
	next, err := r.At(tried.Keyspace, tried.Partition)
	if err == nil && next.Token == tried.Token {
		// The answer was no news, and the events are not here yet.
		next, err = r.Refresh(ctx, tried.Keyspace, tried.Partition)
	}
	if err != nil || next.Endpoint == "" || next.Endpoint == tried.Endpoint {
		return next, &noOwnerFoundError{tried.Keyspace, tried.Partition, []string{tried.Endpoint}, err}
	}
	return next, nil
}

// refused tells whether a response is a NotOwner's about this partition.
func (p *Proxy) refused(resp *http.Response, at Route) bool {
	mine := resp.StatusCode == http.StatusMisdirectedRequest &&
		resp.Header.Get(HeaderNotOwner) == partitionName(at.Keyspace, at.Partition)
	if mine {
		p.misdirected.Add(1)
	}
	return mine
}

// discard reads what is left of a short answer, so that the connection can be
// used again.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}

// unsent tells whether no connection was made.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// targetOf is where an owner is reached.
func targetOf(scheme string, at Route) (*url.URL, error) {
	raw := at.Endpoint
	if raw != "" && !strings.Contains(raw, "://") {
		raw = scheme + "://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("endpoint %q of worker %s: want host:port or a http URL", at.Endpoint, at.Owner)
	}
	return u, nil
}

var (
	errLoop     = errors.New("this request has been forwarded already: an owner's endpoint leads to a proxy")
	errBodyGone = errors.New("the owner changed, and the request's body is too long to be sent again: send the request again")
)

type keyError struct{ err error }

func (e *keyError) Error() string { return "key of the request: " + e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

// noOwnerFoundError says that nobody who was asked is the owner.
type noOwnerFoundError struct {
	keyspace  string
	partition uint32
	asked     []string
	cause     error // why no other one is known; may be nil
}

func (e *noOwnerFoundError) Error() string {
	text := fmt.Sprintf("partition %s/%d has no owner that could be found: not at %s", e.keyspace, e.partition, strings.Join(e.asked, ", nor at "))
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *noOwnerFoundError) Unwrap() error { return e.cause }

// Is matches ErrNoOwner: it passes.
func (e *noOwnerFoundError) Is(target error) bool { return target == ErrNoOwner }

// fail answers a request that got no answer from an owner.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	p.failed.Add(1)
	p.cfg.Logger.Debug("request not forwarded", "method", r.Method, "path", r.URL.Path, "error", err)
	code := http.StatusBadGateway
	var key *keyError
	switch {
	case errors.As(err, &key):
		code = http.StatusBadRequest
	case errors.Is(err, errLoop):
		code = http.StatusLoopDetected
	case errors.Is(err, ErrNoOwner), errors.Is(err, ErrNotReady), errors.Is(err, ErrUnknownKeyspace), errors.Is(err, errBodyGone), unsent(err):
		w.Header().Set("Retry-After", "1")
		code = http.StatusServiceUnavailable
	}
	http.Error(w, err.Error(), code)
}
