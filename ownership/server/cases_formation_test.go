package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore"
)

// oneCluster wants all running servers to be in the same cluster, and returns
// its id.
func (c *cluster) oneCluster() (id string) {
	c.t.Helper()
	for i, r := range c.running {
		if r == nil {
			continue
		}
		st := c.status(i)
		if id == "" {
			id = st.GetClusterId()
		}
		if id == "" || st.GetClusterId() != id {
			c.t.Fatalf("server %s is in cluster %q, others in %q", st.GetServerId(), st.GetClusterId(), id)
		}
	}
	return id
}

func unformed(t *testing.T, n int) *cluster {
	t.Helper()
	c := freshCluster(t, n)
	for i := range c.configs {
		c.configs[i].BootstrapExpect = 0
		c.start(i)
	}
	return c
}

// allSeen waits until each of three servers without a cluster sees all of them.
func (c *cluster) allSeen() {
	c.t.Helper()
	for i := range c.running {
		c.says(i, "3 servers seen")
	}
}

func (c *cluster) init(i, expect int) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	_, err := c.api(i).InitCluster(ctx, &leaseholdv1.InitClusterRequest{Expect: int32(expect)})
	return err
}

// Three inits at once, at three servers: one cluster. A later one is refused.
func TestInitAtAllServersAtOnceFormsOneCluster(t *testing.T) {
	t.Parallel()
	c := unformed(t, 3)
	c.says(1, "leasehold cluster init")
	c.allSeen()
	wantRefusal(t, "two of three", c.init(1, 2), leaseholdv1.ReasonConflict, "3 servers seen (s1, s2, s3), not 2")
	wantRefusal(t, "no number", c.init(1, 0), leaseholdv1.ReasonInvalid, "1 to 9")
	errs := make([]error, 3)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = c.init(i, 3) })
	}
	all.Wait()
	formed := 0
	for _, err := range errs {
		if err == nil {
			formed++
		} else {
			wantRefusal(t, "a second init", err, leaseholdv1.ReasonExists)
		}
	}
	if formed != 1 {
		t.Errorf("%d inits formed a cluster: %v", formed, errs)
	}
	c.ready()
	before := c.oneCluster()
	for i := range errs {
		wantRefusal(t, "init again", c.init(i, 3), leaseholdv1.ReasonExists, before)
	}
	if after := c.oneCluster(); after != before || c.group(0) != "s1 s2 s3" {
		t.Errorf("cluster %s of %s, was %s", after, c.group(0), before)
	}
}

// Whoever has state is in a cluster already; no second one is formed around it.
func TestInitBesideAClusterIsRefused(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 3)
	c.configs[0].BootstrapExpect, c.configs[1].BootstrapExpect, c.configs[2].BootstrapExpect = 1, 0, 0
	c.configs[0].Join = nil
	c.start(0)
	c.ready()
	c.start(1)
	c.start(2)
	c.says(1, "ask an operator: leasehold raft add s2")
	c.says(2, "ask an operator: leasehold raft add s3")
	wantRefusal(t, "init of three", c.init(1, 3), leaseholdv1.ReasonExists, "s1 belongs to a cluster")
	wantRefusal(t, "init of two", c.init(2, 2), leaseholdv1.ReasonExists)
}

// The direct question counts, not what gossip said a moment ago: a server that
// has got state meanwhile, or sees others, is not drawn into a second cluster.
func TestFormationAsksEachServer(t *testing.T) {
	t.Parallel()
	c := unformed(t, 3)
	c.allSeen()
	s := c.running[0].Server
	v, err := judgeInit(s.id, 3, s.candidates())
	if err != nil || len(v.peers) != 3 {
		t.Fatalf("%+v: %v", v, err)
	}
	// s3 gets a cluster of its own behind the back of gossip.
	third := c.running[2].Server
	if err := third.store.Bootstrap([]raftstore.Peer{third.store.Self()}); err != nil {
		t.Fatal(err)
	}
	if err := s.found(t.Context(), v, 3); err == nil || !strings.Contains(err.Error(), "confirm server s3") || !strings.Contains(err.Error(), "has state") {
		t.Errorf("formed beside a cluster: %v", err)
	}
	if s.store.HasState() {
		t.Error("s1 has state")
	}
}

