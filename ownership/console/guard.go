package console

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
)

// Guard stands before everything on an HTTP port and keeps pages of other sites
// from using the browser of somebody who can reach it:
//
//   - A request that is no GET, made by a page of another origin, is refused.
//   - On a loopback port, a browser that knows it by another name than a loopback
//     one is refused: a name that a stranger's DNS has turned round to 127.0.0.1
//     would make the stranger's page one of the same origin.
//   - A browser's request that may change something needs an operator.
//
// Programs that are no browsers send no Origin and no Sec-Fetch-Site, and are not
// concerned: what they may do is for credentials to say.
type Guard struct {
	// Loopback says that the port can be reached from this machine only.
	Loopback bool
	// Operator tells whether who sent a browser's request may change something.
	// nil: nobody may.
	Operator func(*http.Request) bool
}

// Wrap puts the guard before next.
func (g Guard) Wrap(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		browser := r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != ""
		// Over plain HTTP under a strange name, a browser's GET has neither header.
		looks := browser || strings.HasPrefix(r.UserAgent(), "Mozilla/") || strings.HasPrefix(r.URL.Path, Prefix)
		if g.Loopback && looks && !loopbackName(r.Host) {
			refuse(w, r, fmt.Sprintf("host %q: this port is for this machine only, want localhost or 127.0.0.1 in the address", r.Host))
			return
		}
		if err := origins.Check(r); err != nil {
			refuse(w, r, fmt.Sprintf("a page of %s may not do this: only the server's own console may", origin(r)))
			return
		}
		if browser && mayChange(r) && (g.Operator == nil || !g.Operator(r)) {
			refuse(w, r, "the console is for reading here: use the command line, or start the server with --console operate")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func origin(r *http.Request) string {
	if o := r.Header.Get("Origin"); o != "" && o != "null" {
		return o
	}
	return "another site"
}

// refuse answers the way the API does where a program may read it.
func refuse(w http.ResponseWriter, r *http.Request, why string) {
	if safe(r) {
		http.Error(w, "403: "+why, http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(map[string]string{"code": "permission_denied", "message": why}) // nobody is left to tell
}

func safe(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// loopbackName tells whether a Host header names this machine to itself.
func loopbackName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

// mayChange tells requests that could change something. What is not known to only
// read could.
func mayChange(r *http.Request) bool {
	if safe(r) {
		return false
	}
	service, method := path.Split(r.URL.Path)
	if !strings.HasPrefix(service, "/leasehold.v1.") {
		return true
	}
	if strings.HasPrefix(method, "Get") || strings.HasPrefix(method, "List") {
		return false
	}
	switch method {
	case "ExplainPartition", "Locate", "SimulateRing", "WatchEvents":
		return false
	}
	return true
}
