package router

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// owner is a worker's process with a real HTTP server.
type owner struct {
	name string
	held Holdings
	hits atomic.Int64 // requests that reached the address
	srv  *httptest.Server

	mu     sync.Mutex // guards bodies
	bodies []string   // of the requests served
}

// at serves on an address, "" for a free one. where names the owner in
// refusals; nil: nobody is named.
func (o *owner) at(t *testing.T, addr string, where Locator) string {
	t.Helper()
	h := NotOwner(&o.held, where, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s: read body: %v", o.name, err)
		}
		o.mu.Lock()
		o.bodies = append(o.bodies, string(body))
		o.mu.Unlock()
		fmt.Fprintf(w, "%s %s/%s token %s hop %s host %s", o.name, r.Header.Get(HeaderKeyspace), r.Header.Get(HeaderPartition), r.Header.Get(HeaderToken), r.Header.Get(HeaderHop), r.Host)
	}))
	o.srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.hits.Add(1)
		h.ServeHTTP(w, r)
	}))
	if addr != "" {
		var err error
		if o.srv.Listener, err = net.Listen("tcp", addr); err != nil {
			t.Fatal(err)
		}
	}
	o.srv.Start()
	t.Cleanup(o.srv.Close)
	return o.srv.Listener.Addr().String()
}

func (o *owner) served() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bodies
}

// proxied is a proxy over a table of one partition, with its own clients.
func proxied(t *testing.T, r *Router, change func(*ProxyConfig)) (*Proxy, *httptest.Server) {
	t.Helper()
	cfg := ProxyConfig{Router: r, Keyspace: "orders", Key: func(r *http.Request) ([]byte, error) {
		if r.URL.Query().Get("bad") != "" {
			return nil, errors.New("no key in it")
		}
		return []byte(r.URL.Path), nil
	}}
	if change != nil {
		change(&cfg)
	}
	p, err := NewProxy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(p)
	t.Cleanup(func() { srv.Close(); p.CloseIdleConnections() })
	return p, srv
}

func send(t *testing.T, srv *httptest.Server, body io.Reader) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/k", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), resp.Header
}

// give makes a table say that an owner holds the one partition.
func give(r *Router, name, endpoint string, token uint64) {
	ev := grant(0, token, token, token)
	ev.Worker, ev.Endpoint = name, endpoint
	r.mu.Lock()
	defer r.mu.Unlock()
	r.eventLocked(r.tableLocked("orders"), ev)
	r.showLocked()
}

func TestProxyForwardsToTheOwner(t *testing.T) {
	r, _ := filled(t, 1)
	a := &owner{name: "a"}
	give(r, "a", a.at(t, "", nil), 2000)
	a.held.Add("orders", 0, 2000, nil)
	p, srv := proxied(t, r, nil)
	code, body, _ := send(t, srv, strings.NewReader("hello"))
	if want := "a orders/0 token 2000 hop 1 host " + strings.TrimPrefix(srv.URL, "http://"); code != 200 || body != want {
		t.Errorf("%d %q, want %q", code, body, want)
	}
	if s := p.Stats(); s != (ProxyStats{Forwarded: 1}) {
		t.Errorf("stats %+v", s)
	}
}

// O-67 in one process: the owner's old address belongs to somebody else, to
// whom the proxy even has a connection. B says so, with or without a name; the
// request succeeds with one more hop, and X is not asked again.
func TestRetryNeverGoesToTheSameWrongAddress(t *testing.T) {
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprintf("named=%v", named), func(t *testing.T) {
			f := newFake(t, 1)
			r := f.router(Config{})
			a, b := &owner{name: "a"}, &owner{name: "b"}
			x := a.at(t, "", nil)
			var token uint64
			f.do(func() { f.openLocked(1, "a", x); f.createLocked("orders", 1); token = f.grantLocked("orders", 0, 1) })
			poll(t, func() bool { at, _ := r.At("orders", 0); return at.Owner == "a" })
			a.held.Add("orders", 0, token, nil)
			p, srv := proxied(t, r, nil)
			if code, body, _ := send(t, srv, nil); code != 200 || !strings.HasPrefix(body, "a ") {
				t.Fatalf("%d %q", code, body)
			}
			// From now on no event reaches the router.
			f.stall()
			a.srv.Close()
			p.CloseIdleConnections() // as soon as it notices
			where, _ := filled(t, 1)
			where.highest = token
			locator := Locator(where)
			if !named {
				locator = nil
			}
			b.at(t, x, locator)
			a2 := &owner{name: "a2"}
			y := a2.at(t, "", nil)
			f.do(func() { f.openLocked(2, "a2", y); token = f.moveLocked("orders", 0, 2) })
			a2.held.Add("orders", 0, token, nil)
			where.Correct("orders", 0, Hint{"a2", y, token})

			code, body, _ := send(t, srv, strings.NewReader("payload"))
			if code != 200 || !strings.HasPrefix(body, "a2 ") || b.hits.Load() != 1 || a2.hits.Load() != 1 {
				t.Errorf("%d %q; b was asked %d times, a2 %d", code, body, b.hits.Load(), a2.hits.Load())
			}
			if got := a2.served(); len(got) != 1 || got[0] != "payload" || len(b.served()) != 0 {
				t.Errorf("served %q and by b %q", got, b.served())
			}
			if asked := f.count("partition"); asked != map[bool]int{true: 0, false: 1}[named] {
				t.Errorf("the servers were asked %d times", asked)
			}
			send(t, srv, nil)
			if b.hits.Load() != 1 || p.Stats().Retried != 1 {
				t.Errorf("b was asked %d times in the end, stats %+v", b.hits.Load(), p.Stats())
			}
		})
	}
}

