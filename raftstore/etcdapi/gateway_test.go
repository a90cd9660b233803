package etcdapi

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// httpOf serves a server's HTTP half.
func httpOf(t *testing.T, s *testServer) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(identified(s.api.HTTPHandler(), s.identify))
	t.Cleanup(srv.Close)
	return srv
}

func postJSON(t *testing.T, srv *httptest.Server, path, body string) (int, http.Header, map[string]any) {
	t.Helper()
	resp, err := srv.Client().Post(srv.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header, decode(t, resp.Body)
}

func decode(t *testing.T, r io.Reader) (m map[string]any) {
	t.Helper()
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

func at(m any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			object, _ := m.(map[string]any)
			m = object[p]
		case int:
			list, _ := m.([]any)
			if p >= len(list) {
				return nil
			}
			m = list[p]
		}
	}
	return m
}

func TestJSONGateway(t *testing.T) {
	c := startCluster(t, 3, options{})
	srv := httpOf(t, c.follower(t))
	code, _, m := postJSON(t, srv, "/v3/kv/put", `{"key":"`+b64("k")+`","value":"`+b64("v\x00")+`"}`)
	if code != http.StatusOK || at(m, "header", "revision") != "2" {
		t.Fatalf("%d %v", code, m)
	}
	code, _, m = postJSON(t, srv, "/v3/kv/range", `{"key":"`+b64("k")+`"}`)
	if code != http.StatusOK || at(m, "kvs", 0, "value") != b64("v\x00") || at(m, "kvs", 0, "create_revision") != "2" || at(m, "count") != "1" {
		t.Errorf("%d %v", code, m)
	}
	code, _, m = postJSON(t, srv, "/v3/kv/txn", `{"compare":[{"key":"`+b64("k")+`","target":"CREATE","result":"EQUAL","create_revision":"2"}],
		"success":[{"request_put":{"key":"`+b64("k")+`","value":"`+b64("w")+`"}}]}`)
	if code != http.StatusOK || at(m, "succeeded") != true {
		t.Errorf("%d %v", code, m)
	}
	code, _, m = postJSON(t, srv, "/v3/kv/put", `{}`)
	if code != http.StatusBadRequest || at(m, "message") != "etcdserver: key is not provided" || at(m, "code") != 3.0 {
		t.Errorf("%d %v", code, m)
	}
	code, _, m = postJSON(t, srv, "/v3/cluster/member/list", `{}`)
	if members, _ := at(m, "members").([]any); code != http.StatusOK || len(members) != 3 {
		t.Errorf("%d %v", code, m)
	}
	code, _, m = postJSON(t, srv, "/v3/maintenance/status", `{}`)
	if code != http.StatusOK || at(m, "version") != etcdVersion {
		t.Errorf("%d %v", code, m)
	}
}

