package server

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// What is done over HTTP is no less watched than what is done over gRPC: it ends with
// the credential, and changes and refusals are in the audit log.
func TestOverHTTPIsWatchedLikeTheRest(t *testing.T) {
	c, a := secureCluster(t, 1)
	c.startAll()
	token := map[string]string{}
	for name, role := range map[string]leaseholdv1.Role{"pay": leaseholdv1.Role_ROLE_WORKER, "eve": leaseholdv1.Role_ROLE_READER} {
		r := &leaseholdv1.CreateCredentialRequest{Name: name, Role: role}
		if name == "pay" {
			r.KeyPrefixes = []string{"/pay/"}
		}
		token[name] = c.credential(c.tls, r)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	own := &http.Client{Transport: &http.Transport{TLSClientConfig: a.Anonymous(), DisableKeepAlives: true}}
	send := func(web *http.Client, verb, path, body, token string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, verb, c.url(0, path), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	key := func(k string) string { return base64.StdEncoding.EncodeToString([]byte(k)) }
	for _, s := range []struct{ name, verb, path, body string }{
		{"pay", http.MethodPost, "/v3/watch", fmt.Sprintf(`{"create_request":{"key":%q,"range_end":%q}}`, key("/pay/"), key("/pay0"))},
		{"eve", http.MethodGet, "/ui/feed", ""},
	} {
		resp := send(own, s.verb, s.path, s.body, token[s.name]) //nolint:bodyclose // send does, in the end
		stream := bufio.NewReader(resp.Body)
		if line, err := stream.ReadString('\n'); resp.StatusCode != http.StatusOK || err != nil {
			t.Fatalf("%s: %d %q %v", s.path, resp.StatusCode, line, err)
		}
		c.revoke(c.tls, s.name)
		if _, err := io.Copy(io.Discard, stream); ctx.Err() != nil {
			t.Errorf("%s goes on after its credential was revoked: %v", s.path, err)
		}
	}
	other := c.credential(c.tls, &leaseholdv1.CreateCredentialRequest{Name: "other", Role: leaseholdv1.Role_ROLE_WORKER, KeyPrefixes: []string{"/pay/"}})
	if resp := send(own, http.MethodPost, "/v3/kv/range", fmt.Sprintf(`{"key":%q}`, key("/orders/1")), other); resp.StatusCode != http.StatusForbidden { //nolint:bodyclose // as above
		t.Errorf("somebody else's key: %d", resp.StatusCode)
	}
	if resp := send(c.http(), http.MethodPost, "/v3/maintenance/snapshot", `{}`, ""); resp.StatusCode != http.StatusOK { //nolint:bodyclose // as above
		t.Errorf("a snapshot: %d", resp.StatusCode)
	} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	c.stopServer(0)
	text, err := os.ReadFile(filepath.Join(c.configs[0].DataDir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"method":"/etcdserverpb.KV/Range","target":"key=\"/orders/1\"","outcome":"PermissionDenied"`,
		`"method":"/etcdserverpb.Maintenance/Snapshot","outcome":"ok"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
}