// Whoever is named, if it is the address that has just refused it is not tried
// again: the caller is told to come back.
func TestNobodyElseIsKnown(t *testing.T) {
	f := newFake(t, 1)
	r := f.router(Config{})
	b := &owner{name: "b"}
	x := b.at(t, "", nil)
	f.do(func() { f.openLocked(1, "a", x); f.createLocked("orders", 1); f.grantLocked("orders", 0, 1) })
	poll(t, func() bool { at, _ := r.At("orders", 0); return at.Owner == "a" })
	p, srv := proxied(t, r, nil)
	code, body, head := send(t, srv, strings.NewReader("x"))
	if code != 503 || head.Get("Retry-After") != "1" || b.hits.Load() != 1 || !strings.Contains(body, x) {
		t.Errorf("%d %q %v, asked %d times", code, body, head, b.hits.Load())
	}
	if s := p.Stats(); s != (ProxyStats{Forwarded: 1, Misdirected: 1, Failed: 1}) {
		t.Errorf("stats %+v", s)
	}
}

// Two wrong addresses that name each other: two tries, and no third.
func TestThereIsNoThirdTry(t *testing.T) {
	r, _ := filled(t, 1)
	other := [2]*Router{}
	owners := [2]*owner{{name: "a"}, {name: "b"}}
	var at [2]string
	for i := range 2 {
		other[i], _ = filled(t, 1)
		at[i] = owners[i].at(t, "", other[i])
	}
	give(other[0], "b", at[1], 2001)
	give(other[1], "a", at[0], 2002)
	give(r, "a", at[0], 2000)
	p, srv := proxied(t, r, nil)
	code, _, head := send(t, srv, nil)
	if code != 503 || head.Get("Retry-After") == "" || owners[0].hits.Load() != 1 || owners[1].hits.Load() != 1 {
		t.Errorf("%d, asked %d and %d times", code, owners[0].hits.Load(), owners[1].hits.Load())
	}
	if s := p.Stats(); s.Misdirected != 2 || s.Retried != 1 {
		t.Errorf("stats %+v", s)
	}
	if route, _ := r.At("orders", 0); route.Token != 2002 {
		t.Errorf("the second answer was not heeded: %+v", route)
	}
}

// refusing answers "not the owner" after it has read some of the body.
type refusing struct {
	read int
	hint Hint
}

func (x refusing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.CopyN(io.Discard, r.Body, int64(x.read))
	w.Header().Set(HeaderNotOwner, "orders/0")
	w.Header().Set(HeaderOwner, x.hint.Owner)
	w.Header().Set(HeaderOwnerEndpoint, x.hint.Endpoint)
	w.Header().Set(HeaderOwnerToken, fmt.Sprint(x.hint.Token))
	w.WriteHeader(http.StatusMisdirectedRequest)
}

// A body goes to the second owner whole, however much the first has read, or
// the request fails as one that can be sent again.
func TestBodyIsSentAgainWholeOrNotAtAll(t *testing.T) {
	for _, c := range []struct {
		size, limit int
		code        int
	}{
		{0, 0, 200}, {1, 0, 200}, {100_000, 0, 200}, {DefaultMaxBody, 0, 200}, {1000, 1000, 200},
		{1001, 1000, 503}, {1, -1, 503}, {0, -1, 200},
	} {
		for _, read := range []int{0, 10, 1 << 30} {
			r, _ := filled(t, 1)
			b := &owner{name: "b"}
			y := b.at(t, "", nil)
			b.held.Add("orders", 0, 3000, nil)
			first := httptest.NewServer(refusing{read, Hint{"b", y, 3000}})
			give(r, "a", first.Listener.Addr().String(), 2000)
			_, srv := proxied(t, r, func(cfg *ProxyConfig) { cfg.MaxBody = c.limit })
			payload := bytes.Repeat([]byte("0123456789abcdef"), c.size/16+1)[:c.size]
			code, text, head := send(t, srv, bytes.NewReader(payload))
			first.Close()
			// Where the first did not read it, less of it may have been sent.
			if code != c.code && (c.code != 503 || code != 200) {
				t.Errorf("size %d, limit %d, read %d: %d %s", c.size, c.limit, read, code, text)
			}
			switch got := b.served(); {
			case code == 200 && (len(got) != 1 || got[0] != string(payload)):
				t.Errorf("size %d, read %d: the second owner got %d bodies, of %d requests, the first of %d bytes", c.size, read, len(got), b.hits.Load(), len(slices.Concat(got, []string{""})[0]))
			case code != 200 && (len(got) != 0 || head.Get("Retry-After") == ""):
				t.Errorf("size %d, read %d: %d, and the second owner got %d bodies", c.size, read, code, len(got))
			}
		}
	}
}

