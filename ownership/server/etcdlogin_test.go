package server

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
)

// credential makes one and returns its token.
func (c *cluster) credential(tlsConfig *tls.Config, r *leaseholdv1.CreateCredentialRequest) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, client.Config{Servers: c.servers(), TLS: tlsConfig})
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	var resp *leaseholdv1.CreateCredentialResponse
	eventually(c.t, 20*time.Second, "credential "+r.GetName()+" is there", func() bool {
		resp, err = cl.Credentials().CreateCredential(ctx, r)
		return err == nil
	})
	return resp.GetToken()
}

func etcdUser(t *testing.T, addr string, tlsConfig *tls.Config, user, password string) (*clientv3.Client, error) {
	t.Helper()
	cl, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, TLS: tlsConfig, Username: user, Password: password, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err == nil {
		t.Cleanup(func() { _ = cl.Close() })
	}
	return cl, err
}

// etcd's own client with a credential's name and token as user and password, on a
// cluster that asks who calls: through every server, within its keys, and not any
// more once the credential is revoked. etcdctl likewise, where it is installed.
func TestEtcdsClientsWithACredential(t *testing.T) {
	a := pkitest.New(t)
	c := newCluster(t, 3)
	for i := range c.configs {
		c.configs[i].TLS = a.Server(c.configs[i].ID)
	}
	c.startAll()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	boss := a.Client(a.Operator("boss"))
	token := c.credential(boss, &leaseholdv1.CreateCredentialRequest{
		Name: "pay", Role: leaseholdv1.Role_ROLE_WORKER, KeyPrefixes: []string{"/pay/"},
	})
	for i, r := range c.running {
		addr := r.Addrs().GRPC
		var cl *clientv3.Client
		eventually(t, 20*time.Second, r.id+" knows the credential", func() (ok bool) {
			var err error
			cl, err = etcdUser(t, addr, a.Anonymous(), "pay", token)
			return err == nil
		})
		key := "/pay/" + r.id
		lease, err := cl.Grant(ctx, 60)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Put(ctx, key, "v", clientv3.WithLease(lease.ID)); err != nil {
			t.Errorf("%s: %v", r.id, err)
		}
		for range 3 { // who has proven who they are may say more than a stranger
			if _, err := cl.Put(ctx, key, strings.Repeat("v", 100<<10), clientv3.WithLease(lease.ID)); err != nil {
				t.Errorf("%s: a large value: %v", r.id, err)
			}
		}
		if resp, err := cl.Get(ctx, "/pay/", clientv3.WithPrefix()); err != nil || resp.Count != int64(i+1) {
			t.Errorf("%s: %v, %v", r.id, resp, err)
		}
		if _, err := cl.Get(ctx, "/", clientv3.WithPrefix()); err != rpctypes.ErrPermissionDenied {
			t.Errorf("%s: all keys: %v", r.id, err)
		}
		other, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, TLS: boss, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Close() })
		mine, err := other.Grant(ctx, 60)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Revoke(ctx, mine.ID); err != rpctypes.ErrPermissionDenied {
			t.Errorf("%s: revoke of the operator's lease: %v", r.id, err)
		}
		if ttl, err := cl.KeepAliveOnce(ctx, lease.ID); err != nil || ttl.TTL != 60 {
			t.Errorf("%s: %v, %v", r.id, ttl, err)
		}
		users, err := other.UserList(ctx)
		if err != nil || !slices.Equal(users.Users, []string{"pay"}) {
			t.Errorf("%s: users %v, %v", r.id, users, err)
		}
		members, err := other.MemberList(ctx)
		if err != nil || len(members.Members) != 3 || !strings.HasPrefix(members.Members[0].ClientURLs[0], "https://") {
			t.Errorf("%s: members %v, %v", r.id, members, err)
		}
		if _, err := etcdUser(t, addr, a.Anonymous(), "pay", token[:len(token)-1]+"x"); err != rpctypes.ErrAuthFailed {
			t.Errorf("%s: another password: %v", r.id, err)
		}
		if bare, err := etcdUser(t, addr, a.Anonymous(), "", ""); err != nil {
			t.Error(err)
		} else if _, err := bare.Get(ctx, key); err != rpctypes.ErrUserEmpty {
			t.Errorf("%s: without a user: %v", r.id, err)
		}
	}
	c.gateway(a.Anonymous(), token)
	c.etcdctl(a, "pay:"+token)
	follower := c.running[(c.leader()+1)%3].Addrs().GRPC
	cl, err := etcdUser(t, follower, a.Anonymous(), "pay", token)
	if err != nil {
		t.Fatal(err)
	}
	watch := cl.Watch(ctx, "/pay/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if m := <-watch; !m.Created {
		t.Fatalf("%+v", m)
	}
	c.revoke(boss, "pay")
	eventually(t, 20*time.Second, "the revoked credential is of no use", func() bool {
		_, err := cl.Get(ctx, "/pay/s1")
		return err == rpctypes.ErrAuthFailed // the client logs in again, in vain
	})
	for range watch { // it ends
	}
}