func TestLocksAndElectionsOverJSON(t *testing.T) {
	c := startCluster(t, 1, options{})
	srv := httpOf(t, c.leader(t))
	code, _, m := postJSON(t, srv, "/v3/lease/grant", `{"TTL":"600"}`)
	lease, _ := at(m, "ID").(string)
	if code != http.StatusOK || lease == "" {
		t.Fatalf("%d %v", code, m)
	}
	code, header, m := postJSON(t, srv, "/v3/lock/lock", `{"name":"`+b64("L")+`","lease":"`+lease+`"}`)
	if code != http.StatusOK || at(m, "key") == nil || header.Get("Grpc-Metadata-"+TokenKey) == "" {
		t.Errorf("%d %v %v", code, header, m)
	}
	if code, _, m := postJSON(t, srv, "/v3/lock/unlock", `{"key":"`+at(m, "key").(string)+`"}`); code != http.StatusOK {
		t.Errorf("%d %v", code, m)
	}
	code, _, m = postJSON(t, srv, "/v3/election/campaign", `{"name":"`+b64("E")+`","lease":"`+lease+`","value":"`+b64("me")+`"}`)
	if code != http.StatusOK || at(m, "leader", "rev") == nil {
		t.Fatalf("%d %v", code, m)
	}
	leader, _ := json.Marshal(at(m, "leader"))
	code, _, m = postJSON(t, srv, "/v3/election/leader", `{"name":"`+b64("E")+`"}`)
	if code != http.StatusOK || at(m, "kv", "value") != b64("me") {
		t.Errorf("%d %v", code, m)
	}
	stream, err := srv.Client().Post(srv.URL+"/v3/election/observe", "application/json", strings.NewReader(`{"name":"`+b64("E")+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if m := decode(t, stream.Body); at(m, "result", "kv", "value") != b64("me") {
		t.Errorf("observed %v", m)
	}
	if code, _, m := postJSON(t, srv, "/v3/election/resign", `{"leader":`+string(leader)+`}`); code != http.StatusOK {
		t.Errorf("%d %v", code, m)
	}
	code, _, m = postJSON(t, srv, "/v3/election/leader", `{"name":"`+b64("E")+`"}`)
	if code == http.StatusOK || at(m, "message") != "election: no leader" {
		t.Errorf("%d %v", code, m)
	}
}

func TestWatchOverJSONStreams(t *testing.T) {
	c := startCluster(t, 1, options{})
	srv := httpOf(t, c.leader(t))
	stream, err := srv.Client().Post(srv.URL+"/v3/watch", "application/json",
		strings.NewReader(`{"create_request":{"key":"`+b64("k")+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewReader(stream.Body)
	line := func() (m map[string]any) {
		t.Helper()
		data, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := line(); at(m, "result", "created") != true {
		t.Fatalf("%v", m)
	}
	c.put(t, "k", "v", 0)
	if m := line(); at(m, "result", "events", 0, "kv", "value") != b64("v") {
		t.Errorf("%v", m)
	}
}

// A panic of a call that came as JSON ends that call, and not the server.
func TestPanicOfJSONEndsOneCall(t *testing.T) {
	c := startCluster(t, 1, options{api: func(cfg *Config) {
		cfg.Unary = func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if info.FullMethod == pb.KV_Range_FullMethodName {
				panic("a fault")
			}
			return next(ctx, req)
		}
		cfg.Stream = func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error { panic("a fault") }
	}})
	srv := httpOf(t, c.leader(t))
	for _, path := range []string{"/v3/kv/range", "/v3/maintenance/snapshot"} {
		if code, _, m := postJSON(t, srv, path, `{"key":"`+b64("k")+`"}`); code != http.StatusInternalServerError {
			t.Errorf("%s: %d %v", path, code, m)
		}
	}
	if code, _, m := postJSON(t, srv, "/v3/kv/put", `{"key":"`+b64("k")+`"}`); code != http.StatusOK {
		t.Errorf("the next: %d %v", code, m)
	}
}

// endless is a body that goes on for as long as somebody reads.
type endless struct {
	head string
	read int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.head)
	e.head = e.head[n:]
	for i := n; i < len(p); i++ {
		p[i] = 'A'
	}
	e.read += int64(len(p))
	return len(p), nil
}

// Of JSON, too, no more is held than a request may have; a stream of small requests
// may have more in all.
func TestLargeJSONIsNotRead(t *testing.T) {
	const most = 64 << 10
	c := startCluster(t, 1, options{api: func(cfg *Config) { cfg.MaxRequestBytes = most }})
	s := c.leader(t)
	handler := identified(s.api.HTTPHandler(), s.identify)
	for _, path := range []string{"/v3/kv/put", "/v3/kv/range", "/v3/lease/keepalive", "/v3/auth/authenticate"} {
		body := &endless{head: `{"key":"`}
		got := httptest.NewRecorder()
		handler.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, io.LimitReader(body, 64<<20)))
		if limit := 2 * jsonBytes(most); body.read > limit {
			t.Errorf("%s: %d bytes were read, want at most %d", path, body.read, limit)
		}
	}
	if code, _, m := postJSON(t, httpOf(t, s), "/v3/kv/put", `{"key":"`+b64("k")+`","value":"`+b64(strings.Repeat("v", most-1000))+`"}`); code != http.StatusOK {
		t.Errorf("as large as it may be: %d %v", code, m)
	}
	ask := `{"cancel_request":{"watch_id":"7"}}` + strings.Repeat(" ", 1000)
	n := int(2 * jsonBytes(most) / int64(len(ask)))
	srv := httpOf(t, s)
	stream, err := srv.Client().Post(srv.URL+"/v3/watch", "application/json",
		strings.NewReader(strings.Repeat(ask, n)+`{"create_request":{"key":"`+b64("k")+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if m := decode(t, stream.Body); at(m, "result", "created") != true {
		t.Errorf("after many small requests: %v", m)
	}
}

func getJSON(t *testing.T, srv *httptest.Server, path string) (int, map[string]any) {
	t.Helper()
	resp, err := srv.Client().Get(srv.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, decode(t, resp.Body)
}

func TestVersionAndHealth(t *testing.T) {
	c := startCluster(t, 3, options{})
	f := c.follower(t)
	srv := httpOf(t, f)
	if code, m := getJSON(t, srv, "/version"); code != http.StatusOK || m["etcdserver"] != etcdVersion || m["etcdcluster"] != etcdVersion || m["storage"] == nil {
		t.Errorf("%d %v", code, m)
	}
	healthy := func(path string, want int, health, reason string) {
		t.Helper()
		code, m := getJSON(t, srv, path)
		if code != want || m["health"] != health || m["reason"] != reason {
			t.Errorf("%s: %d %v, want %d %s %q", path, code, m, want, health, reason)
		}
	}
	healthy("/health", http.StatusOK, "true", "")
	if resp, err := srv.Client().Post(srv.URL+"/health", "", nil); err != nil || resp.StatusCode != http.StatusMethodNotAllowed || resp.Body.Close() != nil {
		t.Errorf("%v, %v", resp, err)
	}
	c.do(t, &state.SetAlarm{Member: 7, Raised: true})
	eventually(t, "the alarm here", func() (here bool) {
		f.store.View(func(s *state.State) { here = len(s.Alarms()) > 0 })
		return here
	})
	healthy("/health", http.StatusServiceUnavailable, "false", "ALARM NOSPACE")
	healthy("/health?exclude=NOSPACE", http.StatusOK, "true", "")
	c.do(t, &state.SetAlarm{Member: 7})
	f.raft.cut()
	eventually(t, "the loss of the leader", func() bool { id, ok := f.store.LeaderID(); return !ok || id == "" })
	code, m := getJSON(t, srv, "/health?exclude=NOSPACE")
	if code != http.StatusServiceUnavailable || m["health"] != "false" || m["reason"] != "RAFT NO LEADER" {
		t.Errorf("%d %v", code, m)
	}
	healthy("/health?serializable=true&exclude=NOSPACE", http.StatusOK, "true", "")
}

func TestGatewayEndsWithTheServer(t *testing.T) {
	c := startCluster(t, 1, options{})
	s := c.leader(t)
	srv := httpOf(t, s)
	s.stop()
	if code, _, m := postJSON(t, srv, "/v3/kv/range", `{"key":"`+b64("k")+`"}`); code == http.StatusOK {
		t.Errorf("%d %v", code, m)
	}
}

// postAs is postJSON of somebody, with headers.
func postAs(t *testing.T, srv *httptest.Server, who, path, body string, header http.Header) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(testContext(t), http.MethodPost, srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	if who != "" {
		r.Header.Set(callerName, who)
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, decode(t, resp.Body)
}

// The gateway calls as who made the request, and no header makes it call as another.
func TestGatewayCallsAsWhoMakesTheRequest(t *testing.T) {
	c := startCluster(t, 3, secured())
	for _, s := range c.servers {
		srv := httpOf(t, s)
		put := func(key string) string { return `{"key":"` + b64(key) + `"}` }
		for _, tc := range []struct {
			who, key string
			want     int
		}{{"a", "/a/k", http.StatusOK}, {"a", "/b/k", http.StatusForbidden}, {"boss", "/b/k", http.StatusOK}, {"reader", "/a/k", http.StatusForbidden}, {"", "/a/k", http.StatusBadRequest}} {
			if code, m := postAs(t, srv, tc.who, "/v3/kv/put", put(tc.key), nil); code != tc.want {
				t.Errorf("%s: %q puts %s: %d %v, want %d", s.id, tc.who, tc.key, code, m, tc.want)
			}
		}
		for _, who := range []string{"a", ""} {
			for _, identity := range []string{callers["boss"].Encode(), access.Anybody().Encode(), callers["server"].Encode()} {
				for _, name := range []string{callerKey, "Grpc-Metadata-" + callerKey, "grpc-metadata-" + callerKey, "Grpc-Metadata-" + callerName, "Grpcgateway-" + callerKey, "Grpc-Metadata-Leasehold-Identity", "Grpc-Metadata-Authorization", "Authorization", "Cookie"} {
					code, m := postAs(t, srv, who, "/v3/kv/put", put("/b/forged"), http.Header{http.CanonicalHeaderKey(name): {identity}, name: {identity}})
					if code == http.StatusOK {
						t.Errorf("%s: %q puts as somebody else with the header %s: %v", s.id, who, name, m)
					}
				}
			}
		}
		if code, m := postAs(t, srv, "a", "/v3/lease/grant", `{"TTL":"600"}`, nil); code != http.StatusOK {
			t.Errorf("%d %v", code, m)
		} else if code, m := postAs(t, srv, "b", "/v3/lease/revoke", `{"ID":"`+at(m, "ID").(string)+`"}`, nil); code != http.StatusForbidden || at(m, "message") != "etcdserver: permission denied" {
			t.Errorf("b revokes a's lease: %d %v", code, m)
		}
		for _, path := range []string{"/health", "/version"} {
			if code, m := getJSON(t, srv, path); code != http.StatusOK {
				t.Errorf("%s to nobody: %d %v", path, code, m)
			}
		}
	}
	c.leader(t).store.View(func(st *state.State) {
		if st.Keys().Get([]byte("/b/forged")) != nil {
			t.Error("somebody has put a key under a forged name")
		}
	})
}

// Streams of the gateway are of their caller's, too; what a leader is asked for goes
// along.
func TestGatewayStreamsAsWhoMakesTheRequest(t *testing.T) {
	c := startCluster(t, 1, secured())
	srv := httpOf(t, c.leader(t))
	watch := func(key string) string { return `{"create_request":{"key":"` + b64(key) + `"}}` }
	_, m := postAs(t, srv, "a", "/v3/watch", watch("/b/k"), http.Header{"Grpc-Metadata-" + http.CanonicalHeaderKey(callerKey): {access.Anybody().Encode()}})
	if at(m, "result", "canceled") != true || at(m, "result", "cancel_reason") != rpctypes.ErrPermissionDenied.Error() {
		t.Errorf("a watches b's key: %v", m)
	}
	ctx := metadata.NewOutgoingContext(access.NewContext(testContext(t), callers["a"]), metadata.Pairs(
		rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader, callerKey, "forged", "authorization", "secret"))
	md, _ := metadata.FromOutgoingContext(inward(ctx))
	if len(md) != 2 || len(md.Get(callerKey)) != 1 || md.Get(callerKey)[0] != callers["a"].Encode() || md.Get(rpctypes.MetadataRequireLeaderKey)[0] != rpctypes.MetadataHasLeader {
		t.Errorf("%v goes to the inner server", md)
	}
}
