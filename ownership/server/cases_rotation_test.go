package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// certify gives a server that runs a new certificate, and waits until it uses it.
func (c *cluster) certify(ca *pkitest.Authority, i int) {
	c.t.Helper()
	inUse := func() string { return c.running[i].certificates.Certificates()[0].Serial }
	before := inUse()
	ca.Replace(c.configs[i].TLS, pki.Name{Role: access.Server, Name: c.configs[i].ID})
	eventually(c.t, 10*time.Second, "server "+c.configs[i].ID+" uses its new certificate", func() bool { return inUse() != before })
}

// O-91: it is the leader whose certificate was forgotten. Raft's connections stay,
// but nobody can make a new one to it: another one has to lead.
func TestO91LeaderWhoseCertificateRunsOut(t *testing.T) {
	t.Parallel()
	c, ca := secureCluster(t, 3)
	for i := range c.configs {
		c.configs[i].ElectionTimeout = 2 * time.Second // a busy machine changes the leader
	}
	books := []*logbook{c.logged(0), c.logged(1), c.logged(2)}
	c.startAll()
	createKeyspace(t, c.client(), "before", 4, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	lead := c.leader()
	c.certify(ca.Lasting(3*time.Second), lead)
	var others []string
	for i, cfg := range c.configs {
		if i != lead {
			others = append(others, cfg.GRPCAddr)
		}
	}
	eventually(t, 20*time.Second, "another server leads", func() bool { return !c.running[lead].store.IsLeader() && c.leader() != lead })
	if n := books[lead].count("the leadership is handed on"); n != 1 {
		t.Errorf("%d lines tell of it", n)
	}
	// As a connection ends when the certificate that was shown on it does.
	for _, cfg := range c.configs {
		for _, r := range c.running {
			for _, l := range r.guards {
				l.Cut(pki.Serial(ca.Leaf(cfg.TLS)))
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, client.Config{Servers: strings.Join(others, ","), TLS: c.tls})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	createKeyspace(t, cl, "after", 4, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	c.certify(ca, lead)
	eventually(t, 20*time.Second, "it has what the others have", func() bool {
		return c.running[lead].store.Status().AppliedIndex >= c.running[c.leader()].store.Status().CommitIndex
	})
}

// Where the certificates of all have run out, the leadership does not go round and
// round: connections that are open still work.
func TestLeadershipIsGivenToEachOnce(t *testing.T) {
	peer := func(id string, voter bool, contact time.Duration, index uint64) raftstore.PeerStatus {
		return raftstore.PeerStatus{Peer: raftstore.Peer{ID: id}, Voter: voter, LastContact: contact, LastIndex: index}
	}
	peers := []raftstore.PeerStatus{
		peer("s1", true, 0, 9), peer("s2", true, 0, 7), peer("s3", true, 0, 8), peer("s4", false, 0, 9), peer("s5", true, -1, 9),
	}
	g := given{to: map[string]bool{}}
	for _, want := range []string{"s3", "s2", "", ""} {
		if to, ok := g.next(peers, raftstore.Peer{ID: "s1"}); to.ID != want || ok != (want != "") {
			t.Errorf("given to %q, want %q", to.ID, want)
		}
	}
}

// deploy puts contents of files, one after the other, in the place of a file.
func deploy(t *testing.T, path string, from ...string) {
	t.Helper()
	var all []byte
	for _, f := range from {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	if err := os.WriteFile(path+".new", all, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// O-91: another authority takes the place of the first, in the steps of
// deploy/OPERATIONS.md and while all goes on. Nobody loses a session, and at the end
// nothing of the first is good for anything, connections that are open included.
func TestO91AuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	c, first := secureCluster(t, 3)
	next := pkitest.New(t)
	lists := map[*pkitest.Authority]string{first: filepath.Join(t.TempDir(), "crl.pem"), next: filepath.Join(t.TempDir(), "crl.pem")}
	for ca, list := range lists {
		ca.Revoke(list)
	}
	// Everybody has files of their own.
	for i := range c.configs {
		c.configs[i].ElectionTimeout = 2 * time.Second // a busy machine changes the leader
		c.configs[i].TLS.CRL = filepath.Join(t.TempDir(), "crl.pem")
		deploy(t, c.configs[i].TLS.CRL, lists[first])
	}
	names := []pki.Name{{Role: access.Worker, Name: "w1"}, {Role: access.Worker, Name: "w2"}, {Role: access.Operator, Name: "test"}}
	var files []*pki.Files
	for _, n := range names {
		f := first.Files(n)
		files = append(files, &f)
	}
	for i, cfg := range c.configs {
		names, files = append(names, pki.Name{Role: access.Server, Name: cfg.ID}), append(files, &c.configs[i].TLS)
	}
	for _, f := range files {
		f.CA = filepath.Join(t.TempDir(), "ca.pem")
		deploy(t, f.CA, first.CA())
	}
	c.tls = first.Client(*files[2])
	books := []*logbook{c.logged(0), c.logged(1), c.logged(2)}
	c.startAll()
	cl := c.client()
	createKeyspace(t, cl, "orders", 8, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	var begun atomic.Int64
	for i, n := range names[:2] {
		startHand(t, worker.Config{Servers: c.servers(), ID: n.Name, TLS: first.Client(*files[i])}, "orders", func(ctx context.Context, l *worker.Lease) error {
			begun.Add(1)
			return untilTold(ctx, l)
		})
	}
	eventually(t, 40*time.Second, "all is held by two", func() bool {
		held := map[string]int{}
		for _, p := range c.partitions(cl, "orders") {
			held[p.GetOwner()]++
		}
		return held["w1"] == 4 && held["w2"] == 4
	})
	starts, revision, lead := begun.Load(), c.revision(cl), c.leader()
	term := c.running[lead].store.Term()
	thief := first.Worker("thief")
	open := dialAs(t, c.running[lead].Addrs().GRPC, first.Client(thief))

	in := func(i int, authorities, listed int, by *pkitest.Authority) bool {
		own, seen := c.running[i].certificates.Certificates(), map[string]int{}
		for _, info := range own {
			seen[info.Use]++
		}
		return seen["authority"] == authorities && seen["list"] == listed && own[0].Serial == pki.Serial(by.Leaf(c.configs[i].TLS))
	}
	each := func(what string, do func(n pki.Name, f pki.Files), authorities, listed int) {
		t.Helper()
		for i, n := range names {
			do(n, *files[i])
		}
		for i := range c.configs {
			eventually(t, 10*time.Second, what+" at "+c.configs[i].ID, func() bool { return in(i, authorities, listed, first) })
		}
		again, err := client.Dial(t.Context(), client.Config{Servers: c.servers(), TLS: c.tls})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer again.Close()
		createKeyspace(t, again, strings.ReplaceAll(what, " ", "-"), 1, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	}
	each("both authorities", func(_ pki.Name, f pki.Files) { deploy(t, f.CA, first.CA(), next.CA()) }, 2, 1)
	each("both lists", func(_ pki.Name, f pki.Files) {
		if f.CRL != "" {
			deploy(t, f.CRL, lists[first], lists[next])
		}
	}, 2, 2)
	each("new certificates", func(n pki.Name, f pki.Files) { next.Replace(f, n) }, 2, 2)
	if endedSoon(open, time.Millisecond) {
		t.Error("a connection was ended whose authority is believed")
	}
	each("the new authority", func(_ pki.Name, f pki.Files) { deploy(t, f.CA, next.CA()) }, 1, 1)
	each("the new list", func(_ pki.Name, f pki.Files) {
		if f.CRL != "" {
			deploy(t, f.CRL, lists[next])
		}
	}, 1, 1)

	if !endedSoon(open, 15*time.Second) { // gRPC ends it by itself after 30 s
		t.Error("a connection of the old authority is open")
	}
	if answer := heard(t, c.running[lead].Addrs().GRPC, next.Presenting(thief), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); answer != "" {
		t.Errorf("somebody of the old authority is answered %q", answer)
	}
	if c.leader() != lead || c.running[lead].store.Term() != term {
		t.Error("the leader has changed")
	}
	if now := begun.Load(); now != starts {
		t.Errorf("%d leases have begun, %d before", now, starts)
	}
	if lost := c.eventsAfter(c.client(), revision, "session_expire", "expire", "revoke"); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
	for i, b := range books {
		if b.count("new TLS files cannot be used") > 0 {
			t.Errorf("%s could not use a file", c.configs[i].ID)
		}
	}
	again := slices.IndexFunc(c.running, func(r *running) bool { return !r.store.IsLeader() })
	c.stopServer(again)
	c.start(again)
	c.ready()
}

// dialAs is a connection of HTTP/2 on which the other side has spoken.
func dialAs(t *testing.T, addr string, cfg *tls.Config) *tls.Conn {
	t.Helper()
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and empty settings
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// endedSoon reports whether the other side ends a connection within a time.
func endedSoon(conn *tls.Conn, within time.Duration) bool {
	_ = conn.SetDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, conn)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}