func (c *cluster) revoke(tlsConfig *tls.Config, name string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, client.Config{Servers: c.servers(), TLS: tlsConfig})
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	if _, err := cl.Credentials().RevokeCredential(ctx, &leaseholdv1.RevokeCredentialRequest{Credential: name}); err != nil {
		c.t.Fatal(err)
	}
}

// gateway logs in and asks for keys over JSON, the way etcd's own gateway is used.
func (c *cluster) gateway(tlsConfig *tls.Config, password string) {
	c.t.Helper()
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig}}
	defer web.CloseIdleConnections()
	post := func(path, token, body string) (int, string) {
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "https://"+c.running[0].Addrs().HTTP+path, strings.NewReader(body))
		if err != nil {
			c.t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", token)
		}
		resp, err := web.Do(r)
		if err != nil {
			c.t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			c.t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}
	key := func(k string) string { return fmt.Sprintf(`{"key":%q}`, base64.StdEncoding.EncodeToString([]byte(k))) }
	code, answer := post("/v3/auth/authenticate", "", fmt.Sprintf(`{"name":"pay","password":%q}`, password))
	var login struct{ Token string }
	if err := json.Unmarshal([]byte(answer), &login); code != http.StatusOK || err != nil {
		c.t.Fatalf("login: %d %s", code, answer)
	}
	for _, tc := range []struct {
		token, key string
		want       int
	}{
		{login.Token, "/pay/s1", http.StatusOK}, {"Bearer " + login.Token, "/pay/s1", http.StatusOK},
		{login.Token, "/other", http.StatusForbidden}, {"", "/pay/s1", http.StatusUnauthorized}, {"forged", "/pay/s1", http.StatusUnauthorized},
	} {
		if code, answer := post("/v3/kv/range", tc.token, key(tc.key)); code != tc.want {
			c.t.Errorf("%s with %.8q: %d %s, want %d", tc.key, tc.token, code, answer, tc.want)
		}
	}
}

// etcdctl runs the commands that a user of a few keys would.
func (c *cluster) etcdctl(a *pkitest.Authority, user string) {
	c.t.Helper()
	path, err := exec.LookPath("etcdctl")
	if err != nil {
		if os.Getenv("LEASEHOLD_CI") != "" {
			c.t.Error("etcdctl is not installed")
		}
		return
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(c.t.Context(), path, append([]string{
			"--endpoints", c.running[0].Addrs().GRPC, "--cacert", a.CA(), "--insecure-skip-tls-verify", "--insecure-transport=false",
		}, args...)...)
		cmd.Env = append(os.Environ(), "ETCDCTL_API=3", "ETCDCTL_USER="+user)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, tc := range []struct {
		args []string
		want string
		fail bool
	}{
		{[]string{"put", "/pay/ctl", "v"}, "OK", false},
		{[]string{"get", "/pay/ctl"}, "/pay/ctl\nv\n", false},
		{[]string{"get", "/pay/", "--prefix", "--keys-only"}, "/pay/ctl", false},
		{[]string{"put", "/other", "v"}, "etcdserver: permission denied", true},
		{[]string{"get", "", "--from-key"}, "etcdserver: permission denied", true},
		{[]string{"endpoint", "health"}, "is healthy", false},
		{[]string{"lease", "grant", "60"}, "granted with TTL(60s)", false},
		{[]string{"compact", "2"}, "etcdserver: permission denied", true},
		{[]string{"user", "list"}, "etcdserver: permission denied", true},
	} {
		if out, err := run(tc.args...); (err != nil) != tc.fail || !strings.Contains(out, tc.want) {
			c.t.Errorf("etcdctl %q: %v\n%s", tc.args, err, out)
		}
	}
}
