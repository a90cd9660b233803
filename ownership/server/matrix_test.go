package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
)

// leastCells is below what the matrix has by itself: it must not shrink unnoticed.
const leastCells = 3000

// Every method that a server serves, over gRPC and over HTTP, for every kind of
// caller: testdata/matrix.txt has who is let in (in), who may not (no) and who has not
// proven who they are (who). Rules that no -update rewrites are beside it.
func TestEveryMethodForEveryCaller(t *testing.T) {
	a := pkitest.New(t)
	c := newCluster(t, 3)
	crl := filepath.Join(t.TempDir(), "crl.pem")
	revoked := a.Operator("revoked")
	a.Revoke(crl, revoked)
	for i := range c.configs {
		c.configs[i].TLS = a.Server(c.configs[i].ID)
		c.configs[i].TLS.CRL = crl
	}
	c.startAll()
	asked := c.running[(c.leader()+1)%3] // who hands on what the leader must decide
	addrs := asked.Addrs()
	callers := c.callers(a)
	for _, m := range callers {
		if err := m.dial(addrs.GRPC); err != nil {
			t.Fatal(err)
		}
		defer m.close()
	}
	c.furnish(a, addrs.GRPC)
	rows := append(grpcRequests(t, asked.grpc.GetServiceInfo(), addrs.HTTP), httpRequests(addrs.HTTP)...)
	slices.SortFunc(rows, func(x, y request) int { return strings.Compare(x.name, y.name) })

	cells := tryHandshakes(t, addrs, strangers(t, a, revoked), callers)
	answers := tryAll(t, callers, rows)
	cells += len(callers) * len(rows)
	t.Logf("%d cells: %d requests of %d callers, and handshakes", cells, len(rows), len(callers))
	if cells < leastCells {
		t.Errorf("%d cells: want %d at least", cells, leastCells)
	}
	table := map[string]map[string]string{} // by row and class
	for _, r := range rows {
		table[r.name] = map[string]string{}
		for _, m := range callers {
			got := answers[m.name][r.name]
			if before, ok := table[r.name][m.class]; ok && before != got {
				t.Errorf("%s: %s is answered %q, others of the class %s %q", r.name, m.name, got, m.class, before)
			}
			table[r.name][m.class] = got
			if broken := brokenRule(r, m.class, got); broken != "" {
				t.Errorf("%s: %s is answered %q: %s", r.name, m.name, got, broken)
			}
		}
	}
	compareMatrix(t, rows, table)
}

// furnish makes what the requests are about, as far as they would wait without it.
func (c *cluster) furnish(a *pkitest.Authority, addr string) {
	c.t.Helper()
	boss := &caller{name: "boss", tls: a.Client(a.Operator("boss"))}
	if err := boss.dial(addr); err != nil {
		c.t.Fatal(err)
	}
	defer boss.close()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	cl, err := client.Dial(ctx, client.Config{Servers: c.servers(), TLS: boss.tls})
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	createKeyspace(c.t, cl, matrixKeyspace, 4, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	lease, err := etcdpb.NewLeaseClient(boss.conn).LeaseGrant(ctx, &etcdpb.LeaseGrantRequest{ID: matrixLease, TTL: 600})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := v3electionpb.NewElectionClient(boss.conn).Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte(matrixKey), Lease: lease.ID}); err != nil {
		c.t.Fatal(err)
	}
}

// tryAll sends every request of every caller: one after the other of one, many
// callers at once.
func tryAll(t *testing.T, callers []*caller, rows []request) map[string]map[string]string {
	t.Helper()
	answers := map[string]map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range callers {
		all.Go(func() {
			mine := map[string]string{}
			for _, r := range rows {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				got, err := r.send(ctx, m)
				for errors.Is(err, errNobody) && ctx.Err() == nil {
					got, err = r.send(ctx, m) // there is an election
				}
				cancel()
				if err != nil {
					t.Errorf("%s as %s: no answer: %v", r.name, m.name, err)
				}
				mine[r.name] = got
			}
			mu.Lock()
			defer mu.Unlock()
			answers[m.name] = mine
		})
	}
	all.Wait()
	return answers
}

// tryHandshakes tries those whom no connection is given: the strangers on every
// listener, and whoever is no server on that of Raft. It tells how often.
func tryHandshakes(t *testing.T, addrs Addrs, strangers map[string]*tls.Config, callers []*caller) (tried int) {
	t.Helper()
	refused := func(name, addr string, cfg *tls.Config) {
		tried++
		conn, err := tls.Dial("tcp", addr, cfg) // succeeds before the server has judged
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
			t.Errorf("%s at %s: %v, want a refused handshake", name, addr, err)
		}
	}
	for name, cfg := range strangers {
		web := cfg.Clone()
		cfg.NextProtos = []string{"h2"}
		refused(name, addrs.GRPC, cfg)
		refused(name, addrs.HTTP, web)
		refused(name, addrs.Raft, web)
	}
	for _, m := range callers {
		if !strings.HasPrefix(m.name, "server-") {
			refused(m.name, addrs.Raft, m.tls)
		}
	}
	return tried
}

