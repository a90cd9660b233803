package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	drain = "/leasehold.v1.WorkerService/DrainWorker"
	list  = "/leasehold.v1.WorkerService/ListWorkers"
	put   = "/v3/kv/put"
)

// chromium is what a browser sends with a request of the server's own page.
var chromium = map[string]string{"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}

func with(more ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range append([]map[string]string{chromium}, more...) {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// The table of who may do what. An empty want: let through.
func TestGuard(t *testing.T) {
	origin := func(o string) map[string]string { return map[string]string{"Origin": o} }
	site := func(s string) map[string]string { return map[string]string{"Sec-Fetch-Site": s} }
	operate := Guard{Loopback: true, Operator: func(*http.Request) bool { return true }}
	read := Guard{Loopback: true}
	open := Guard{}
	for _, c := range []struct {
		what         string
		guard        Guard
		method, path string
		host         string
		headers      map[string]string
		want         string
	}{
		{"the console drains", operate, "POST", drain, "127.0.0.1:7480", with(origin("http://127.0.0.1:7480")), ""},
		{"curl drains", operate, "POST", drain, "127.0.0.1:7480", nil, ""},
		{"curl drains in read mode", read, "POST", drain, "127.0.0.1:7480", nil, ""},
		{"the Go client, in read mode", read, "POST", drain, "127.0.0.1:7480", map[string]string{"User-Agent": "connect-go/1.19"}, ""},
		{"the console drains in read mode", read, "POST", drain, "127.0.0.1:7480", with(), "for reading"},
		{"an old browser drains in read mode", read, "POST", drain, "127.0.0.1:7480", origin("http://127.0.0.1:7480"), "for reading"},
		{"the console lists in read mode", read, "POST", list, "127.0.0.1:7480", with(), ""},
		{"the console writes a key in read mode", read, "POST", put, "127.0.0.1:7480", with(), "for reading"},
		{"a path that looks like reading", read, "POST", "/v3/GetAnything", "127.0.0.1:7480", with(), "for reading"},

		{"another site drains", operate, "POST", drain, "127.0.0.1:7480", with(site("cross-site"), origin("https://evil.example")), "evil.example"},
		{"another port of this machine drains", operate, "POST", drain, "127.0.0.1:7480", with(site("same-site"), origin("http://127.0.0.1:3000")), "127.0.0.1:3000"},
		{"another site lists", operate, "POST", list, "127.0.0.1:7480", with(site("cross-site"), origin("https://evil.example")), "evil.example"},
		{"another site writes a key", operate, "POST", put, "127.0.0.1:7480", with(site("cross-site")), "another site"},
		{"a form of another site, old browser", operate, "POST", drain, "127.0.0.1:7480", origin("https://evil.example"), "evil.example"},
		{"a page without an origin", operate, "POST", drain, "127.0.0.1:7480", origin("null"), "another site"},
		{"another site off loopback", open, "POST", list, "10.0.0.1:7480", with(site("cross-site")), "another site"},
		{"a link from another site", operate, "GET", "/ui/", "127.0.0.1:7480", with(site("cross-site")), ""},

		{"a rebound name drains", operate, "POST", drain, "evil.example:7480", with(origin("http://evil.example:7480")), "evil.example"},
		{"a rebound name reads the feed", operate, "GET", "/ui/feed", "evil.example:7480", nil, "evil.example"},
		{"a rebound name reads the metrics", operate, "GET", "/metrics", "evil.example:7480", map[string]string{"User-Agent": chromium["User-Agent"]}, "evil.example"},
		{"a rebound name asks with HEAD", operate, "HEAD", "/ui/", "evil.example:7480", nil, ""},
		{"a name that begins like one", operate, "GET", "/ui/", "localhost.evil.example:7480", nil, "localhost.evil.example"},
		{"an address of another machine", operate, "GET", "/ui/", "192.0.2.7:7480", nil, "192.0.2.7"},
		{"localhost", operate, "GET", "/ui/", "localhost:7480", with(), ""},
		{"LOCALHOST.", operate, "GET", "/ui/", "LOCALHOST.", with(), ""},
		{"a name below localhost", operate, "GET", "/ui/", "leasehold.localhost:7480", with(), ""},
		{"IPv6", operate, "GET", "/ui/", "[::1]:7480", with(), ""},
		{"Prometheus by another name", operate, "GET", "/metrics", "s1.internal:7480", map[string]string{"User-Agent": "Prometheus/2.42"}, ""},
		{"any name off loopback", open, "GET", "/ui/", "s1.example:7480", with(), ""},
	} {
		passed := false
		h := c.guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
		r := httptest.NewRequest(c.method, c.path, http.NoBody)
		r.Host = c.host
		r.Header.Del("User-Agent")
		for k, v := range c.headers {
			r.Header.Set(k, v)
		}
		out := httptest.NewRecorder()
		h.ServeHTTP(out, r)
		switch {
		case c.method == "HEAD":
			if passed || out.Code != http.StatusForbidden {
				t.Errorf("%s: let through", c.what)
			}
		case c.want == "" && !passed:
			t.Errorf("%s: %d %s", c.what, out.Code, out.Body)
		case c.want != "" && (passed || out.Code != http.StatusForbidden || !strings.Contains(out.Body.String(), c.want)):
			t.Errorf("%s: passed %v, %d %s; want %q", c.what, passed, out.Code, out.Body, c.want)
		case c.want != "" && c.method == "POST" && !strings.Contains(out.Body.String(), `"code":"permission_denied"`):
			t.Errorf("%s: %s is not what the API says", c.what, out.Body)
		}
	}
}

// Every call of the API is known to only read, or needs an operator. Whoever adds
// one looks here.
func TestWhatChanges(t *testing.T) {
	reads := map[string]bool{
		"GetStatus": true, "GetHealth": true, "ListPeers": true,
		"GetKeyspace": true, "ListKeyspaces": true,
		"ListPartitions": true, "GetPartition": true, "Locate": true, "ExplainPartition": true,
		"ListWorkers": true, "ListEvents": true, "WatchEvents": true,
		"GetRing": true, "SimulateRing": true, "ListCredentials": true, "GetKeyring": true,
	}
	services := pb.File_ownership_leaseholdv1_leasehold_proto.Services()
	seen := 0
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			m := services.Get(i).Methods().Get(j)
			r := httptest.NewRequest(http.MethodPost, "/"+string(services.Get(i).FullName())+"/"+string(m.Name()), http.NoBody)
			if got := mayChange(r); got == reads[string(m.Name())] {
				t.Errorf("%s may change something: %v", m.FullName(), got)
			}
			if reads[string(m.Name())] {
				seen++
			}
		}
	}
	if seen != len(reads) {
		t.Errorf("%d of %d calls that read exist", seen, len(reads))
	}
}