// One server of three that was started without its TLS files: the others say what is
// missing, and say it once.
func TestFormationWithAServerInTheClear(t *testing.T) {
	t.Parallel()
	c, _ := secureCluster(t, 2)
	c.configs[1].TLS = pki.Files{}
	var tries atomic.Int64
	c.configs[0].hooks.dial = func(ctx context.Context, addr string) (net.Conn, error) {
		if addr == c.configs[1].GRPCAddr {
			tries.Add(1)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	book := c.logged(0)
	c.start(0)
	c.start(1)
	eventually(t, 20*time.Second, "s1 has tried again", func() bool { return tries.Load() > 3 })
	if book.count("it speaks without TLS") != 1 || book.count("was not formed") != 1 {
		t.Errorf("told %d times, in our words %d times", book.count("was not formed"), book.count("it speaks without TLS"))
	}
}

// O-43: --bootstrap-expect stays in the unit file for ever.
func TestBootstrapOptionLeftOn(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 3)
	c.startAll()
	c.put("a", "b")
	cluster, token := c.oneCluster(), c.status(0).GetLastToken()
	same := func(when string) {
		t.Helper()
		if got := c.oneCluster(); got != cluster {
			t.Fatalf("%s: cluster %s, was %s", when, got, cluster)
		}
		for i := range c.running {
			if c.running[i] != nil {
				c.has(i, "a", "b")
			}
		}
	}
	c.stopServer(1)
	book := c.logged(1)
	c.start(1)
	c.ready()
	same("one restarted")
	if n := book.count("--bootstrap-expect has no effect"); n != 1 {
		t.Errorf("%d lines about the option", n)
	}
	c.stopAll()
	// One whose peers are away does not begin anew.
	c.start(2)
	c.says(2, "no leader now, and no other server is seen; trying --join "+c.gossip[0])
	never(t, time.Second, "a server alone leads", func() bool { return c.running[2].store.IsLeader() || c.why(2) == "ready" })
	c.start(0)
	c.start(1)
	c.ready()
	same("all restarted")
	if got := c.status(0).GetLastToken(); got < token {
		t.Errorf("last token %d, was %d", got, token)
	}
}

// O-33: seeds that cannot be reached, for a server that waits for its cluster
// and for one that has one.
func TestSeedsAreAway(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 3)
	c.start(2)
	c.says(2, "1 of 3 servers seen; trying --join "+c.gossip[0]+", "+c.gossip[1]+", where nobody answers yet")
	never(t, time.Second, "it forms a cluster alone", func() bool { return c.running[2].store.HasState() })
	c.start(0)
	c.start(1)
	c.ready()
	c.oneCluster()

	// A seed list with only itself: it waits, and says what is wrong.
	lone := freshCluster(t, 1)
	lone.configs[0].BootstrapExpect, lone.configs[0].Join = 3, []string{lone.configs[0].GossipAddr}
	lone.start(0)
	lone.says(0, "--join names only this server itself")
	never(t, 500*time.Millisecond, "it forms a cluster alone", func() bool { return lone.running[0].store.HasState() })
}

// O-52: the id in the data directory wins over the host name, and is never
// another one; a volume has one server at a time.
func TestOldDataNewHostName(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 1)
	c.configs[0].ID = "c1"
	c.startAll()
	second := c.configs[0]
	second.GRPCAddr, second.RaftAddr, second.GossipAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	var inUse *raftstore.InUseError
	if s, err := New(second); !errors.As(err, &inUse) || !strings.Contains(err.Error(), second.DataDir) {
		t.Errorf("two servers on one volume: %v, %v", s, err)
	}
	c.stopAll()
	second.ID = "c2"
	var identity *raftstore.IdentityError
	if s, err := New(second); !errors.As(err, &identity) || !strings.Contains(err.Error(), `"c1"`) || !strings.Contains(err.Error(), `"c2"`) {
		t.Errorf("another id: %v, %v", s, err)
	}
	c.configs[0].ID = "" // the host name, whatever it is now
	if id := c.start(0).ID(); id != "c1" {
		t.Errorf("id %q, want the stored one", id)
	}
	c.ready()
}