// Kinds of requests, as a person would sort them: the reference for the table, so
// made without a look at how the product decides.
const (
	ofAll    = "open to everybody"
	ofProven = "for everybody with a proof"
	toLook   = "to look"
	toUse    = "to own partitions and to use keys"
	toRun    = "to run the cluster"
	inside   = "between servers"
)

func kindOf(r request) string {
	last := path.Base(r.method)
	switch {
	case slices.Contains([]string{
		"/grpc.health.v1.Health/Check", "/etcdserverpb.Auth/Authenticate", "POST /v3/auth/authenticate",
		"GET /livez", "GET /readyz", "GET /health",
	}, r.method):
		return ofAll
	case strings.HasPrefix(r.method, "/leasehold.relay."):
		return inside
	case strings.HasPrefix(r.method, "/grpc."), r.method == "POST /v3/nothing":
		return ofProven
	case strings.HasPrefix(r.method, "/leasehold.v1.SessionService/"), strings.HasPrefix(r.method, "/leasehold.v1.CoordinationService/"):
		return toUse
	case strings.HasPrefix(r.method, "/leasehold.v1.CredentialService/"):
		return toRun
	case strings.HasSuffix(r.name, "that writes"), r.method == "POST /v3/kv/txn":
		return toUse
	case strings.HasSuffix(r.name, "that changes"):
		return toRun
	case strings.HasPrefix(r.method, "/leasehold.v1.") && slices.ContainsFunc(
		[]string{"Get", "List", "Watch", "Locate", "Explain", "Simulate"}, func(verb string) bool { return strings.HasPrefix(last, verb) }):
		return toLook
	case strings.HasPrefix(r.method, "GET "), slices.Contains([]string{
		"Range", "RangeStream", "Txn", "Watch", "LeaseTimeToLive", "LeaseLeases", "MemberList", "Status", "Alarm", "Hash", "HashKV",
		"AuthStatus", "Leader", "Observe", "range", "watch", "leases", "status",
	}, last), r.method == "POST /v3/cluster/member/list":
		return toLook
	case slices.Contains([]string{
		"Put", "DeleteRange", "LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "Lock", "Unlock", "Campaign", "Proclaim", "Resign",
		"put", "deleterange", "grant", "lock",
	}, last):
		return toUse
	}
	return toRun // whatever is new
}

// brokenRule is what an answer breaks of what holds whatever the table says; "": none.
func brokenRule(r request, class, got string) string {
	kind, in := kindOf(r), got == letIn
	role, bound, _ := strings.Cut(class, "/")
	switch {
	case kind == ofAll && !in:
		return "it is " + kind
	case kind == ofAll:
		return ""
	case class == "nobody" && got != unknown:
		return "without a proof there is nothing but health and the login"
	case class != "nobody" && got == unknown:
		return "the proof is good"
	case kind == inside && in && role != "server":
		return "it is " + kind
	case class == "operator" && kind != inside && !in:
		return "an operator of everything may do everything else"
	case !in:
		return ""
	case role == "reader" && kind != toLook && kind != ofProven:
		return "a reader looks, and this is " + kind
	case role == "worker" && kind == toRun:
		return "this is " + kind
	case role == "server" && kind != inside && kind != ofProven && !slices.Contains([]string{"GetStatus", "ListPeers", "GetHealth"}, path.Base(r.method)):
		return "servers have no calls of their own"
	case bound == "keyspace" && r.ofKeyspace, bound == "prefix" && r.ofKey:
		return "the request is about another " + bound
	case bound != "" && slices.Contains([]string{"SaveBackup", "Snapshot", "snapshot"}, path.Base(r.method)):
		return "it gives everything away"
	case class != "operator" && strings.HasSuffix(r.name, ofAnother):
		return "it is for somebody else's lease"
	case bound != "" && strings.HasSuffix(r.name, everywhere):
		return "it gives more than they have"
	case bound == "keyspace" && kind == toRun && strings.HasPrefix(r.method, "/leasehold.v1."):
		return "the whole cluster is not theirs"
	case bound == "prefix" && kind == toRun && !strings.HasPrefix(r.method, "/leasehold.v1."):
		return "the whole store is not theirs"
	}
	return ""
}

// compareMatrix holds the answers against the table that people have read.
func compareMatrix(t *testing.T, rows []request, table map[string]map[string]string) {
	t.Helper()
	widest := 0
	for _, r := range rows {
		widest = max(widest, len(r.name))
	}
	line := func(name string, cell func(class string) string) string {
		text := fmt.Sprintf("%-*s", widest, name)
		for _, class := range classes {
			text += fmt.Sprintf("  %-*s", len(class), cell(class))
		}
		return strings.TrimRight(text, " ")
	}
	lines := []string{line("", func(class string) string { return class })}
	for _, r := range rows {
		lines = append(lines, line(r.name, func(class string) string { return table[r.name][class] }))
	}
	const file = "testdata/matrix.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines[0] = strings.TrimSpace(lines[0])
	if slices.Equal(lines, want) {
		return
	}
	t.Errorf("who is let in has changed; if that is meant, go test -run %s -update ./ownership/server rewrites %s", t.Name(), file)
	for _, l := range lines {
		if !slices.Contains(want, l) {
			t.Errorf("now:    %s", l)
		}
	}
	for _, l := range want {
		if !slices.Contains(lines, l) {
			t.Errorf("before: %s", l)
		}
	}
}
