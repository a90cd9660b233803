package auth

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// HTTP finds out who sends a request and puts that into its context, with the
// address it came from. It lets through what needs no proof, and what the identity
// may see, for as long as the proof lasts; calls go on to Unary and Stream, which ask
// the rules.
func (a *Auth) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := caller{from: r.RemoteAddr}
		ctx, done := r.Context(), func() {}
		var err error
		if !nobodyAskedAt(r.URL.Path) || a.open() {
			c.id, err = a.proveHTTP(r)
			if err == nil {
				err = a.authorizePath(c.id, r.URL.Path)
			}
			if err == nil {
				ctx, done, err = a.during(ctx, c.id)
			}
		}
		defer done()
		if err != nil {
			method := r.Method + " " + r.URL.Path
			if a.entered(c, method, err) {
				a.record(c, method, "", err)
			}
			refuse(w, err)
			return
		}
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: address(r.RemoteAddr)})
		next.ServeHTTP(w, r.WithContext(access.NewContext(ctx, c.id)))
	})
}

// nobodyAskedAt are the paths that say how a server is, and that by which a client
// of etcd gets its token.
func nobodyAskedAt(path string) bool {
	switch path {
	case "/livez", "/readyz", "/health", "/v3/auth/authenticate":
		return true
	}
	return false
}

// authorizePath refuses a path. What is no call of an API shows the whole cluster.
func (a *Auth) authorizePath(id access.Identity, path string) error {
	if needs, _ := a.needs(path); needs == byRules || strings.HasPrefix(path, "/v3/") {
		return nil
	}
	if id.Role != access.Reader && id.Role != access.Operator {
		return Denied(id, "path %q wants the role reader or operator", clip(path))
	}
	if !id.Scope.AllKeyspaces() {
		return Denied(id, "path %q shows the whole cluster and wants all keyspaces", clip(path))
	}
	return nil
}

// proveHTTP looks at what came with a request.
func (a *Auth) proveHTTP(r *http.Request) (id access.Identity, err error) {
	if a.open() {
		return access.Anybody(), nil
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		if id, err = a.byCertificate(r.TLS.PeerCertificates[0]); err != nil {
			return access.Identity{}, err
		}
	}
	values := r.Header.Values("Authorization")
	switch {
	case len(values) > 1:
		return access.Identity{}, a.fail(errTwo)
	case len(values) == 1:
		if name, password, ok := r.BasicAuth(); ok { // a browser
			c, secret, err := a.find(r.Context(), name, password)
			if err != nil {
				return access.Identity{}, err
			}
			return a.verify(&c, secret, name, r.RemoteAddr)
		}
		token, err := ofAuthorization(values[0])
		if err != nil {
			return access.Identity{}, a.fail(err)
		}
		return a.byToken(r.Context(), token, r.RemoteAddr)
	case id.Role == 0:
		return access.Identity{}, a.fail(errNone)
	}
	return id, nil
}

// refuse writes an error the way Connect's clients read it.
func refuse(w http.ResponseWriter, err error) {
	type detail struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	body := struct {
		Code    string   `json:"code"`
		Message string   `json:"message"`
		Details []detail `json:"details,omitempty"`
	}{Code: "permission_denied", Message: status.Convert(err).Message()}
	code := http.StatusForbidden
	switch status.Code(err) {
	case codes.Unauthenticated:
		body.Code, code = "unauthenticated", http.StatusUnauthorized
		w.Header().Add("WWW-Authenticate", `Bearer realm="leasehold"`)
		w.Header().Add("WWW-Authenticate", `Basic realm="leasehold", charset="UTF-8"`)
	case codes.Unavailable:
		body.Code, code = "unavailable", http.StatusServiceUnavailable
	case codes.ResourceExhausted:
		body.Code, code = "resource_exhausted", http.StatusTooManyRequests
		w.Header().Set("Retry-After", "1")
	}
	if d := pb.DetailOf(err); d != nil {
		if raw, err := proto.Marshal(d); err == nil {
			body.Details = []detail{{string(d.ProtoReflect().Descriptor().FullName()), base64.RawStdEncoding.EncodeToString(raw)}}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // a caller that has gone needs no answer
}

// address is a net.Addr of a text.
type address string

var _ net.Addr = address("")

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// clip keeps a caller's text in messages short.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
