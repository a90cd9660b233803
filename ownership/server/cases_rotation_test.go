package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
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
