package etcdapi

import (
	"context"
	"net/http"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// callerName is the metadata, or the HTTP header, in which tests say who calls.
const callerName = "test-caller"

// callers are those whom tests speak of by name. a and b share the prefix /both/ and
// have one each; a scope of one kind is nothing of the other.
var callers = map[string]access.Identity{
	"a":        bearer("a", access.Worker, access.ScopeOf(nil, []string{"/a/", "/both/"})),
	"b":        bearer("b", access.Worker, access.ScopeOf(nil, []string{"/b/", "/both/"})),
	"reader":   bearer("reader", access.Reader, access.Everywhere()),
	"reader-a": bearer("reader-a", access.Reader, access.ScopeOf(nil, []string{"/a/"})),
	"boss":     bearer("boss", access.Operator, access.Everywhere()),
	"boss-a":   bearer("boss-a", access.Operator, access.ScopeOf([]string{"*"}, []string{"/a/"})),
	"keyboss":  bearer("keyboss", access.Operator, access.ScopeOf(nil, []string{""})),
	"worker":   {Source: access.Certificate, Name: "worker", Role: access.Worker, Scope: access.Everywhere()},
	"server":   {Source: access.Certificate, Name: "s1", Role: access.Server, Scope: access.Everywhere()},
	"nobody":   {},
}

func bearer(name string, role access.Role, scope access.Scope) access.Identity {
	id := (name + "aaaaaaaaaaaa")[:access.IDLen]
	for i, c := range []byte(id) {
		if c == '-' {
			id = id[:i] + "0" + id[i+1:]
		}
	}
	return access.Identity{Source: access.Bearer, Name: name, Role: role, Scope: scope, Credential: id}
}

// identifyOpen believes everybody, and who says a name.
func identifyOpen(ctx context.Context) context.Context {
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get(callerName)) == 0 {
		return access.NewContext(ctx, access.Anybody())
	}
	return identify(ctx)
}

// identify takes the word of who says a name; the others are nobody.
func identify(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	if told := md.Get(callerName); len(told) == 1 {
		return access.NewContext(ctx, callers[told[0]])
	}
	return ctx
}

// as is a context of a client that says it is somebody.
func as(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, callerName, name)
}

// identified is the HTTP half of identify.
func identified(next http.Handler, identify func(context.Context) context.Context) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := metadata.MD{callerName: r.Header[http.CanonicalHeaderKey(callerName)]}
		id := access.FromContext(identify(metadata.NewIncomingContext(r.Context(), said)))
		next.ServeHTTP(w, r.WithContext(access.NewContext(r.Context(), id)))
	})
}

// secured makes a cluster that asks who calls; its servers say to each other that
// they are servers.
func secured() options {
	return options{identify: identify, api: func(cfg *Config) {
		cfg.Dial = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(aServer{})}
	}}
}

// aServer says that a server calls.
type aServer struct{}

func (aServer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{callerName: "server"}, nil
}

func (aServer) RequireTransportSecurity() bool { return false }

// The names of tests must be what they say.
func TestCallersTravelBetweenServers(t *testing.T) {
	for name, id := range callers {
		got, err := access.Decode(id.Encode())
		if proven := id.Role != 0; (err == nil) != proven || proven && got.Owner() != id.Owner() {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// infoOf is the ErrorInfo in the details of a status.
func infoOf(t *testing.T, err error) *errdetails.ErrorInfo {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	t.Fatalf("%v has no details", err)
	return nil
}
