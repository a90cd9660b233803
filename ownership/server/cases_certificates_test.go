package server

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// heard is what comes back on a connection to a port after something was said;
// empty when it was ended without a word of the protocol.
func heard(t *testing.T, addr string, cfg *tls.Config, say string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if cfg != nil {
		conn = tls.Client(conn, cfg)
	}
	if _, err := io.WriteString(conn, say); err != nil {
		return ""
	}
	b := make([]byte, 256)
	n, err := conn.Read(b)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Errorf("%s neither answers nor ends the connection", addr)
	}
	if cfg == nil && n > 0 && b[0] == 0x15 {
		return "" // an alert of TLS
	}
	return string(b[:n])
}

// O-90: on the Raft port nobody is heard but servers of the cluster, and no call
// that servers make of each other is made by anybody else.
func TestO90WorkerCertificateOnTheRaftPort(t *testing.T) {
	t.Parallel()
	c, ca := secureCluster(t, 3)
	book := c.logged(0)
	c.startAll()
	cl := c.client()
	createKeyspace(t, cl, "orders", 4, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	lead := c.leader()
	term := c.running[lead].store.Term()
	raft := c.running[0].Addrs().Raft
	for name, by := range map[string]struct {
		cfg    *tls.Config
		reason string
		log    string
	}{
		"a worker":                      {ca.Presenting(ca.Worker("w1")), "wrong_role", "leasehold://leasehold/worker/w1"},
		"a reader":                      {ca.Presenting(ca.Reader("looker")), "wrong_role", "leasehold://leasehold/reader/looker"},
		"an operator":                   {ca.Presenting(ca.Operator("boss")), "wrong_role", "leasehold://leasehold/operator/boss"},
		"a server of another cluster":   {ca.Presenting(ca.Files(pki.Name{Cluster: "other", Role: access.Server, Name: "s2"})), "wrong_cluster", "leasehold://other/server/s2"},
		"a server of another authority": {ca.Presenting(pkitest.New(t).Server("s2")), "wrong_ca", "leasehold://leasehold/server/s2"},
		"a server of yesterday":         {ca.Presenting(ca.Expired(pki.Name{Role: access.Server, Name: "s3"})), "expired", "leasehold://leasehold/server/s3"},
		"nobody":                        {ca.Anonymous(), "none", ""},
		"somebody without TLS":          {nil, "bad", ""},
	} {
		series := `leasehold_auth_failures_total{reason="` + by.reason + `"}`
		before := c.scrape(0)[series]
		if answer := heard(t, raft, by.cfg, "LHR\x01\x00\x04abcd"); answer != "" {
			t.Errorf("%s is answered %q", name, answer)
		}
		eventually(t, 10*time.Second, name+" is counted", func() bool { return c.scrape(0)[series] > before })
		if by.log != "" && book.count(by.log) == 0 {
			t.Errorf("the log does not tell of %s", by.log)
		}
	}
	for _, f := range []pki.Files{ca.Worker("w1"), ca.Reader("looker"), ca.Operator("boss")} {
		conn, err := grpc.NewClient("passthrough:///"+c.running[0].Addrs().GRPC, grpc.WithTransportCredentials(credentials.NewTLS(ca.Client(f))))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		stream, err := relaypb.NewRelayServiceClient(conn).Exchange(t.Context())
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s relays: %v", ca.Leaf(f).URIs, err)
		}
	}
	if c.leader() != lead || c.running[lead].store.Term() != term {
		t.Error("the leader has changed")
	}
	createKeyspace(t, cl, "more", 4, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
}

// O-90: a server that was removed from the group keeps its certificate. Whoever
// presents it is told that it is out, and not heard.
func TestO90RemovedServerIsNotHeard(t *testing.T) {
	t.Parallel()
	c, ca := secureCluster(t, 4)
	c.startAll()
	lead := c.leader()
	out, stays := (lead+1)%4, (lead+2)%4
	said := func(i int) (code byte, heard bool) {
		to, from := c.running[lead].store.Self(), c.running[i].store.Self()
		conn, err := tls.Dial("tcp", to.RaftAddr, ca.Presenting(c.configs[i].TLS))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(hello(c.running[lead].store.ClusterID(), from, to)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		head := make([]byte, 6)
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatalf("no answer for %s: %v", from, err)
		}
		body := make([]byte, binary.BigEndian.Uint16(head[4:]))
		if _, err := io.ReadFull(conn, body); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, err = conn.Read(head)
		return body[0], errors.Is(err, os.ErrDeadlineExceeded)
	}
	for _, i := range []int{out, stays} {
		if code, heard := said(i); code != 0 || !heard {
			t.Errorf("%s is answered %d, heard: %v", c.configs[i].ID, code, heard)
		}
	}
	if _, err := c.client().Cluster().RemovePeer(t.Context(), &leaseholdv1.RemovePeerRequest{ServerId: c.configs[out].ID}); err != nil {
		t.Fatal(err)
	}
	before := c.scrape(lead)[`leasehold_auth_failures_total{reason="denied"}`]
	eventually(t, 30*time.Second, "the leader hears a removed server no more", func() bool {
		code, heard := said(out)
		return code == 1 && !heard // helloStranger
	})
	if now := c.scrape(lead)[`leasehold_auth_failures_total{reason="denied"}`]; now <= before {
		t.Errorf("counted %v, before %v", now, before)
	}
	if code, heard := said(stays); code != 0 || !heard {
		t.Errorf("one that stays is answered %d, heard: %v", code, heard)
	}
}

// hello is what a server says first on a Raft port.
func hello(cluster string, from, to raftstore.Peer) []byte {
	var body []byte
	text := func(s string) { body = append(binary.AppendUvarint(body, uint64(len(s))), s...) }
	text(cluster)
	text(from.String())
	text(to.String())
	body = binary.AppendUvarint(body, uint64(state.MaxFeature))
	text("test")
	return append(binary.BigEndian.AppendUint16([]byte("LHR\x01"), uint16(len(body))), body...)
}

// O-91: certificates are replaced while all goes on; a server whose certificate was
// forgotten says so, is not heard once its connections break, and takes nobody with
// it.
func TestO91CertificatesRunOutOrRotate(t *testing.T) {
	t.Parallel()
	c, ca := secureCluster(t, 3)
	for i := range c.configs {
		c.configs[i].ElectionTimeout = 2 * time.Second // a busy machine changes the leader
	}
	books := []*logbook{c.logged(0), c.logged(1), c.logged(2)}
	c.startAll()
	cl := c.client()
	createKeyspace(t, cl, "before", 4, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	lead := c.leader()
	left := (lead + 1) % 3
	term := c.running[lead].store.Term()
	inUse := func(i int) string { return c.running[i].certificates.Certificates()[0].Serial }
	shown := make([][]string, 3) // serials that each server has used
	replace := func(i int, life time.Duration) {
		before := inUse(i)
		shown[i] = append(shown[i], before)
		ca.Lasting(life).Replace(c.configs[i].TLS, pki.Name{Role: access.Server, Name: c.configs[i].ID})
		eventually(t, 10*time.Second, "server "+c.configs[i].ID+" uses its new certificate", func() bool { return inUse(i) != before })
	}
	for i := range c.running { // all run out soon
		replace(i, 12*time.Second)
	}
	soon := time.Now().Add(13 * time.Second)
	for i := range c.running {
		if i != left {
			replace(i, time.Hour)
		}
	}
	eventually(t, 10*time.Second, "it is warned of", func() bool {
		end := c.scrape(left)[`leasehold_certificate_expiry_timestamp_seconds{certificate="server"}`]
		return end > 0 && end <= float64(soon.Unix())
	})
	createKeyspace(t, c.client(), "renewed", 4, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	eventually(t, 40*time.Second, "the one left behind says which file it is", func() bool {
		return books[left].count("TLS files are no longer good") > 0 && books[left].count(c.configs[left].TLS.Cert) > 0
	})
	// Connections that are open stay. What breaks them is a network, say.
	for i := range c.running {
		for j, r := range c.running {
			for _, serial := range append(shown[i], inUse(i)) {
				for _, l := range r.guards {
					if i != j && (i == left || j == left) {
						l.Cut(serial)
					}
				}
			}
		}
	}
	whose := "leasehold://leasehold/server/" + c.configs[left].ID
	eventually(t, 30*time.Second, "the leader says whose certificate has run out", func() bool { return books[lead].count(whose) > 0 })
	createKeyspace(t, c.client(), "without", 4, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	if c.leader() != lead || c.running[lead].store.Term() != term {
		t.Errorf("the leader has changed: term %d, before %d", c.running[lead].store.Term(), term)
	}
	// It needs no restart either.
	replace(left, time.Hour)
	eventually(t, 30*time.Second, "it takes part again", func() bool {
		return c.running[left].store.Status().AppliedIndex >= c.running[lead].store.Status().CommitIndex
	})
}

// What the HTTP port shows to whom.
func TestHTTPPortAsksWhoCalls(t *testing.T) {
	t.Parallel()
	c, ca := secureCluster(t, 1)
	c.startAll()
	for who, cfg := range map[string]*tls.Config{
		"nobody": ca.Anonymous(), "worker": ca.Client(ca.Worker("w1")), "reader": ca.Client(ca.Reader("looker")), "operator": c.tls,
	} {
		for path, open := range map[string]bool{"/livez": true, "/readyz": true, "/health": true, "/metrics": false} {
			want := http.StatusOK
			switch {
			case open:
			case who == "nobody":
				want = http.StatusUnauthorized
			case who == "worker":
				want = http.StatusForbidden
			}
			hc := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
			resp, err := hc.Get(c.url(0, path))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != want || want != http.StatusOK && strings.Contains(string(body), "leasehold_") {
				t.Errorf("%s gets %d from %s, want %d", who, resp.StatusCode, path, want)
			}
		}
	}
}

// A list of revocations counts at once, for connections that are open too, on every
// port.
func TestRevokedCertificateIsCutOff(t *testing.T) {
	t.Parallel()
	c, ca := secureCluster(t, 1)
	crl := t.TempDir() + "/crl.pem"
	ca.Revoke(crl)
	c.configs[0].TLS.CRL = crl
	c.startAll()
	f := ca.Reader("looker")
	addrs := c.running[0].Addrs()
	open := map[string]*tls.Conn{}
	for _, addr := range []string{addrs.GRPC, addrs.HTTP} {
		cfg := ca.Client(f)
		cfg.NextProtos = []string{"h2", "http/1.1"}
		conn, err := tls.Dial("tcp", addr, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and empty settings
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatalf("%s: %v", addr, err)
		}
		open[addr] = conn
	}
	ca.Revoke(crl, f)
	for addr, conn := range open {
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second)) // gRPC ends it by itself after 30 s
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection to %s is open", addr)
		}
		if answer := heard(t, addr, ca.Client(f), "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); answer != "" {
			t.Errorf("%s answers a revoked certificate: %q", addr, answer)
		}
	}
}

// What is too large is counted, whoever finds it so: this server, or gRPC before it.
func TestLargeRequestsAreCounted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.configs[0].MaxRequestBytes = 64 << 10
	c.startAll()
	conn, err := grpc.NewClient("passthrough:///"+c.running[0].Addrs().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	counted := 0.0
	for _, size := range []int{65 << 10, 10 << 20} {
		_, native := leaseholdv1.NewKeyspaceServiceClient(conn).GetKeyspace(t.Context(), &leaseholdv1.GetKeyspaceRequest{Name: strings.Repeat("x", size)})
		_, etcd := etcdpb.NewKVClient(conn).Put(t.Context(), &etcdpb.PutRequest{Key: []byte("k"), Value: make([]byte, size)})
		if native == nil || etcd == nil {
			t.Fatalf("%d bytes: %v, %v", size, native, etcd)
		}
		counted += 2
		if got := c.scrape(0)[`leasehold_limit_rejections_total{limit="request_size"}`]; got != counted {
			t.Errorf("%d bytes: counted %v, want %v (%v, %v)", size, got, counted, native, etcd)
		}
	}
	if _, err := leaseholdv1.NewKeyspaceServiceClient(conn).ListKeyspaces(t.Context(), &leaseholdv1.ListKeyspacesRequest{}); err != nil {
		t.Error(err)
	}
}
