package auth

import (
	"context"
	"crypto/x509"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Metadata of a call that one server hands on to another. It is taken away from
// calls of everybody else before anything looks at it.
const (
	// ForwardedKey marks the call: it is not handed on again.
	ForwardedKey = "leasehold-forwarded"
	// FromKey is where the caller is.
	FromKey = "leasehold-from"
	// IdentityKey is who the caller is, as access.Identity.Encode writes it.
	IdentityKey = "leasehold-identity"
)

// Keys of what callers present: "Bearer lhc_…" under the first, the bare token
// under the second, which clients of etcd use.
const (
	authorizationKey = "authorization"
	tokenKey         = "token"
)

// caller is what has been found out about a call.
type caller struct {
	id        access.Identity
	from      string // address
	forwarded bool   // by another server, which has made the entry in its audit log
}

// Identify is who makes a call over gRPC, or over HTTP behind Auth.HTTP. The error
// is a status.
func (a *Auth) Identify(ctx context.Context) (access.Identity, error) {
	_, c, err := a.identify(ctx, true)
	return c.id, err
}

// identify also returns the context in which the rest of the call runs: with the
// identity, and without what a caller may not say. Without ask a caller who would
// have to prove something stays nobody.
func (a *Auth) identify(ctx context.Context, ask bool) (context.Context, caller, error) {
	c := caller{from: addrOf(ctx)}
	var err error
	believed := false // is the peer a server of the cluster?
	switch known := access.FromContext(ctx); {
	case known.Role != 0: // Auth.HTTP has looked
		c.id = known
	case a.open():
		c.id, believed = access.Anybody(), true
	case ask:
		c.id, believed, err = a.prove(ctx, c.from)
	}
	forwarded := len(metadata.ValueFromIncomingContext(ctx, ForwardedKey)) > 0
	if err == nil && believed && forwarded {
		c.forwarded = true
		if from := metadata.ValueFromIncomingContext(ctx, FromKey); len(from) > 0 {
			c.from = from[0]
		}
		if !a.open() {
			c.id, err = a.handedOn(ctx, c.id)
		}
	}
	if err != nil {
		c.id = access.Identity{}
	}
	return access.NewContext(strip(ctx, believed), c.id), c, err
}

// prove looks at what the caller has presented. server tells that it is a server of
// the cluster.
func (a *Auth) prove(ctx context.Context, from string) (id access.Identity, server bool, err error) {
	token, err := presented(ctx)
	if err != nil {
		return access.Identity{}, false, a.fail(err)
	}
	leaf := leafOf(ctx)
	if leaf != nil {
		if id, err = a.byCertificate(leaf); err != nil {
			return access.Identity{}, false, err
		}
	}
	switch {
	case token != "":
		id, err = a.byToken(ctx, token, from)
		return id, false, err
	case leaf == nil:
		return access.Identity{}, false, a.fail(errNone)
	}
	return id, id.Role == access.Server, nil
}

// presented is the token that came with a call, or "".
func presented(ctx context.Context) (string, error) {
	var tokens []string
	for _, v := range metadata.ValueFromIncomingContext(ctx, authorizationKey) {
		token, err := ofAuthorization(v)
		if err != nil {
			return "", err
		}
		tokens = append(tokens, token)
	}
	tokens = slices.Compact(append(tokens, metadata.ValueFromIncomingContext(ctx, tokenKey)...))
	switch len(tokens) {
	case 0:
		return "", nil
	case 1:
		return tokens[0], nil
	}
	return "", errTwo
}

// ofAuthorization is the token in the value of an Authorization header. The bare
// one is what the JSON gateway of etcd takes.
func ofAuthorization(v string) (string, error) {
	scheme, rest, two := strings.Cut(v, " ")
	switch {
	case !two:
		return v, nil
	case strings.EqualFold(scheme, "Bearer"):
		return strings.TrimSpace(rest), nil
	}
	return "", errBad
}

// leafOf is the certificate that the caller has shown, or nil. The handshake of a
// configuration of Config.Certificates has verified it.
func leafOf(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	return info.State.PeerCertificates[0]
}

func (a *Auth) byCertificate(leaf *x509.Certificate) (access.Identity, error) {
	id, err := a.cfg.Certificates.Identity(leaf)
	if err != nil {
		return access.Identity{}, a.fail(&failure{pki.ReasonOf(err), err.Error()})
	}
	return id, nil
}

// handedOn is the caller that another server names. One that names none speaks for
// itself.
func (a *Auth) handedOn(ctx context.Context, server access.Identity) (access.Identity, error) {
	values := metadata.ValueFromIncomingContext(ctx, IdentityKey)
	if len(values) == 0 {
		return server, nil
	}
	id, err := access.Decode(values[0])
	switch {
	case err != nil:
		return access.Identity{}, (&failure{wordBad, "the identity that " + server.String() + " hands on cannot be read: " + err.Error()}).status()
	case !id.Expires.IsZero() && !a.cfg.Now().Before(id.Expires):
		return access.Identity{}, errOld.status()
	case id.Source == access.Bearer && !a.valid(id):
		// Either it was revoked, and the other server does not know yet, or it is new,
		// and this one does not. Soon both know.
		return access.Identity{}, unsure()
	}
	return id, nil
}

// strip takes away what only servers say, or all but what the API reads of it.
func strip(ctx context.Context, believed bool) context.Context {
	keys := []string{authorizationKey, tokenKey, IdentityKey}
	if !believed {
		keys = append(keys, ForwardedKey, FromKey)
	}
	if !slices.ContainsFunc(keys, func(k string) bool { return metadata.ValueFromIncomingContext(ctx, k) != nil }) {
		return ctx
	}
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	for _, k := range keys {
		delete(md, k)
	}
	return metadata.NewIncomingContext(ctx, md)
}

// Forward is the metadata of a call that is handed on to another server.
func Forward(ctx context.Context) metadata.MD {
	md := metadata.Pairs(ForwardedKey, "1")
	if from := metadata.ValueFromIncomingContext(ctx, FromKey); len(from) > 0 {
		md.Set(FromKey, from...) // handed on to this server, too, and believed
	} else if from := addrOf(ctx); from != "" {
		md.Set(FromKey, from)
	}
	if id := access.FromContext(ctx); id.Source != access.Open && id.Role != 0 {
		md.Set(IdentityKey, id.Encode())
	}
	return md
}

// addrOf is where the other end of a call is.
func addrOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