// The owner is gone, its address refuses, and the table knows another by now.
func TestRefusedConnectionGoesElsewhere(t *testing.T) {
	r, _ := filled(t, 1)
	b := &owner{name: "b"}
	y := b.at(t, "", nil)
	b.held.Add("orders", 0, 3000, nil)
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	give(r, "a", dead.Listener.Addr().String(), 2000)
	var p *Proxy
	p, srv := proxied(t, r, func(cfg *ProxyConfig) {
		base := http.DefaultTransport.(*http.Transport).Clone()
		t.Cleanup(base.CloseIdleConnections)
		cfg.Transport = roundTripFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err != nil {
				give(r, "b", y, 3000)
			}
			return resp, err
		})
	})
	code, body, _ := send(t, srv, strings.NewReader("payload"))
	if code != 200 || !strings.HasPrefix(body, "b ") || p.Stats().Retried != 1 {
		t.Errorf("%d %q", code, body)
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestProxyAnswersByItself(t *testing.T) {
	r, tab := filled(t, 1)
	empty, err := New(Config{Servers: "127.0.0.1:1", Keyspaces: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	nobody, nt := filled(t, 1)
	nt.put(news{partition: 0, index: 99, token: 5000, reason: "its owner's session has run out"})
	nt.show()
	odd, _ := filled(t, 1)
	give(odd, "a", "ftp://x", 3000)
	_ = tab
	for _, c := range []struct {
		name   string
		r      *Router
		change func(*http.Request)
		code   int
		retry  bool
		say    string
	}{
		{"bad key", r, func(r *http.Request) { r.URL.RawQuery = "bad=1" }, 400, false, "no key in it"},
		{"loop", r, func(r *http.Request) { r.Header.Set(HeaderHop, "1") }, 508, false, "forwarded already"},
		{"not ready", empty, nil, 503, true, "no table"},
		{"no owner", nobody, nil, 503, true, "run out"},
		{"no use of the endpoint", odd, nil, 502, false, "ftp://x"},
	} {
		p, _ := proxied(t, c.r, nil)
		req := httptest.NewRequest(http.MethodGet, "http://proxy/k", nil)
		if c.change != nil {
			c.change(req)
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, req)
		if w.Code != c.code || (w.Header().Get("Retry-After") != "") != c.retry || !strings.Contains(w.Body.String(), c.say) {
			t.Errorf("%s: %d %v %s", c.name, w.Code, w.Header(), w.Body)
		}
	}
	for _, cfg := range []ProxyConfig{{}, {Router: r}, {Router: r, Keyspace: "orders"}, {Router: r, Keyspace: "orders", Key: func(*http.Request) ([]byte, error) { return nil, nil }, Scheme: "gopher"}} {
		if _, err := NewProxy(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// What an owner's side makes of odd headers, and of leases it knows to be over.
func TestNotOwnerJudges(t *testing.T) {
	var held Holdings
	held.Add("orders", 1, 50, nil)
	where, _ := filled(t, 8)
	h := NotOwner(&held, where, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, c := range []struct {
		name, keyspace, partition, token string
		code                             int
	}{
		{"not routed", "", "", "", 204},
		{"held", "orders", "1", "50", 204},
		{"held, the sender is behind", "orders", "1", "49", 204},
		{"held, the sender does not know", "orders", "1", "", 204},
		{"held, and the sender knows a later lease", "orders", "1", "51", 421},
		{"not held", "orders", "2", "50", 421},
		{"another keyspace", "bills", "1", "50", 421},
		{"no number", "orders", "one", "50", 400},
		{"below 0", "orders", "-1", "50", 400},
		{"too much", "orders", "4294967296", "50", 400},
		{"no keyspace", "", "1", "50", 400},
		{"odd token", "orders", "1", "0x32", 400},
		{"token above all", "orders", "1", "9007199254740992", 400},
	} {
		req := httptest.NewRequest(http.MethodGet, "http://owner/k", nil)
		for k, v := range map[string]string{HeaderKeyspace: c.keyspace, HeaderPartition: c.partition, HeaderToken: c.token} {
			if v != "" {
				req.Header.Set(k, v)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != c.code {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		if named := w.Header().Get(HeaderOwner) != ""; w.Code == 421 && named != (c.keyspace == "orders") {
			t.Errorf("%s: headers %v", c.name, w.Header())
		}
	}
}

// poll waits for something of the real world.
func poll(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it has not come to that within 30 s")
		}
	}
}
