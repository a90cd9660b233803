package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Where the requests of the matrix are, and where they are not.
const (
	matrixKeyspace = "orders"
	matrixKey      = "/app/k"
	matrixLease    = 4711 // of an operator who makes no requests
)

// classes of callers are the columns of the matrix. All callers of one are answered
// alike: it must not matter how somebody has proven who they are.
var classes = []string{
	"nobody", "server", "reader", "worker", "operator",
	"worker/keyspace", "worker/prefix", "operator/keyspace", "operator/prefix", // of another one
}

// scopes of those classes that have bounds. The others may act everywhere.
var scopes = map[string]access.Scope{
	"worker/keyspace":   {Keyspaces: []string{"pay"}, Prefixes: []string{""}},
	"operator/keyspace": {Keyspaces: []string{"pay"}, Prefixes: []string{""}},
	"worker/prefix":     {Keyspaces: []string{"*"}, Prefixes: []string{"/pay/"}},
	"operator/prefix":   {Keyspaces: []string{"*"}, Prefixes: []string{"/pay/"}},
}

// caller is somebody who tries everything, over two connections that stay open.
type caller struct {
	name, class string
	tls         *tls.Config
	token       string
	forged      metadata.MD // what only a server may say

	conn *grpc.ClientConn
	web  *http.Client
}

// callers are the identities that a connection is made with.
func (c *cluster) callers(a *pkitest.Authority) (all []*caller) {
	add := func(name, class string, tlsConfig *tls.Config, token string) *caller {
		m := &caller{name: name, class: class, tls: tlsConfig, token: token}
		all = append(all, m)
		return m
	}
	boss := a.Client(a.Operator("boss"))
	tokens := c.tokens(boss)
	none := a.Anonymous()

	add("without-proof", "nobody", none, "")
	add("garbage", "nobody", none, "garbage")
	add("unknown", "nobody", none, access.Token("aaaaaaaaaaaa", make([]byte, access.SecretLen)))
	add("other-secret", "nobody", none, otherSecret(tokens["operator"]))
	add("expired", "nobody", none, tokens["expired"])
	add("revoked", "nobody", none, tokens["revoked"])
	add("boss-with-garbage", "nobody", boss, "garbage")
	add("boss-with-revoked", "nobody", boss, tokens["revoked"])
	forged := metadata.Pairs(auth.ForwardedKey, "1", auth.FromKey, "127.0.0.1:1", auth.IdentityKey,
		access.Identity{Source: access.Certificate, Name: "boss", Role: access.Operator, Scope: access.Everywhere(), Serial: "1"}.Encode())
	add("forger", "nobody", none, "").forged = forged

	for _, class := range classes[1:] {
		word, _, _ := strings.Cut(class, "/")
		role, err := access.ParseRole(word)
		if err != nil {
			c.t.Fatal(err)
		}
		name := strings.ReplaceAll(class, "/", "-")
		add(name+"-certificate", class, a.Client(a.Files(pki.Name{Role: role, Name: name + "-certificate", Scope: scopes[class]})), "")
		if token, ok := tokens[class]; ok {
			add(name+"-credential", class, none, token)
		}
	}
	add("reader-forges", "reader", none, tokens["reader"]).forged = forged
	add("worker-forges", "worker", a.Client(a.Worker("worker-forges")), "").forged = forged
	// Who presents both counts as what the credential says.
	add("boss-as-reader", "reader", boss, tokens["reader"])
	add("server-as-reader", "reader", a.Client(a.Server("s9")), tokens["reader"])
	return all
}

// tokens makes a credential of each class that can have one, one that has expired
// and one that is revoked.
func (c *cluster) tokens(boss *tls.Config) map[string]string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	cl, err := client.Dial(ctx, client.Config{Servers: c.servers(), TLS: boss})
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	tokens := map[string]string{}
	create := func(name string, role leaseholdv1.Role, scope access.Scope, ttl time.Duration) *leaseholdv1.Credential {
		var resp *leaseholdv1.CreateCredentialResponse
		try := 0 // a name is taken by a try whose answer was lost
		eventually(c.t, 20*time.Second, "credential "+name+" is there", func() bool {
			try++
			resp, err = cl.Credentials().CreateCredential(ctx, &leaseholdv1.CreateCredentialRequest{
				Name: fmt.Sprintf("%s-%d", strings.ReplaceAll(name, "/", "-"), try), Role: role, Keyspaces: scope.Keyspaces, KeyPrefixes: scope.Prefixes, TtlMs: ttl.Milliseconds(),
			})
			return err == nil
		})
		tokens[name] = resp.GetToken()
		return resp.GetCredential()
	}
	const role = leaseholdv1.Role_ROLE_OPERATOR
	expires := create("expired", role, access.Scope{}, time.Second).GetExpires().AsTime()
	revoked := create("revoked", role, access.Scope{}, 0).GetId()
	if _, err := cl.Credentials().RevokeCredential(ctx, &leaseholdv1.RevokeCredentialRequest{Credential: revoked}); err != nil {
		c.t.Fatal(err)
	}
	for _, class := range classes[2:] {
		word, _, _ := strings.Cut(class, "/")
		create(class, leaseholdv1.Role(leaseholdv1.Role_value["ROLE_"+strings.ToUpper(word)]), scopes[class], 0)
	}
	eventually(c.t, 5*time.Second, "the credential has expired", func() bool { return time.Now().After(expires) })
	return tokens
}

// otherSecret is a token for the same credential with one character changed.
func otherSecret(token string) string {
	at := len(token) - 10
	other := byte('A')
	if token[at] == other {
		other = 'B'
	}
	return token[:at] + string(other) + token[at+1:]
}

// strangers are those who do not get as far as a call, each with what their
// certificate lacks.
func strangers(t *testing.T, a *pkitest.Authority, revoked pki.Files) map[string]*tls.Config {
	boss := pki.Name{Role: access.Operator, Name: "boss"}
	elsewhere := boss
	elsewhere.Cluster = "elsewhere"
	configs := map[string]*tls.Config{}
	for name, f := range map[string]pki.Files{
		"self-signed":   a.SelfSigned(boss),
		"other CA":      pkitest.New(t).Files(boss),
		"other cluster": a.Files(elsewhere),
		"expired":       a.Expired(boss),
		"revoked":       revoked,
		"common name":   a.Nameless("boss"),
	} {
		configs[name] = a.Presenting(f)
	}
	return configs
}

// dial opens nothing yet; close ends what comes to be open.
func (m *caller) dial(addr string) (err error) {
	m.conn, err = grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(credentials.NewTLS(m.tls)))
	m.web = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: m.tls.Clone(), ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return err
}

func (m *caller) close() {
	m.conn.Close()
	m.web.CloseIdleConnections()
}

// says is what goes along with a call over gRPC. Clients of etcd have their token
// elsewhere than others.
func (m *caller) says(method string) metadata.MD {
	md := metadata.MD{}
	maps.Copy(md, m.forged)
	switch {
	case m.token == "":
	case strings.HasPrefix(method, "/leasehold.") || strings.HasPrefix(method, "/grpc."):
		md.Set("authorization", "Bearer "+m.token)
	default:
		md.Set("token", m.token)
	}
	return md
}

// signs is the same over HTTP.
func (m *caller) signs(h http.Header) {
	if m.token != "" {
		h.Set("Authorization", "Bearer "+m.token)
	}
	for _, k := range slices.Sorted(maps.Keys(m.forged)) {
		h[http.CanonicalHeaderKey(k)] = m.forged[k]
		h[http.CanonicalHeaderKey("Grpc-Metadata-"+k)] = m.forged[k]
	}
}
